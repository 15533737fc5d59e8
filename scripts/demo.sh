#!/usr/bin/env bash
# The demonstration behind `make demo`: a private server in run/, sysbench's table in InnoDB, a copy of it converted with
# ALTER TABLE ... ENGINE=FIRN, the stock oltp_read_write on both, and a small table of what came out.
#
# ROWS=1000000  THREADS=4  SECONDS_EACH=15  ENGINE=FIRN  (environment)
set -euo pipefail
. "$(dirname "$0")/lib.sh"

rows=${ROWS:-1000000} threads=${THREADS:-4} seconds=${SECONDS_EACH:-15} engine=${ENGINE:-FIRN}
dir=$FIRN_ROOT/run
server=$FIRN_ROOT/scripts/server.sh
memory=512M # for InnoDB's buffer pool and for FIRN's cache
socket=$("$server" socket --dir="$dir")

sql() { "$server" client --dir="$dir" -- --batch --skip-column-names -e "$1"; }

free_port() {
  local port
  for port in $(seq 13306 13399); do
    if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
      echo "$port"
      return
    fi
  done
  die "no free port from 13306 to 13399"
}

bench() { # bench DATABASE COMMAND [options]
  local database=$1
  shift
  sysbench oltp_read_write --db-driver=mysql --mysql-socket="$socket" --mysql-user=root --mysql-db="$database" \
    --tables=1 --table-size="$rows" --threads="$threads" "$@"
}

