#!/usr/bin/env bash
# Longer runs of tests that `make test` runs for a minute or two: make soak MINUTES=30
#
# Concurrent sessions of real servers run at READ COMMITTED and REPEATABLE READ in parallel, MINUTES
# each, with kills of statements, sessions and servers; twice half of that with optimistic tables.
# Random schedules, statements, ALTERs and foreign keys are compared with InnoDB. Then a primary and
# a replica are killed in turn. Then threads run through the C ABI with pauses and simulated
# crashes, a third of that time. A judge checks the histories (docs/internals/history.md). At last
# a million TRUNCATEs and 100,000 CREATEs and DROPs run through the C ABI, and an invented database
# of 300,000 files is measured (docs/internals/sim.md). SEED repeats a run as far as thread
# scheduling allows.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$FIRN_ROOT"

MINUTES=${MINUTES:-30}
export FIRN_TEST_SEED=${SEED:-$RANDOM}
export FIRN_TEST_HISTORY_SECONDS=$((MINUTES * 60))

scripts/venv.sh tests/requirements.txt
say "sessions of two servers, $MINUTES minutes, seed $FIRN_TEST_SEED"
PATH=$FIRN_ROOT/.venv/bin:$PATH tests/sql/run -n 2 --dist load -rP test_history.py -k "forbids and FIRN"
say "random schedules beside InnoDB, $MINUTES minutes, seed $FIRN_TEST_SEED"
FIRN_TEST_SCHEDULES_SECONDS=$((MINUTES * 60)) PATH=$FIRN_ROOT/.venv/bin:$PATH \
  tests/sql/run -n 1 -rP test_concurrent_differential.py
say "random statements, ALTERs and foreign keys beside InnoDB, $((MINUTES * 20)) seconds each, seed $FIRN_TEST_SEED"
FIRN_TEST_SECONDS=$((MINUTES * 20)) FIRN_TEST_ALTER_SECONDS=$((MINUTES * 20)) FIRN_TEST_ALTER_SEED=$FIRN_TEST_SEED \
  FIRN_TEST_FOREIGN_KEY_SECONDS=$((MINUTES * 20)) PATH=$FIRN_ROOT/.venv/bin:$PATH tests/sql/run -n 2 --dist load -rP -k random \
  test_differential.py test_temporary_tables.py test_alters.py test_foreign_keys_random.py
say "a primary and a replica with parallel apply, killed in turn, 20 rounds, seed $FIRN_TEST_SEED"
FIRN_TEST_REPLICATION_ROUNDS=20 PATH=$FIRN_ROOT/.venv/bin:$PATH tests/sql/run -rP test_replication.py -k kills
say "threads through the C ABI, $((MINUTES * 20)) seconds, seed $FIRN_TEST_SEED"
cargo run --quiet --release -p firn-sim -- concurrent --seconds $((MINUTES * 20)) --seed "$FIRN_TEST_SEED"
say "a million TRUNCATEs, 100,000 CREATEs and DROPs"
# Each of them syncs the log, so their files are in memory.
FIRN_TEST_TRUNCATES=1000000 FIRN_TEST_CREATES=100000 TMPDIR=/dev/shm \
  cargo test --quiet --release -p firn-capi --test many_ddl -- --nocapture
say "300,000 invented files and 10,000 tables"
cargo run --quiet --release -p firn-sim -- scale
