#!/usr/bin/env bash
# The benchmark lab (docs/lab.md): scripts/lab.sh install|rocksdb|test
#
#   install  the package lab/ into .venv-lab, in place: changes of its source need no second install
#   rocksdb  Debian's MyRocks unpacked into build/rocksdb; the package would install and start a server
#   test     the lab's tests, with InnoDB alone
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

case ${1:-} in
  install) install ;;
  rocksdb) rocksdb ;;
  test) cd lab && exec ../.venv-lab/bin/python -m pytest -q -p no:cacheprovider ;;
  *) die "usage: scripts/lab.sh install|rocksdb|test" ;;
esac
