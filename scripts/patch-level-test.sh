#!/usr/bin/env bash
# Tests the plugin, built once, in every patch level of the installed server's series that apt can
# download: rows written under one patch level are read under the next. Then it tests the refusals:
# it changes headers as a foreign server's would differ, compiles the layout check against them, and
# the stock server must refuse the plugin, report the reason, and keep running.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

work=$FIRN_BUILD/patch-levels
plugin=$FIRN_BUILD/plugin/ha_firn.so
server=$FIRN_ROOT/scripts/server.sh
installed=$(package_version mariadb-server-core)
series=$(series_of "$(upstream_version "$installed")")

sql() { "$server" client --dir="$work/run" -- --batch --skip-column-names -e "$1"; }
stop() { "$server" stop --dir="$work/run"; }
trap stop EXIT

known_versions() {
  mapfile -t versions < <(apt-cache madison mariadb-server-core | awk '{print $3}' | grep -F ":$series." | sort -uV)
}

update_lists() {
  say "fetching the package lists, $1"
  quietly "$FIRN_BUILD/log/apt-update.log" apt-get -qq -o DPkg::Lock::Timeout=600 update
  known_versions
}

# Unpacks the packages of all versions, in one directory per patch level. Fails if the mirror does
# not give one of them.
download() {
  local version base log=$FIRN_BUILD/log/server-core.log
  for version in "${versions[@]}"; do
    base=$work/$version
    [ -x "$base/usr/sbin/mariadbd" ] && continue
    say "fetching mariadb-server-core $version"
    (cd "$work" && quietly "$log" apt-get -q -o APT::Sandbox::User="$(id -un)" \
      download "mariadb-server-core=$version") || return 1
    rm -rf "$base" "$base.new"
    dpkg -x "$work"/mariadb-server-core_*"${version#*:}"*.deb "$base.new" && rm "$work"/*.deb && mv "$base.new" "$base" ||
      die "mariadb-server-core $version cannot be unpacked in $work"
  done
}

# start PLUGIN [BASE]
start() { "$server" start --dir="$work/run" --plugin="$1" ${2:+--base="$2"}; }

expect() {
  local what=$1 wanted=$2 got=$3
  [ "$got" = "$wanted" ] || die "$what: expected '$wanted', got '$got' (log: $work/run/error.log)"
}

# refused NAME FILE SED MESSAGE: a plugin compiled against a header changed with SED is refused with
# MESSAGE.
refused() {
  local name=$1 file=$2 change=$3 message=$4 variant=$work/foreign-${1// /-}
  mkdir -p "$variant"
  cp -a "$FIRN_BUILD/gen" "$FIRN_BUILD/server-src/sql" "$variant/"
  sed -i "$change" "$variant/$file"
  ! cmp -s "$variant/$file" "$FIRN_BUILD/$file" && ! cmp -s "$variant/$file" "$FIRN_BUILD/server-src/$file" ||
    die "$name: the change does not apply to $file"
  quietly "$FIRN_BUILD/log/foreign.log" make -C "$FIRN_ROOT" VARIANT="$variant" "$variant/ha_firn.so"
  stop
  : >"$work/run/error.log"
  start "$variant/ha_firn.so"
  grep -q "FIRN: this plugin was built for .*$message" "$work/run/error.log" || die "$name: not refused, or without '$message'"
  expect "$name: engines" 0 "$(sql "SELECT COUNT(*) FROM information_schema.engines WHERE engine = 'FIRN'")"
  expect "$name: the server works" 1 "$(sql "SELECT 1")"
  rm -rf "$variant"
  echo "ok: refused, with its reason: $name"
}

[ -f "$plugin" ] || die "$plugin is not there: run make first"
stop
mkdir -p "$work" "$FIRN_BUILD/log"
rm -rf "$work/run"
known_versions
if [ ${#versions[@]} -lt 2 ] && [ "$(id -u)" = 0 ]; then update_lists "to know of other patch levels"; fi
[ ${#versions[@]} -gt 0 ] || die "apt knows no mariadb-server-core $series (apt-get update?)"
if ! download; then
  # The mirror may have replaced a version since its lists were fetched.
  if [ "$(id -u)" = 0 ]; then update_lists "because a package is not there"; fi
  download || die "nothing was tested: apt knows mariadb-server-core ${versions[*]}, and cannot download all of them"
fi

rows=0
for version in "${versions[@]}" "${versions[0]}"; do
  start "$plugin" "$work/$version"
  expect "the running server" "$(upstream_version "$version")" "$(sql "SELECT SUBSTRING_INDEX(VERSION(), '-', 1)")"
  if [ $rows = 0 ]; then
    sql "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v VARCHAR(100), KEY (v)) ENGINE=FIRN"
  fi
  expect "rows under $version" $rows "$(sql "SELECT COUNT(*) FROM d.t")"
  sql "INSERT INTO d.t SELECT $rows + seq, CONCAT('written under ', VERSION()) FROM d.seq_1_to_1000"
  rows=$((rows + 1000))
  expect "rows under $version" $rows "$(sql "SELECT COUNT(*) FROM d.t FORCE INDEX (v) WHERE v LIKE 'written%'")"
  sql "UPDATE d.t SET v = CONCAT(v, '!') WHERE id <= 1000 AND id > 990"
  # LENGTH must not read the value: the plugin analyses the statement without the server's classes.
  sql "CREATE OR REPLACE TABLE d.large (b LONGBLOB) ENGINE=FIRN; INSERT INTO d.large VALUES (REPEAT('x', 300000))"
  expect "LENGTH under $version" 300000 "$(sql "SELECT LENGTH(b) FROM d.large")"
  expect "LENGTH under $version reads" 0 "$(sql "SHOW GLOBAL STATUS LIKE 'Firn_blobs_read'" | cut -f2)"
  expect "characters under $version" 300000 "$(sql "SET sql_mode=ORACLE; SELECT LENGTH(b) FROM d.large")"
  expect "characters under $version read" 1 "$(sql "SHOW GLOBAL STATUS LIKE 'Firn_blobs_read'" | cut -f2)"
  stop
  echo "ok: one plugin, one data directory: $version, $rows rows"
done

refused "another series" gen/mysql_version.h 's/\(MYSQL_VERSION_ID[[:space:]]*\)10[0-9]\{4\}/\1101201/' "its series"
refused "a member more in THD" sql/sql_class.h 's/^  LEX \*lex;/  void *foreign;\n&/' "layout differs at THD::"
refused "a virtual function more in handler" sql/handler.h 's/^  ha_statistics stats;/  virtual void foreign() {}\n&/' \
  "layout differs at the virtual functions of handler"
refused "a member more in TABLE_SHARE" sql/table.h 's/^  CHARSET_INFO \*table_charset;/  void *foreign;\n&/' \
  "layout differs at TABLE::s, TABLE_SHARE"

stop
start "$plugin"
expect "rows after the refusals" $rows "$(sql "SELECT COUNT(*) FROM d.t")"
echo "ok: the plugin that fits finds all $rows rows again"
