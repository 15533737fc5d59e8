#!/usr/bin/env bash
# Every test, from a machine that may hold nothing yet: make test
#
# A step that fails does not keep the others from running; the last lines tell what failed, and the result of each.
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
    # What cargo, rustc, pytest and our scripts begin such lines with; without any, the end has to do.
    reasons+=("== $name" "$(grep -E -A3 '^(error|FAILED |ERROR )|[.]{3} FAILED$|panicked at|^FATAL' "$log" | tail -40 | grep . || tail "$log")")
  fi
  results+=("$(printf '%-6s  %4d s  %s' "$status" $((SECONDS - began)) "$name")")
}

core_tests() {
  # firn-bench is a workspace of its own; without its rivals it compiles no other engine.
  local failed=0
  cargo test --no-fail-fast --workspace || failed=1
  cargo test --manifest-path crates/firn-bench/Cargo.toml --target-dir "$FIRN_TARGET" || failed=1
  return $failed
}

# The suite runs the same programs every time; tests/sql/run by itself, or another FIRN_TEST_SEED, tries new ones.
# Two files at a time: much of a test is waiting for locks and for servers that start.
sql_tests() {
  export FIRN_TEST_SEED=${FIRN_TEST_SEED:-920967}
  scripts/venv.sh tests/requirements.txt && PATH=$FIRN_ROOT/.venv/bin:$PATH tests/sql/run -n 2 --dist loadfile
}

# With InnoDB alone; make lab-test also converts tables to FIRN, which takes minutes.
lab_tests() { scripts/lab.sh install && scripts/lab.sh test --ignore=tests/test_conversions.py; }

step "packages" scripts/deps.sh test
[ $failed = 0 ] || exit 1
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
