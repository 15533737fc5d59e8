#!/usr/bin/env bash
# The Debian package as a server meets it: its contents, its options file, INSTALL SONAME in a stock server.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

server=$FIRN_ROOT/scripts/server.sh
work=$FIRN_BUILD/package-test
sql() { "$server" client --dir="$work/run" -- --batch --skip-column-names -e "$1"; }
stop() { "$server" stop --dir="$work/run"; }
check() { # check WHAT COMMAND...
  local what=$1
  shift
  "$@" || die "not so: $what (log: $work/run/error.log)"
  echo "ok: $what"
}
trap stop EXIT

stop
rm -rf "$work"
mkdir -p "$work"
"$FIRN_ROOT/scripts/package.sh" >"$FIRN_BUILD/log/package.log" || die "no package: $(cat "$FIRN_BUILD/log/package.log")"
deb=$(sed -n 's/^built //p' "$FIRN_BUILD/log/package.log")
dpkg-deb --extract "$deb" "$work/root"
plugin=$work/root$(server_plugin_dir)/ha_firn.so
options=$work/root/etc/mysql/mariadb.conf.d/firn.cnf

patch_level=$(upstream_version "$(package_version mariadb-server-core)")
no_patch_level() { ! dpkg-deb --field "$deb" Depends | grep -qF "$patch_level"; }
check "the package depends on the server's series, on no patch level" no_patch_level
check "the options file is a conffile" grep -qx /etc/mysql/mariadb.conf.d/firn.cnf <(dpkg-deb --ctrl-tarfile "$deb" | tar -xO ./conffiles)

firn_works() {
  sql "CREATE OR REPLACE TABLE $1.t (id INT PRIMARY KEY, v TEXT) ENGINE=FIRN; INSERT INTO $1.t VALUES (1, 'a'), (2, 'b')"
  [ "$(sql "SELECT GROUP_CONCAT(v ORDER BY id) FROM $1.t")" = a,b ]
}
no_database_of_files() { [ -z "$(sql "SHOW DATABASES LIKE '%firn%'")" ]; }

"$server" start --dir="$work/run" --plugin="$plugin" --no-load
sql "CREATE DATABASE installed; INSTALL SONAME 'ha_firn'"
check "INSTALL SONAME in a stock server" firn_works installed
stop

# With what the file proposes in comments switched on, and without loose-, so that an unknown option shows.
sed 's/^#loose-firn/firn/' "$options" >"$work/firn.cnf"
proposals=$(grep -c '^#loose-firn' "$options")
mapfile -t arguments < <(my_print_defaults --defaults-file="$work/firn.cnf" mariadb)
"$server" start --dir="$work/run" --plugin="$plugin" --no-load -- "${arguments[@]}"
check "the options file loads the engine" firn_works installed
proposals_are_defaults() {
  [ "$(sql "SELECT CONCAT(COUNT(*), ' ', SUM(global_value = default_value)) FROM information_schema.system_variables
    WHERE variable_name LIKE 'firn%' AND global_value_origin = 'COMMAND-LINE'")" = "$proposals $proposals" ]
}
check "the proposals of the options file are the defaults" proposals_are_defaults
check "the engine's directory is no database" no_database_of_files

# The command of the package on the directory of the server, running and stopped.
firn=$work/root/usr/bin/firn
refused_while_running() {
  "$firn" check "$work/run/data" 2>"$work/refused" && return 1
  [ $? = 3 ] && grep -q server "$work/refused"
}
check "firn leaves the directory of a running server alone" refused_while_running
stop
check "firn finds the directory of a stopped server sound" "$firn" check "$work/run/data"
shows_the_table() { "$firn" inspect "$work/run/data" | grep -q installed/t; }
check "firn inspect shows its table" shows_the_table
