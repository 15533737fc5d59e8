#!/usr/bin/env bash
# Puts the plugin where the installed server loads plugins from, and firn.cnf where it reads its options.
#   scripts/install.sh install|uninstall     (DESTDIR=<dir> installs below a directory)
set -euo pipefail
. "$(dirname "$0")/lib.sh"

plugin=$FIRN_BUILD/plugin/ha_firn.so
plugins=${DESTDIR:-}$(server_plugin_dir)
options=${DESTDIR:-}/etc/mysql/mariadb.conf.d

[ -n "${DESTDIR:-}" ] || [ "$(id -u)" = 0 ] || die "make $1 writes to $plugins and $options: run it as root"
case ${1:-} in
  install)
    [ -f "$plugin" ] || die "$plugin is not there: run make first"
    mkdir -p "$plugins" "$options"
    # A new file takes the old one's place at once: a running server keeps what it has loaded.
    install -m 644 "$plugin" "$plugins/ha_firn.so.new"
    mv "$plugins/ha_firn.so.new" "$plugins/ha_firn.so"
    [ -f "$options/firn.cnf" ] || install -m 644 "$FIRN_ROOT/packaging/firn.cnf" "$options/firn.cnf"
    echo "installed $plugins/ha_firn.so and $options/firn.cnf"
    echo "restart the server, or load it now: INSTALL SONAME 'ha_firn'"
    ;;
  uninstall)
    rm -f "$plugins/ha_firn.so" "$options/firn.cnf"
    echo "removed $plugins/ha_firn.so and $options/firn.cnf; FIRN tables stay in the data directory"
    ;;
  *) die "usage: scripts/install.sh install|uninstall" ;;
esac
