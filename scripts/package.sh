#!/usr/bin/env bash
# Builds build/mariadb-plugin-firn_<version>_<arch>.deb from the plugin and the command firn. The
# package depends on the server's series, never on a patch level: a security update of the server
# must stay possible (mariadb/abi_check.h).
set -euo pipefail
. "$(dirname "$0")/lib.sh"

plugin=$FIRN_BUILD/plugin/ha_firn.so
root=$FIRN_BUILD/deb/mariadb-plugin-firn
[ -f "$plugin" ] || die "$plugin is not there: run make first"

version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$FIRN_ROOT/Cargo.toml")
arch=$(dpkg --print-architecture)
server=$(upstream_version "$(package_version mariadb-server-core)")
series=$(series_of "$server")
next=${series%.*}.$((${series#*.} + 1))
epoch=${SOURCE_DATE_EPOCH:-$(git -C "$FIRN_ROOT" log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH=$epoch
umask 022

rm -rf "$FIRN_BUILD/deb"
doc=$root/usr/share/doc/mariadb-plugin-firn
mkdir -p "$root/DEBIAN" "$root/usr/bin" "$doc" "$root$(server_plugin_dir)" "$root/etc/mysql/mariadb.conf.d" \
  "$root/lib/systemd/system/mariadb.service.d" "$FIRN_BUILD/deb/debian"
install -m 644 "$plugin" "$root$(server_plugin_dir)/ha_firn.so"
strip --strip-unneeded --remove-section=.comment "$root$(server_plugin_dir)/ha_firn.so"
install -m 755 "$FIRN_BUILD/bin/firn" "$root/usr/bin/firn"
strip --strip-unneeded --remove-section=.comment "$root/usr/bin/firn"
install -m 644 "$FIRN_ROOT/packaging/firn.cnf" "$root/etc/mysql/mariadb.conf.d/firn.cnf"
install -m 644 "$FIRN_ROOT/packaging/open-files.conf" "$root/lib/systemd/system/mariadb.service.d/firn.conf"
install -m 644 "$FIRN_ROOT/packaging/copyright" "$doc/copyright"
printf '%s\n' "mariadb-plugin-firn ($version) unstable; urgency=medium" '' "  * Version $version." '' \
  " -- The Firn authors <firn@users.noreply.github.com>  $(LC_ALL=C date -R -u -d "@$epoch")" | gzip -9n >"$doc/changelog.gz"

# Finds the packages with the plugin's shared libraries; the server's symbols are not in a library.
printf 'Source: firn\n\nPackage: mariadb-plugin-firn\nArchitecture: any\n' >"$FIRN_BUILD/deb/debian/control"
below=${root#"$FIRN_BUILD/deb/"}
shlibs=$(cd "$FIRN_BUILD/deb" &&
  dpkg-shlibdeps -O --warnings=0 "$below$(server_plugin_dir)/ha_firn.so" "$below/usr/bin/firn" |
  sed -n 's/^shlibs:Depends=//p')

(cd "$root" && find usr lib -type f | sort | xargs md5sum >DEBIAN/md5sums)
echo /etc/mysql/mariadb.conf.d/firn.cnf >"$root/DEBIAN/conffiles"
install -m 755 "$FIRN_ROOT/packaging/preinst" "$FIRN_ROOT/packaging/postrm" "$root/DEBIAN/"
sed -e "s/@VERSION@/$version/; s/@ARCH@/$arch/; s/@SERIES@/$series/g; s/@NEXT@/$next/; s/@SHLIBS@/$shlibs/" \
  -e "s/@SIZE@/$(du -sk --exclude=DEBIAN "$root" | cut -f1)/" "$FIRN_ROOT/packaging/control" >"$root/DEBIAN/control"

deb=$FIRN_BUILD/mariadb-plugin-firn_${version}_$arch.deb
dpkg-deb --root-owner-group --build "$root" "$deb" >/dev/null
echo "built $deb"
dpkg-deb --info "$deb" | sed -n 's/^ \(Depends:\|Version:\|Installed-Size:\)/  \1/p'
