#!/usr/bin/env bash
# Updates the Python environment .venv to requirements files: scripts/venv.sh <requirements.txt>...
# It is quick if nothing changed.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

venv=$FIRN_ROOT/.venv
wanted=$(cat "$@" | sha256sum | cut -d' ' -f1)
stamp=$venv/.installed-$wanted
[ -f "$stamp" ] && exit 0
if [ ! -x "$venv/bin/pip" ]; then
  say "creating the Python environment .venv"
  rm -rf "$venv"
  quietly "$FIRN_BUILD/log/venv.log" /usr/bin/python3 -m venv "$venv"
fi
say "installing Python packages: $(cat "$@" | sed -n 's/[=<>~! ].*//; /^[A-Za-z]/p' | sort -u | paste -sd' ')"
files=()
for file in "$@"; do files+=(-r "$file"); done
quietly "$FIRN_BUILD/log/pip.log" "$venv/bin/pip" install --quiet --disable-pip-version-check "${files[@]}"
touch "$stamp"
