# Shared by the scripts of this folder (sourced, never run): where things are and how a script speaks.
# shellcheck shell=bash

# A failure within $(...) ends the script too.
shopt -s inherit_errexit

# A make that a script starts is not part of the one that started the script.
unset MAKEFLAGS MFLAGS MAKELEVEL

FIRN_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export PATH=$PATH:$HOME/.cargo/bin
FIRN_BUILD=${FIRN_BUILD:-$FIRN_ROOT/build}

# Where cargo builds; crates/firn-bench, a workspace of its own, would choose a place of its own.
FIRN_TARGET=${CARGO_TARGET_DIR:-$FIRN_ROOT/target}

# A step that may take long says so before it starts.
say() { printf '==> %s\n' "$*"; }

# One line that says what is wrong and what to do; the script ends.
die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# The version of an installed Debian package ("" when it is not installed).
package_version() {
  local answer
  answer=$(dpkg-query -W -f='${db:Status-Status} ${Version}' "$1" 2>/dev/null) || return 0
  case $answer in "installed "*) printf '%s' "${answer#installed }" ;; esac
}

# 1:10.11.19-0+deb12u1 -> 10.11.19
upstream_version() {
  local version=${1#*:}
  printf '%s' "${version%%-*}"
}

# 10.11.19 -> 10.11
series_of() { printf '%s' "${1%.*}"; }

# Runs a command with its output kept in a log; shows the end of the log when the command fails.
quietly() {
  local log=$1
  shift
  mkdir -p "$(dirname "$log")"
  if ! "$@" >"$log" 2>&1 </dev/null; then
    tail -n 40 "$log" >&2
    die "failed: $* (whole log: $log)"
  fi
}

# The directory from which the installed server loads plugins.
server_plugin_dir() {
  local dir
  dir=$(/usr/sbin/mariadbd --no-defaults --verbose --help 2>/dev/null | awk '$1 == "plugin-dir" {print $2}')
  [ -n "$dir" ] || die "the server does not tell its plugin directory (scripts/deps.sh run)"
  printf '%s' "${dir%/}"
}
