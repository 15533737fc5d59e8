#!/usr/bin/env bash
# Installs the plugin into the server's plugin directory, firn.cnf where the server reads its
# options, and the command firn in /usr/local/bin.
#   scripts/install.sh install|uninstall     (DESTDIR=<dir> installs below a directory)
set -euo pipefail
. "$(dirname "$0")/lib.sh"

plugin=$FIRN_BUILD/plugin/ha_firn.so
plugins=${DESTDIR:-}$(server_plugin_dir)
options=${DESTDIR:-}/etc/mysql/mariadb.conf.d
tools=${DESTDIR:-}/usr/local/bin

[ -n "${DESTDIR:-}" ] || [ "$(id -u)" = 0 ] || die "make $1 writes to $plugins, $options and $tools: run it as root"
case ${1:-} in
  install)
    [ -f "$plugin" ] || die "$plugin is not there: run make first"
    mkdir -p "$plugins" "$options" "$tools"
    # Replace the file atomically: a running server keeps the version that it has loaded.
    install -m 644 "$plugin" "$plugins/ha_firn.so.new"
    mv "$plugins/ha_firn.so.new" "$plugins/ha_firn.so"
    [ -f "$options/firn.cnf" ] || install -m 644 "$FIRN_ROOT/packaging/firn.cnf" "$options/firn.cnf"
    install -m 755 "$FIRN_BUILD/bin/firn" "$tools/firn"
    echo "installed $plugins/ha_firn.so, $options/firn.cnf and $tools/firn"
    grep -q '^firn *= *FORCE_PLUS_PERMANENT' "$options/firn.cnf" ||
      echo "$options/firn.cnf is kept as it is: see packaging/firn.cnf for 'firn = FORCE_PLUS_PERMANENT'"
    echo "restart the server; INSTALL SONAME 'ha_firn' loads it at once, for trying out"
    ;;
  uninstall)
    rm -f "$plugins/ha_firn.so" "$tools/firn"
    # As in the package: if the data directory has FIRN tables, the server must not start without
    # FIRN.
    DPKG_ROOT=${DESTDIR:-} sh "$FIRN_ROOT/packaging/postrm" remove
    rm -f "$options/firn.cnf.removed"
    if [ -f "$options/firn.cnf" ]; then
      echo "removed $plugins/ha_firn.so and $tools/firn"
    else
      echo "removed $plugins/ha_firn.so, $options/firn.cnf and $tools/firn"
    fi
    ;;
  *) die "usage: scripts/install.sh install|uninstall" ;;
esac
