#!/usr/bin/env bash
# The server's own tests on FIRN: make mtr [GROUPS="storage_engine engines innodb rpl tables"] [UPDATE=1]
#
# It takes the distribution's packages of the tests, of the version of the installed server, unpacks
# them under build/mtr, adds FIRN as an engine (scripts/mtr/overlay.py), runs the groups and compares
# the results with scripts/mtr/expected (scripts/mtr/run.py). Nothing outside build/ changes.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$FIRN_ROOT"

work=$FIRN_BUILD/mtr
packages=$work/packages
plugin=${FIRN_TEST_PLUGIN:-$FIRN_BUILD/plugin/ha_firn.so}
version=$(package_version mariadb-server-core)
[ -n "$version" ] || die "mariadb-server-core is missing: scripts/deps.sh mtr"
[ -f "$plugin" ] || die "$plugin is missing: make"

# mariadb-server has the plugins and the tools for other engines that the tests ask for.
if [ "$(cat "$packages/version" 2>/dev/null)" != "$version" ]; then
  say "fetching the tests of version $version"
  rm -rf "$packages" "$work/root"
  mkdir -p "$packages"
  (cd "$packages" && quietly "$FIRN_BUILD/log/mtr-download.log" apt-get -qq download \
    "mariadb-test=$version" "mariadb-test-data=$version" "mariadb-server=$version")
  echo "$version" >"$packages/version"
fi
# Recorded results stay until the tests or the rules change.
wanted=$(cat "$packages/version" scripts/mtr/overlay.py | sha256sum)
if [ "$(cat "$work/root/built" 2>/dev/null)" != "$wanted" ]; then
  say "building the tree of tests"
  /usr/bin/python3 scripts/mtr/overlay.py "$packages" "$work/root" "$plugin"
  echo "$wanted" >"$work/root/built"
fi
ln -sfn "$(realpath "$plugin")" "$work/root/usr/lib/mysql/plugin/ha_firn.so"

read -ra groups <<<"${GROUPS_OF_TESTS:-}"
say "running the server's tests on FIRN"
/usr/bin/python3 scripts/mtr/run.py ${UPDATE:+--update} "$work/root" "$work" "${groups[@]}"
