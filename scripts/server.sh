#!/usr/bin/env bash
# A private MariaDB: the distribution's mariadbd with its own data directory, socket and plugin
# directory. It never touches the system's server, its data or its configuration.
#
#   scripts/server.sh start  [--dir=DIR] [--port=N] [--plugin=FILE|none] [--no-load] [--base=DIR]
#                            [-- mariadbd options]
#   scripts/server.sh stop   [--dir=DIR]
#   scripts/server.sh status [--dir=DIR]
#   scripts/server.sh socket [--dir=DIR]               prints the path of the socket
#   scripts/server.sh client [--dir=DIR] [-- options]  runs mariadb, connected as root
#
#   --dir=DIR      holds data/, plugin/, error.log (default: run/)
#   --port=N       also listens on 127.0.0.1:N (default 0: only the socket)
#   --plugin=FILE  ha_firn.so to load (default: build/plugin/ha_firn.so)
#   --no-load      installs the plugin without loading it; INSTALL SONAME loads it
#   --base=DIR     uses the server of an unpacked package (DIR/usr/sbin/mariadbd)
set -euo pipefail
. "$(dirname "$0")/lib.sh"

verb=${1:-}
[ $# -gt 0 ] && shift
dir=$FIRN_ROOT/run port=0 plugin=$FIRN_BUILD/plugin/ha_firn.so base= load=yes
while [ $# -gt 0 ]; do
  case $1 in
    --dir=*) dir=${1#*=} ;;
    --port=*) port=${1#*=} ;;
    --plugin=*) plugin=${1#*=} ;;
    --no-load) load=no ;;
    --base=*) base=${1#*=} ;;
    --) shift && break ;;
    *) die "unknown option: $1 (see the head of scripts/server.sh)" ;;
  esac
  shift
done

mkdir -p "$dir" && chmod 700 "$dir"
dir=$(cd "$dir" && pwd)
socket=$dir/mariadb.sock
# A socket's path is limited to 107 characters.
[ ${#socket} -le 100 ] || socket=/tmp/firn-$(printf '%s' "$dir" | cksum | cut -d' ' -f1).sock
pidfile=$dir/mariadbd.pid log=$dir/error.log plugins=$dir/plugin
mariadbd=${base:-}/usr/sbin/mariadbd
client=(mariadb --no-defaults --socket="$socket" --user=root)

# Process id of the server on our data directory, if there is one.
running() {
  local pid
  pid=$(cat "$pidfile" 2>/dev/null) && [ -n "$pid" ] &&
    tr '\0' '\n' <"/proc/$pid/cmdline" 2>/dev/null | grep -qxF -- "--datadir=$dir/data" && echo "$pid"
}

# Links the server's plugins and ours into one directory, because the server loads from only one.
link_plugins() {
  local system
  system=$(server_plugin_dir)
  rm -rf "$plugins"
  mkdir -p "$plugins"
  [ ! -d "$system" ] || find "$system" -maxdepth 1 -name '*.so' ! -name ha_firn.so -exec ln -s -t "$plugins" {} +
  if [ "$plugin" != none ]; then
    [ -f "$plugin" ] || die "$plugin is not there: run make first"
    ln -s "$(realpath "$plugin")" "$plugins/ha_firn.so"
  fi
}

create_data() {
  local scratch=$dir/data.new
  say "creating a data directory: $dir/data"
  rm -rf "$scratch"
  TMPDIR=$dir quietly "$dir/install-db.log" mariadb-install-db --no-defaults --datadir="$scratch" "${user[@]}" \
    --auth-root-authentication-method=normal --skip-test-db --skip-name-resolve --force
  mv "$scratch" "$dir/data"
}

start() {
  local pid options=()
  if pid=$(running); then
    say "the private server runs already (pid $pid)"
    return
  fi
  [ -x "$mariadbd" ] || die "$mariadbd is not there (scripts/deps.sh run)"
  user=()
  [ "$(id -u)" = 0 ] && user=(--user=root)
  [ -d "$dir/data" ] || create_data
  link_plugins
  # Its own TMPDIR: a starting server removes all servers' temporary tables in that directory.
  options+=("${user[@]}" --datadir="$dir/data" --socket="$socket" --pid-file="$pidfile" --log-error="$log"
    --tmpdir="$dir" --plugin-dir="$plugins" --ignore-db-dirs="#firn")
  [ "$plugin" = none ] || [ $load = no ] || options+=(--plugin-load-add=ha_firn)
  [ -n "$base" ] && options+=(--lc-messages-dir="$base/usr/share/mysql"
    --character-sets-dir="$base/usr/share/mysql/charsets")
  if [ "$port" = 0 ]; then options+=(--skip-networking); else options+=(--bind-address=127.0.0.1 --port="$port"); fi
  rm -f "$pidfile"
  setsid "$mariadbd" --no-defaults "${options[@]}" "$@" </dev/null >>"$log" 2>&1 &
  pid=$!
  for ((i = 0; i < 1200; i++)); do
    "${client[@]}" -e 'SELECT 1' >/dev/null 2>&1 && return 0
    if ! kill -0 "$pid" 2>/dev/null; then
      tail -n 20 "$log" >&2
      die "the server did not start (whole log: $log)"
    fi
    sleep 0.1
  done
  die "the server does not answer after two minutes (log: $log)"
}

stop() {
  local pid
  pid=$(running) || return 0
  kill "$pid"
  for ((i = 0; i < 1800; i++)); do
    kill -0 "$pid" 2>/dev/null || return 0
    sleep 0.1
  done
  die "the server (pid $pid) does not stop (log: $log)"
}

case $verb in
  start) start "$@" ;;
  stop) stop ;;
  status) if pid=$(running); then echo "running (pid $pid, socket $socket)"; else echo stopped && exit 1; fi ;;
  socket) echo "$socket" ;;
  client) exec "${client[@]}" "$@" ;;
  *) die "usage: scripts/server.sh start|stop|status|socket|client (see its head)" ;;
esac
