#!/usr/bin/env bash
# The benchmark lab (docs/lab.md): scripts/lab.sh install|rocksdb|test|results|spin|proofs
#
#   install  installs the package lab/ into .venv-lab in place: source changes need no reinstall
#   rocksdb  unpacks Debian's MyRocks into build/rocksdb, without the server that the package starts
#   test     runs the lab's tests with InnoDB, and conversions to FIRN if its plugin is built
#   results  makes the quick run, and its report in docs/results/quick
#   spin     builds build/spin/ha_firn.so: the plugin, slower by FIRN_LAB_SPIN_NS ns per statement
#   proofs   measures what differences the lab can detect: 80 minutes of InnoDB beside itself, and
#            20 of the plugin beside the slower one. Raw data and results go to
#            docs/results/proofs; runs that are there already are not repeated.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$FIRN_ROOT"

install() {
  local venv=.venv-lab stamp
  stamp=$venv/.installed-$(sha256sum <lab/pyproject.toml | cut -d' ' -f1)
  [ -f "$stamp" ] && return
  say "installing the lab into $venv"
  [ -x $venv/bin/pip ] || quietly "$FIRN_BUILD/log/lab-venv.log" /usr/bin/python3 -m venv "$venv"
  quietly "$FIRN_BUILD/log/lab-pip.log" $venv/bin/pip install --quiet --disable-pip-version-check -e './lab[test]'
  touch "$stamp"
}

rocksdb() {
  local dir=$FIRN_BUILD/rocksdb deb
  [ -f "$dir/usr/lib/mysql/plugin/ha_rocksdb.so" ] && return
  say "fetching MyRocks"
  mkdir -p "$dir"
  (cd "$dir" && quietly "$FIRN_BUILD/log/lab-rocksdb.log" apt-get download mariadb-plugin-rocksdb libsnappy1v5)
  for deb in "$dir"/*.deb; do dpkg -x "$deb" "$dir"; done
}

# Tests that open a report need Chromium. If it cannot be installed, they are skipped with a reason.
run_tests() {
  local log=$FIRN_BUILD/log/lab-browser.log
  mkdir -p "${log%/*}"
  if ! scripts/deps.sh browser 2>"$log"; then
    FIRN_LAB_NO_BROWSER=$(tail -n 1 "$log")
    export FIRN_LAB_NO_BROWSER
  fi
  # Tests of one file share servers and runs, so they stay in one process.
  cd lab && exec ../.venv-lab/bin/python -m pytest -q -rs -p no:cacheprovider -n 2 --dist loadfile "$@"
}

results() {
  local lab=.venv-lab/bin/firn-lab out=docs/results/quick
  scripts/deps.sh browser
  $lab run quick || die "the run is not whole: $out stays as it is"
  rm -rf "$out"
  $lab report --out "$out" --raw --screenshot --catalogue docs/results/prices.toml
}

# Links the objects of `make` with spin.o. Make appends to LDFLAGS of the environment.
spin() {
  local dir=$FIRN_BUILD/spin
  mkdir -p "$dir"
  cc -O2 -fPIC -Wall -Wextra -Werror -c lab/proofs/spin.c -o "$dir/spin.o"
  LDFLAGS="-Wl,--wrap=firn_begin_statement $dir/spin.o" make --no-print-directory PLUGIN="$dir/ha_firn.so" "$dir/ha_firn.so"
}

proofs() {
  local lab=.venv-lab/bin/firn-lab
  $lab prove same
  $lab prove slower --before "$FIRN_BUILD/plugin/ha_firn.so" --after "$FIRN_BUILD/spin/ha_firn.so"
}

case ${1:-} in
  install) install ;;
  rocksdb) rocksdb ;;
  test) run_tests "${@:2}" ;;
  results) results ;;
  spin) spin ;;
  proofs) spin && proofs ;;
  *) die "usage: scripts/lab.sh install|rocksdb|test|results|spin|proofs" ;;
esac
