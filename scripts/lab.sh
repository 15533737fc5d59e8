#!/usr/bin/env bash
# The benchmark lab (docs/lab.md): scripts/lab.sh install|rocksdb|test|results|spin|proofs
#
#   install  the package lab/ into .venv-lab, in place: changes of its source need no second install
#   rocksdb  Debian's MyRocks unpacked into build/rocksdb; the package would install and start a server
#   test     the lab's tests, with InnoDB alone; conversions to FIRN too, where its plugin is built
#   results  the quick run, and its report in docs/results/quick
#   spin     build/spin/ha_firn.so: the plugin, slower by FIRN_LAB_SPIN_NS nanoseconds a statement
#   proofs   what the lab can tell apart, measured: 80 minutes of InnoDB beside itself, and 20 of the plugin beside the
#            slower one; raw data and what follows in docs/results/proofs. What is there already is not done again.
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

# Tests that open a report want Chromium. Where it cannot be installed they are skipped, and say why.
run_tests() {
  local log=$FIRN_BUILD/log/lab-browser.log
  mkdir -p "${log%/*}"
  if ! scripts/deps.sh browser 2>"$log"; then
    FIRN_LAB_NO_BROWSER=$(tail -n 1 "$log")
    export FIRN_LAB_NO_BROWSER
  fi
  # A file's tests share servers and runs.
  cd lab && exec ../.venv-lab/bin/python -m pytest -q -rs -p no:cacheprovider -n 2 --dist loadfile "$@"
}

results() {
  local lab=.venv-lab/bin/firn-lab out=docs/results/quick
  scripts/deps.sh browser
  $lab run quick || die "the run is not whole: $out stays as it is"
  rm -rf "$out"
  $lab report --out "$out" --raw --screenshot --catalogue docs/results/prices.toml
}

# The objects of `make`, linked with one more. Make adds to LDFLAGS of the environment.
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
