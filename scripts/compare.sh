# Sourced by demo.sh and bench-sql.sh: a private server in run/, sysbench's table in InnoDB
# (database demo_innodb) and as a converted copy (database demo_firn), and stock sysbench on either.
# shellcheck shell=bash

rows=${ROWS:-1000000} threads=${THREADS:-4} seconds=${SECONDS_EACH:-15} engine=${ENGINE:-FIRN}
memory=${MEMORY:-512M} # for InnoDB's buffer pool and for FIRN's block cache
dir=$FIRN_ROOT/run
server=$FIRN_ROOT/scripts/server.sh
socket=$("$server" socket --dir="$dir")
mkdir -p "$FIRN_BUILD/log"

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

start_server() {
  local port plugin=$FIRN_BUILD/plugin/ha_firn.so
  [ "$engine" = FIRN ] || plugin=none
  "$server" stop --dir="$dir"
  port=$(free_port)
  say "starting a private MariaDB in $dir (socket, and 127.0.0.1:$port)"
  "$server" start --dir="$dir" --port="$port" --plugin="$plugin" -- --innodb-buffer-pool-size="$memory" \
    --innodb-log-file-size=512M --loose-firn-block-cache-size="$memory"
  sql "SELECT CONCAT('    ', VERSION(), ', ', engine, ': ', comment) FROM information_schema.engines
    WHERE engine = '$engine'"
}

run_sysbench() { # run_sysbench WORKLOAD DATABASE [options]
  local workload=$1 database=$2
  shift 2
  sysbench "$workload" --db-driver=mysql --mysql-socket="$socket" --mysql-user=root --mysql-db="$database" \
    --tables=1 --table-size="$rows" --threads="$threads" "$@"
}

# Shows the stage and percentage that the server reports for an ALTER TABLE of another connection.
watch_alter() {
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

# Drops both tables and creates them anew: sysbench's in InnoDB, and its converted copy.
load_tables() {
  local alter began actual
  sql "DROP DATABASE IF EXISTS demo_innodb; DROP DATABASE IF EXISTS demo_firn;
       CREATE DATABASE demo_innodb; CREATE DATABASE demo_firn"
  say "sysbench prepare: $rows rows as InnoDB"
  threads=1 quietly "$FIRN_BUILD/log/prepare.log" run_sysbench oltp_read_write demo_innodb prepare
  say "copying the table"
  sql "CREATE TABLE demo_firn.sbtest1 LIKE demo_innodb.sbtest1;
       INSERT INTO demo_firn.sbtest1 SELECT * FROM demo_innodb.sbtest1"
  say "ALTER TABLE demo_firn.sbtest1 ENGINE=$engine"
  began=$SECONDS
  sql "ALTER TABLE demo_firn.sbtest1 ENGINE=$engine" &
  alter=$!
  watch_alter $alter
  wait $alter || die "ALTER TABLE failed (log: $dir/error.log)"
  echo "    converted in $((SECONDS - began)) s"
  actual=$(sql "SELECT engine FROM information_schema.tables WHERE table_schema = 'demo_firn'")
  [ "${actual^^}" = "${engine^^}" ] || die "the table is $actual, not $engine"
}

# Transactions per second of a workload. Progress goes to stderr.
per_second() { # per_second WORKLOAD DATABASE NAME
  local log=$FIRN_BUILD/log/sysbench-$1-$2.log
  say "sysbench $1 on $3: $threads threads, $seconds s" >&2
  run_sysbench "$1" "$2" --time="$seconds" --report-interval=5 run 2>&1 | tee "$log" |
    sed -u -n 's/^\[ \([0-9]*s\) \].*\(tps: [0-9.]*\).*/    \1  \2/p' >&2 ||
    die "sysbench failed on $3: $(grep -m 1 FATAL "$log") (log: $dir/error.log)"
  sed -n 's/.*transactions: .*(\([0-9.]*\) per sec.*/\1/p' "$log"
}

mib() { awk -v bytes="$1" 'BEGIN {printf "%.1f MiB", bytes / 1048576}'; }
ratio() { awk -v a="$1" -v b="$2" 'BEGIN {printf "%.2f", a / b}'; }
