#!/usr/bin/env bash
# Tests the Debian package: its contents, its options file, INSTALL SONAME in a stock server.
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

# With the real options file the server has the engine, and does not start without it.
mapfile -t required < <(my_print_defaults --defaults-file="$options" mariadb)
"$server" start --dir="$work/run" --plugin="$plugin" --no-load -- "${required[@]}"
check "the options file loads the engine for good" firn_works installed
stays() { ! sql "UNINSTALL SONAME 'ha_firn'" 2>/dev/null && firn_works installed; }
check "it cannot be unloaded then" stays
stop
ends_without() { ! "$server" start --dir="$work/run" --plugin=none -- "${required[@]}" >"$work/without" 2>&1; }
check "with the options file the server does not start without the library" ends_without

# Enable the options that the file has as comments, without loose-, so that an unknown one fails.
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

# Run the package's command on the directory of the server, both running and stopped.
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

# Install, remove and purge the package with dpkg in a directory of its own.
root=$work/dpkg
mkdir -p "$root/var/lib/dpkg/info" "$root/var/lib/dpkg/updates" "$root/etc/mysql" "$root/var/lib/mysql"
: >"$root/var/lib/dpkg/status"
printf '[mariadb]\ndatadir = /srv/data\n' >"$root/etc/mysql/my.cnf"
conf=$root/etc/mysql/mariadb.conf.d/firn.cnf
package() { dpkg --root="$root" --force-not-root --force-script-chrootless --force-depends --log=/dev/null "$@" >"$work/dpkg.log" 2>&1; }
installed() { package --install "$deb" && [ -f "$conf" ]; }
check "dpkg installs the package" installed
echo '# changed here' >>"$conf"
removed_with_options() { package --remove mariadb-plugin-firn && [ ! -e "$conf" ]; }
check "removing it takes the options file away" removed_with_options
back() { installed && grep -q 'changed here' "$conf"; }
check "installing it again brings the changed options file back" back
mkdir -p "$root/srv/data/#firn"
removed_without_options() { package --remove mariadb-plugin-firn && [ -f "$conf" ] && grep -q stays "$work/dpkg.log"; }
check "with FIRN tables in the data directory the options file stays" removed_without_options
rm -r "${root:?}/srv"
purged() { installed && removed_with_options && package --purge mariadb-plugin-firn && [ -z "$(find "$root/etc" -name 'firn.cnf*')" ]; }
check "purging it leaves nothing" purged
