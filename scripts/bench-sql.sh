#!/usr/bin/env bash
# Stock sysbench on InnoDB and on FIRN in one private server, workload by workload: make bench-sql
#
# Environment: WORKLOADS="oltp_point_select ..."  ROWS=1000000  THREADS=8  SECONDS_EACH=15
# MEMORY=512M
set -euo pipefail
THREADS=${THREADS:-8}
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/compare.sh"

read -rd "" -a workloads <<<"${WORKLOADS:-oltp_point_select oltp_read_only oltp_update_index oltp_update_non_index oltp_insert
  oltp_write_only oltp_read_write}" || true

start_server
load_tables
results=()
for workload in "${workloads[@]}"; do
  # After oltp_insert the table is larger, but sysbench still reads only the ids below ROWS.
  innodb=$(per_second "$workload" demo_innodb InnoDB)
  other=$(per_second "$workload" demo_firn "$engine")
  results+=("$(printf '%-24s %12s %12s %8s' "$workload" "$innodb" "$other" "$(ratio "$other" "$innodb")")")
done
"$server" stop --dir="$dir"

echo
printf '%-24s %12s %12s %8s\n' "transactions/s" InnoDB "$engine" ratio
printf '%s\n' "${results[@]}"
echo "$rows rows, $threads threads, $seconds s each, $memory for buffer pool and block cache, durable at every commit."