# Shows the stage and the percentage that the server reports for a statement which runs in another connection.
watch_progress() {
  local pid=$1 line last=
  while kill -0 "$pid" 2>/dev/null; do
    line=$(sql "SELECT CONCAT('stage ', stage, ' of ', max_stage, ', ', ROUND(progress), ' %') FROM
      information_schema.processlist WHERE info LIKE 'ALTER TABLE%' AND max_stage > 0 LIMIT 1" 2>/dev/null || true)
    if [ -n "$line" ] && [ "$line" != "$last" ]; then
      if [ -t 1 ]; then printf '\r    %-40s' "$line"; else echo "    $line"; fi
      last=$line
    fi
    sleep 0.5
  done
  [ ! -t 1 ] || printf '\r%-50s\r' ''
}

# Bytes of InnoDB's table: its tablespace file, once purge has nothing left to do.
innodb_bytes() {
  local i
  for ((i = 0; i < 60; i++)); do
    [ "$(sql "SELECT variable_value FROM information_schema.global_status
      WHERE variable_name = 'innodb_history_list_length'")" = 0 ] && break
    sleep 1
  done
  stat -c %s "$dir/data/demo_innodb/sbtest1.ibd"
}

# Bytes of the engine's table: its own account for FIRN, its files for any other.
engine_bytes() {
  if [ "$engine" = FIRN ]; then
    sql "SELECT SUM(stored_bytes) FROM information_schema.FIRN_TABLES WHERE table_schema = 'demo_firn'"
  else
    du -cb "$dir/data/demo_firn"/sbtest1.* | tail -n 1 | cut -f1
  fi
}

# All of the engine's files but the log, and what the filesystem holds them in.
engine_directory_bytes() {
  find "$dir/data/#firn" -type f ! -iname '*wal*' ! -ipath '*/wal/*' ! -iname '*.log' -printf '%s\n' 2>/dev/null |
    awk '{sum += $1} END {printf "%.0f", sum}'
}

# Background work ends by itself: the size counts when it has stood still for three seconds.
settled() {
  local last=-1 now same=0 i
  for ((i = 0; i < 90 && same < 3; i++)); do
    now=$(engine_bytes)
    if [ "$now" = "$last" ]; then same=$((same + 1)); else same=0; fi
    last=$now
    sleep 1
  done
  echo "$last"
}

per_second() { # per_second DATABASE NAME
  say "sysbench oltp_read_write on $2: $threads threads, $seconds s" >&2
  bench "$1" --time="$seconds" --report-interval=5 run 2>&1 |
    tee "$FIRN_BUILD/log/sysbench-$1.log" | sed -u -n 's/^\[ \([0-9]*s\) \].*\(tps: [0-9.]*\).*/    \1  \2/p' >&2 ||
    { grep -m 3 FATAL "$FIRN_BUILD/log/sysbench-$1.log" >&2 && die "sysbench failed on $2 (log: $dir/error.log)"; }
  sed -n 's/.*transactions: .*(\([0-9.]*\) per sec.*/\1/p' "$FIRN_BUILD/log/sysbench-$1.log"
}

mib() { awk -v bytes="$1" 'BEGIN {printf "%.1f MiB", bytes / 1048576}'; }

started=$SECONDS
mkdir -p "$FIRN_BUILD/log"
"$server" stop --dir="$dir"
port=$(free_port)
say "starting a private MariaDB in $dir (socket, and 127.0.0.1:$port)"
"$server" start --dir="$dir" --port="$port" -- --innodb-buffer-pool-size=$memory --innodb-log-file-size=512M \
  --loose-firn-block-cache-size=$memory
sql "SELECT CONCAT('    ', VERSION(), ', ', engine, ': ', comment) FROM information_schema.engines WHERE engine = '$engine'"

sql "DROP DATABASE IF EXISTS demo_innodb; DROP DATABASE IF EXISTS demo_firn;
     CREATE DATABASE demo_innodb; CREATE DATABASE demo_firn"
say "sysbench prepare: $rows rows as InnoDB"
quietly "$FIRN_BUILD/log/prepare.log" bench demo_innodb --threads=1 prepare
say "copying the table"
sql "CREATE TABLE demo_firn.sbtest1 LIKE demo_innodb.sbtest1; INSERT INTO demo_firn.sbtest1 SELECT * FROM demo_innodb.sbtest1"

say "ALTER TABLE demo_firn.sbtest1 ENGINE=$engine"
altered=$SECONDS
sql "ALTER TABLE demo_firn.sbtest1 ENGINE=$engine" &
alter=$!
watch_progress $alter
wait $alter || die "ALTER TABLE failed (log: $dir/error.log)"
echo "    converted in $((SECONDS - altered)) s"
actual=$(sql "SELECT engine FROM information_schema.tables WHERE table_schema = 'demo_firn'")
[ "${actual^^}" = "${engine^^}" ] || die "the table is $actual, not $engine"

say "waiting for background work to settle"
count_innodb=$(sql "SELECT COUNT(*) FROM demo_innodb.sbtest1")
count_engine=$(sql "SELECT COUNT(*) FROM demo_firn.sbtest1")
size_innodb=$(innodb_bytes)
size_engine=$(settled)
tps_innodb=$(per_second demo_innodb InnoDB)
tps_engine=$(per_second demo_firn "$engine")

line=+--------------------------+--------------+--------------+
row() { printf '| %-24s | %12s | %12s |\n' "$@"; }
echo
echo $line
row "" InnoDB "$engine"
echo $line
row "rows" "$count_innodb" "$count_engine"
row "bytes on disk" "$(mib "$size_innodb")" "$(mib "$size_engine")"
row "  relative" 1.00 "$(awk -v a="$size_engine" -v b="$size_innodb" 'BEGIN {printf "%.2f", a / b}')"
row "oltp_read_write, tx/s" "$tps_innodb" "$tps_engine"
row "  relative" 1.00 "$(awk -v a="$tps_engine" -v b="$tps_innodb" 'BEGIN {printf "%.2f", a / b}')"
echo $line
[ "$engine" != FIRN ] || echo "All files of FIRN but its log, after the run: $(mib "$(engine_directory_bytes)")."
cat <<TEXT
$memory of memory for each engine, both durable at every commit; $((SECONDS - started)) s in all.

The server is still running:   mariadb -S $socket -u root demo_firn
To stop it:                    make stop
TEXT
