#!/usr/bin/env bash
# Benchmarks of the core without a server: scripts/bench.sh kv|budgets|steady
# (make bench, bench-budgets, bench-steady)
#
# kv compares the core with RocksDB and fjall. Environment:
#   KEYS=5m  SECONDS_EACH=15  THREADS=4  BATCH=1   size of the run; BATCH: entries per commit
#   ENGINES="firn rocksdb"                         engines to measure
#   LINES="load-random get"                        lines to measure (an unknown name lists them)
#   FULL=1                                         adds redb, LMDB, YCSB A to F, 20 million keys
#   KEEP=1                                         keeps the databases in DATA_DIR and reuses them
# budgets: ROWS, ROUNDS.  steady: MINUTES=20, KEYS, THREADS, ENGINES.
# Results go to build/bench/kv, build/bench/steady, or OUT.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$FIRN_ROOT"

what=${1:?usage: scripts/bench.sh kv|budgets|steady}
features=()
# RocksDB takes minutes to compile, so it is left out unless a rival engine is measured.
rival() { [ -z "${ENGINES-}" ] || [[ ${ENGINES,,} =~ rocksdb|fjall|redb|lmdb ]]; }
if { [ "$what" = kv ] && rival; } || { [ "$what" = steady ] && [ -n "${ENGINES-}" ] && rival; }; then
  scripts/deps.sh bench
  features=(--features rivals)
  say "building firn-bench and its rivals: RocksDB takes ten minutes or more the first time"
else
  scripts/deps.sh build
  say "building firn-bench"
fi
cargo build --quiet --release --manifest-path crates/firn-bench/Cargo.toml --target-dir "$FIRN_TARGET/bench" "${features[@]}"
exec "$FIRN_TARGET/bench/release/firn-bench" "$what"
