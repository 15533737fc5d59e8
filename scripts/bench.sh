#!/usr/bin/env bash
# Benchmarks of the core without a server: scripts/bench.sh kv|budgets|steady (make bench, bench-budgets, bench-steady)
#
# kv: the core beside RocksDB and fjall, line by line. In the environment:
#   KEYS=5m  SECONDS_EACH=15  THREADS=4  BATCH=1      size of the run; BATCH is the entries of a commit
#   ENGINES="firn rocksdb"    LINES="load-random get" what to measure (an unknown name lists the names)
#   FULL=1                    redb, LMDB, YCSB A to F and 20 million keys besides
#   KEEP=1                    keep the databases in DATA_DIR, and use those of an earlier run
# budgets: ROWS, ROUNDS.  steady: MINUTES=20, KEYS, THREADS, ENGINES.
# Results: build/bench/kv, build/bench/steady, or OUT.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$FIRN_ROOT"

what=${1:?usage: scripts/bench.sh kv|budgets|steady}
features=()
# RocksDB alone takes minutes to compile, so it is left out where no rival is asked for.
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
