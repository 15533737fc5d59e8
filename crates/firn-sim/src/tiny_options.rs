//! Options so small that flushes, compactions, spills and evictions happen all the time.

use firn::base::options::{CommitDurability, MutableOptions, Options};
use rand::Rng;
use rand::rngs::StdRng;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Returns true with a probability of `percent`.
pub fn chance(rng: &mut StdRng, percent: u32) -> bool {
    rng.random_range(0..100) < percent
}

/// Returns a random element of `all`.
pub fn one_of<T: Copy>(rng: &mut StdRng, all: &[T]) -> T {
    all[rng.random_range(0..all.len())]
}

/// Random small options without background threads: the caller flushes and compacts itself.
pub fn tiny(rng: &mut StdRng, flush_mode: CommitDurability) -> Options {
    let mutable = MutableOptions::default();
    mutable.set_commit_durability(flush_mode);
    let memtable_size = one_of(rng, &[1 << 10, 4 << 10, 16 << 10]);
    mutable
        .memtable_size
        .store(memtable_size, Ordering::Relaxed);
    // Most transactions with more than a few writes spill.
    let txn_limit = one_of(rng, &[0, 512, 4 << 10, 1 << 20]);
    mutable.txn_memory_limit.store(txn_limit, Ordering::Relaxed);
    let mut options = Options {
        mutable: Arc::new(mutable),
        block_cache_size: one_of(rng, &[0, 8 << 10, 1 << 20]),
        row_cache_size: one_of(rng, &[0, 4 << 10, 256 << 10]),
        wal_segment_size: one_of(rng, &[3, 4, 16]) * 4096,
        wal_syncs_in_flight: rng.random_range(1..=4),
        block_size: one_of(rng, &[64, 256, 1024, 4096]),
        target_file_size: one_of(rng, &[512, 2 << 10, 8 << 10]),
        l0_compaction_runs: rng.random_range(1..=4),
        base_level_size: one_of(rng, &[1 << 10, 4 << 10, 16 << 10]),
        background_jobs: 0,
        ..Options::default()
    };
    // Draw these options from a copy of the generator. The generator itself then gives the same
    // numbers to the random work as before these options existed, so old seeds still give the same
    // runs.
    let rng_of_blobs = &mut rng.clone();
    let threshold = one_of(rng_of_blobs, &[16, 16, 64, 1000]);
    options
        .mutable
        .blob_threshold
        .store(threshold, Ordering::Relaxed);
    options.blob_file_size = one_of(rng_of_blobs, &[4 << 10, 32 << 10, 256 << 10]);
    options.blob_garbage_min = one_of(rng_of_blobs, &[256, 4 << 10]);
    // Draw these options from another copy of the random generator, for the same reason. The memory
    // limit is not so small that frozen memtables alone reach it: without background threads, a
    // writer that the stall gate stops would wait forever.
    let mut copy = rng.clone();
    let memory_limit = one_of(&mut copy, &[0, 2 << 20, 8 << 20]);
    options.lock_merge_rows = one_of(&mut copy, &[0, 1, 2, 5, 4096]);
    let max_wal_size = one_of(&mut copy, &[64 << 10, 256 << 10, 1 << 30]);
    let mutable = &options.mutable;
    mutable.memory_limit.store(memory_limit, Ordering::Relaxed);
    mutable.max_wal_size.store(max_wal_size, Ordering::Relaxed);
    options
}
