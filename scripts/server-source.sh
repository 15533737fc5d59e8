#!/usr/bin/env bash
# Puts the headers of the server's source into build/server-src, and the headers that the server's
# build generates into build/gen.
#
# An engine is compiled against headers that no package contains, so this script fetches the
# distribution's source package with apt, through a private configuration under build/ (/etc/apt is
# unchanged), from the mirrors that this machine uses anyway. It tries the exact version of the
# installed server first, then the nearest patch level of the same series, because the source of a
# security update is not always available. mariadb/abi_check.cc guards against differences.
#
# MARIADB_SRC=<dir>  uses this server source tree instead (for other servers)
set -euo pipefail
. "$(dirname "$0")/lib.sh"

src=$FIRN_BUILD/server-src
gen=$FIRN_BUILD/gen
private=$FIRN_BUILD/apt-source
generated=/usr/include/mariadb/server # libmariadbd-dev: the headers that the distribution's build made

installed=$(package_version mariadb-server-core)
[ -n "$installed" ] || installed=$(package_version libmariadbd-dev)
wanted="${MARIADB_SRC:-package} $installed"

# Members of the source archive: the files that the compiler needs, and the example engine, which
# the tests of the layout check compile.
members=('*/include' '*/sql' '*/libmariadb/include' '*/wsrep-lib/include' '*/wsrep-lib/wsrep-API/v26'
  '*/storage/example' '*/COPYING')

# Configures apt for source packages, from the mirrors that the machine uses for binary packages.
private_apt() {
  mkdir -p "$private/state/lists/partial" "$private/cache/archives/partial"
  apt-get indextargets --format 'deb-src $(REPO_URI) $(CODENAME) $(COMPONENT) # $(ORIGIN)' 'Created-By: Packages' \
    2>/dev/null | sed -n 's/ # Debian$//p' | sort -u >"$private/sources.list"
  [ -s "$private/sources.list" ] ||
    die "apt knows no Debian package source: run apt-get update, or set MARIADB_SRC to the server's source"
  apt=(-o Dir::Etc::SourceList="$private/sources.list" -o Dir::Etc::SourceParts=-
    -o Dir::State="$private/state" -o Dir::State::Status=/var/lib/dpkg/status -o Dir::Cache="$private/cache"
    -o APT::Sandbox::User="$(id -un)" -o Acquire::Retries=3 -q)
}

# Lists the versions of the same series: the installed one, then by distance of the patch level.
candidates() {
  local package=$1 have series patch
  have=$(upstream_version "$installed")
  series=$(series_of "$have")
  patch=${have##*.}
  apt-cache "${apt[@]}" showsrc "$package" 2>/dev/null | sed -n 's/^Version: //p' | sort -u |
    while read -r version; do
      upstream=$(upstream_version "$version")
      [ "$(series_of "$upstream")" = "$series" ] || continue
      distance=$((${upstream##*.} - patch))
      [ "$version" = "$installed" ] && distance=-0
      echo "${distance#-} $version"
    done | sort -n | cut -d' ' -f2
}

# Leaves the headers in $src.new; fails if no version is available.
fetch() {
  local package version
  package=$(dpkg-query -W -f='${source:Package}' mariadb-server-core 2>/dev/null ||
    dpkg-query -W -f='${source:Package}' libmariadbd-dev)
  say "fetching the list of source packages"
  private_apt
  apt-get "${apt[@]}" update >"$FIRN_BUILD/log/source.log" 2>&1 || return 1
  for version in $(candidates "$package"); do
    say "fetching the source of $package $version (115 MB; only its headers are kept)"
    if (cd "$private" && apt-get "${apt[@]}" source --download-only --tar-only "$package=$version") \
      >>"$FIRN_BUILD/log/source.log" 2>&1; then
      mkdir -p "$src.new"
      tar -xf "$private"/*.orig.tar.* -C "$src.new" --strip-components=1 --wildcards --no-wildcards-match-slash \
        "${members[@]}" || return 1
      find "$src.new/sql" -type f ! -name '*.h' ! -name '*.inl' -delete
      upstream_version "$version" >"$src.new/.version"
      return 0
    fi
    say "not there to fetch: $package $version"
    rm -f "$private"/*.tar.* "$private"/*.dsc
  done
  return 1
}

# A source tree that was configured in place contains its generated headers.
generate() {
  local from=$generated
  [ -n "${MARIADB_SRC:-}" ] && [ -f "$src/include/my_config.h" ] && from=$src/include
  rm -rf "$gen"
  mkdir -p "$gen"
  cp "$from"/{my_config.h,mysql_version.h,mysqld_error.h} "$gen/"
  cp "$src/include/probes_mysql_nodtrace.h.in" "$gen/probes_mysql_nodtrace.h"
}

if [ -f "$gen/.wanted" ] && [ "$(cat "$gen/.wanted")" = "$wanted" ] && [ -f "$src/sql/handler.h" ]; then
  exit 0
fi
mkdir -p "$FIRN_BUILD/log"
rm -rf "$src.new"
if [ -n "${MARIADB_SRC:-}" ]; then
  [ -f "$MARIADB_SRC/sql/handler.h" ] || die "MARIADB_SRC=$MARIADB_SRC is not a server source tree (no sql/handler.h)"
  rm -rf "$src"
  ln -s "$(cd "$MARIADB_SRC" && pwd)" "$src"
else
  [ -n "$installed" ] || die "neither mariadb-server-core nor libmariadbd-dev is installed (scripts/deps.sh build)"
  series=$(series_of "$(upstream_version "$installed")")
  if fetch; then
    rm -rf "$src"
    mv "$src.new" "$src"
  elif [ -f "$src/.version" ] && [ "$(series_of "$(cat "$src/.version")")" = "$series" ]; then
    say "keeping the headers of $(cat "$src/.version"): no other source of $series could be fetched"
  else
    die "no source of the server, series $series, could be fetched (see $FIRN_BUILD/log/source.log);" \
      "MARIADB_SRC=<dir> names a source tree to use instead"
  fi
  rm -rf "$private"
fi
generate
echo "$wanted" >"$gen/.wanted"
