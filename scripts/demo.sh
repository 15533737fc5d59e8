#!/usr/bin/env bash
# The demonstration of `make demo`: a private server in run/, sysbench's table in InnoDB, a copy of
# it converted with ALTER TABLE ... ENGINE=FIRN, the stock oltp_read_write on both, and a table of
# the results.
#
# Environment: ROWS=1000000  THREADS=4  SECONDS_EACH=15  MEMORY=512M  ENGINE=FIRN
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/compare.sh"

# Bytes of InnoDB's table: the size of its tablespace file after the purge has finished.
innodb_bytes() {
  local i
  for ((i = 0; i < 60; i++)); do
    [ "$(sql "SELECT variable_value FROM information_schema.global_status
      WHERE variable_name = 'innodb_history_list_length'")" = 0 ] && break
    sleep 1
  done
  stat -c %s "$dir/data/demo_innodb/sbtest1.ibd"
}

# Bytes of the engine's table: FIRN reports them; for other engines they are those of its files.
engine_bytes() {
  if [ "$engine" = FIRN ]; then
    sql "SELECT SUM(stored_bytes) FROM information_schema.FIRN_TABLES WHERE table_schema = 'demo_firn'"
  else
    du -cb "$dir/data/demo_firn"/sbtest1.* | tail -n 1 | cut -f1
  fi
}

# Bytes of all of FIRN's files except the log.
directory_bytes() {
  find "$dir/data/#firn" -type f ! -iname '*wal*' ! -ipath '*/wal/*' -printf '%s\n' |
    awk '{sum += $1} END {printf "%.0f", sum}'
}

# A number that background work changes: bytes written by FIRN, or the table's size for others.
activity() {
  if [ "$engine" = FIRN ]; then
    sql "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'firn_bytes_written'"
  else
    engine_bytes
  fi
}

# Waits until the background work is finished, that is, until nothing changes for five seconds.
settle() {
  local last=-1 now same=0 i
  for ((i = 0; i < 180 && same < 5; i++)); do
    now=$(activity)
    if [ "$now" = "$last" ]; then same=$((same + 1)); else same=0; fi
    last=$now
    sleep 1
  done
}

began=$SECONDS
start_server
load_tables
say "waiting for background work to settle"
count_innodb=$(sql "SELECT COUNT(*) FROM demo_innodb.sbtest1")
count_engine=$(sql "SELECT COUNT(*) FROM demo_firn.sbtest1")
size_innodb=$(innodb_bytes)
settle
size_engine=$(engine_bytes)
files=
[ "$engine" != FIRN ] || files=$(directory_bytes)
tps_innodb=$(per_second oltp_read_write demo_innodb InnoDB)
tps_engine=$(per_second oltp_read_write demo_firn "$engine")

line=+------------------------+--------------+--------------+
row() { printf '| %-22s | %12s | %12s |\n' "$@"; }
echo
echo $line
row "" InnoDB "$engine"
echo $line
row "rows" "$count_innodb" "$count_engine"
row "bytes on disk" "$(mib "$size_innodb")" "$(mib "$size_engine")"
row "  ratio" 1.00 "$(ratio "$size_engine" "$size_innodb")"
row "oltp_read_write, tx/s" "$tps_innodb" "$tps_engine"
row "  ratio" 1.00 "$(ratio "$tps_engine" "$tps_innodb")"
echo $line
[ -z "$files" ] || echo "All files of FIRN but its log, before the run: $(mib "$files")."
cat <<TEXT
$memory for InnoDB's buffer pool and FIRN's block cache, durable at every commit, $threads threads; $((SECONDS - began)) s.

The server is still running:   mariadb -S $socket -u root demo_firn
To stop it:                    make stop
TEXT
