#!/usr/bin/env bash
# Installs the packages that a target needs:
#   scripts/deps.sh build|run|demo|bench|test|mtr|lab|browser|lint|deb
#
# All packages come from the distribution. Only the parts of MariaDB that start no service are
# installed: the binaries are in mariadb-server-core; the init scripts are in mariadb-server, which
# is never requested (make mtr unpacks it, with the packages of the tests, under build/). The tests' memcached is the
# exception: where services run, its own listens on the loopback only. Without permission to install, it prints one line with the missing packages.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

CARGO_MIN=1.88 # the first with let chains

build=(g++ make libc6-dev xz-utils ca-certificates libmariadb-dev libmariadbd-dev mariadb-server-core
  libssl-dev pkg-config)
run=(mariadb-server-core mariadb-client-core)
# RocksDB is compiled from source in its crate, and its bindings need libclang.
bench=(g++ make libc6-dev clang libclang-dev)

packages_of() {
  case $1 in
    build) echo "${build[*]}" ;;
    run) echo "${run[*]}" ;;
    demo) echo "${build[*]} ${run[*]} sysbench" ;;
    bench) echo "${bench[*]}" ;;
    test) echo "${build[*]} ${run[*]} mariadb-client mariadb-backup mydumper sysbench python3-venv dpkg-dev memcached" ;;
    mtr) echo "${build[*]} ${run[*]} mariadb-client perl patch libpcre2-posix3 libaio1 libncurses6" ;;
    lab) echo "${run[*]} sysbench python3-venv memcached" ;;
    browser) echo chromium ;;
    lint) echo "${build[*]} clang-format python3-venv" ;;
    deb) echo "${build[*]} dpkg-dev" ;;
    *) die "unknown group of packages: $1 (build, run, demo, bench, test, mtr, lab, browser, lint or deb)" ;;
  esac
}

missing_of() {
  local package
  # dpkg-query fails if it does not know one of the packages, but still lists the other ones.
  { dpkg-query -W -f='${db:Status-Status} ${Package}\n' "$@" 2>/dev/null || true; } | sed -n 's/^installed //p' >"$have"
  for package in $(printf '%s\n' "$@" | sort -u); do
    grep -qx -- "$package" "$have" || echo "$package"
  done
}

# cargo does not come from apt, because Debian 12 has 1.63; rustup must provide it.
check_cargo() {
  local found
  command -v cargo >/dev/null || die "cargo is missing: install Rust $CARGO_MIN or newer from https://rustup.rs"
  found=$(cargo --version | awk '{print $2}')
  [ "$(printf '%s\n' "$CARGO_MIN" "$found" | sort -V | head -n 1)" = "$CARGO_MIN" ] ||
    die "cargo $found is too old: Rust $CARGO_MIN or newer is needed (rustup update stable)"
}

install_missing() {
  local sudo=()
  if [ "$(id -u)" != 0 ]; then
    sudo=(sudo -n)
    if ! command -v sudo >/dev/null || ! sudo -n true 2>/dev/null; then
      die "install these packages first: apt-get install --no-install-recommends $*"
    fi
  fi
  say "installing packages: $*"
  local apt=("${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 -qq)
  # Package lists may be missing (new machine) or outdated; in either case fetch them and try again.
  if ! "${apt[@]}" install -y --no-install-recommends "$@" </dev/null >"$FIRN_BUILD/log/apt.log" 2>&1; then
    say "fetching the package lists"
    quietly "$FIRN_BUILD/log/apt-update.log" "${apt[@]}" update
    quietly "$FIRN_BUILD/log/apt.log" "${apt[@]}" install -y --no-install-recommends "$@"
  fi
}

[ $# -gt 0 ] || die "usage: scripts/deps.sh build|run|demo|bench|test|mtr|lab|browser|lint|deb"
command -v dpkg-query >/dev/null && command -v apt-get >/dev/null ||
  die "this is not a Debian system: build by hand with MARIADB_SRC=<server source> (see README.md)"
mkdir -p "$FIRN_BUILD/log"
have=$(mktemp)
trap 'rm -f "$have"' EXIT

wanted=()
for group in "$@"; do
  read -ra names <<<"$(packages_of "$group")"
  wanted+=("${names[@]}")
done
mapfile -t missing < <(missing_of "${wanted[@]}")
[ ${#missing[@]} = 0 ] || install_missing "${missing[@]}"
case " $* " in *" run "* | *" lab "* | *" browser "*) ;; *) check_cargo ;; esac
