#!/usr/bin/env bash
# Runs every test, also on a machine without the tools installed: make test
#
# A failing step does not stop the others; the last lines show the failures and all results.
set -uo pipefail
. "$(dirname "$0")/lib.sh"
cd "$FIRN_ROOT" || exit 1

results=() reasons=() failed=0
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
step() { # step NAME COMMAND...
  local name=$1 began=$SECONDS status=ok log
  log=$logs/${name// /-}
  shift
  say "$name: $*"
  if ! "$@" 2>&1 | tee "$log"; then
    status=FAILED failed=1
    # The reasons are the lines that cargo, rustc, pytest and our scripts print for errors, or the
    # end of the log if there are none.
    reasons+=("== $name" "$(grep -E -A3 '^(error|FAILED |ERROR )|[.]{3} FAILED$|panicked at|^FATAL' "$log" | tail -40 | grep . || tail "$log")")
  fi
  results+=("$(printf '%-6s  %4d s  %s' "$status" $((SECONDS - began)) "$name")")
}

core_tests() {
  # firn-bench is its own workspace; without its rivals it compiles no other engine.
  local failed=0
  cargo test --no-fail-fast --workspace || failed=1
  cargo test --manifest-path crates/firn-bench/Cargo.toml --target-dir "$FIRN_TARGET" || failed=1
  return $failed
}

# The fixed seed makes every run use the same random programs; tests/sql/run without arguments, or
# another FIRN_TEST_SEED, tries new ones. Run two files in parallel, because the tests mostly wait
# for locks and for servers to start.
sql_tests() {
  export FIRN_TEST_SEED=${FIRN_TEST_SEED:-920967}
  scripts/venv.sh tests/requirements.txt && PATH=$FIRN_ROOT/.venv/bin:$PATH tests/sql/run -n 2 --dist loadfile
}

# Tests the lab with InnoDB only; make lab-test also converts tables to FIRN, which takes minutes.
lab_tests() { scripts/lab.sh install && scripts/lab.sh test --ignore=tests/test_conversions.py; }

step "packages" scripts/deps.sh test
[ $failed = 0 ] || exit 1
step "versitygw" scripts/versitygw.sh
[ ! -x "$FIRN_BUILD/tools/versitygw" ] || export FIRN_VERSITYGW=$FIRN_BUILD/tools/versitygw
step "build" make --no-print-directory all
step "core" core_tests
step "collations" tests/collations/run
step "sql" sql_tests
step "lab" lab_tests
step "package" scripts/package-test.sh
step "patch levels" scripts/patch-level-test.sh

echo
printf '%s\n' "${reasons[@]}" "${results[@]}"
if [ $failed = 0 ]; then echo "all tests passed in $SECONDS s"; else echo "TESTS FAILED"; fi
exit $failed
