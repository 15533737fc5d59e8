# Sourced by the scripts of this folder: common paths and functions.
# shellcheck shell=bash

# A failure within $(...) ends the script, too.
shopt -s inherit_errexit

# A make that a script starts must not join the job server of the make that started the script.
unset MAKEFLAGS MFLAGS MAKELEVEL

FIRN_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export PATH=$PATH:$HOME/.cargo/bin
FIRN_BUILD=${FIRN_BUILD:-$FIRN_ROOT/build}

# The build directory of cargo. Without it, crates/firn-bench, its own workspace, would use another.
FIRN_TARGET=${CARGO_TARGET_DIR:-$FIRN_ROOT/target}

# Announces a step that may take long.
say() { printf '==> %s\n' "$*"; }

# Prints one line with the problem and the remedy, and ends the script.
die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# The version of an installed Debian package; "" if it is not installed.
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

# Runs a command with its output in a log file; if it fails, shows the end of the log.
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
