#!/usr/bin/env bash
# Checks that UNINSTALL cannot unload the plugin, and that the plugin's undefined symbols exist. The
# linker cannot: a plugin may leave symbols to the server, so a missing function looks like one of
# the server's. Each symbol must be exported by the installed server, or come from a shared library
# (whose symbols have versions).
#   scripts/check-symbols.sh <plugin.so>
set -euo pipefail
. "$(dirname "$0")/lib.sh"

missing=$(comm -23 \
  <(nm -D --undefined-only "$1" | awk '$1 == "U" && $2 !~ /@/ {print $2}' | sort -u) \
  <(nm -D --defined-only /usr/sbin/mariadbd | awk '{print $3}' | sort -u))
[ -z "$missing" ] || die "$1 needs what no server offers: $(c++filt <<<"$missing" | paste -sd';' | cut -c1-600)"

readelf -d "$1" | grep -q 'FLAGS_1.*NODELETE' ||
  die "$1 is not linked with nodelete: threads that end after UNINSTALL would crash"
