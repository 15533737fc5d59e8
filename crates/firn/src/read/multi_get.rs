//! Point reads of several keys, which start the reads of all their blocks at the same time.

use super::super_version::SuperVersion;
use crate::base::{InternalKey, Result, Seqno, Value};
use crate::cache::KeyHash;
use crate::env::{PrefetchBatch, ReadClass};

/// Largest number of keys whose blocks are prefetched together.
pub const MULTI_GET_BATCH: usize = 32;

/// Prefetches the blocks that gets of `keys` at `seqno` are about to read: starts all these reads
/// at the same time. Each block of a file is read once; keys found in memory need no block. The
/// keys must be ascending, at most [`MULTI_GET_BATCH`]. Returns the number of blocks.
///
/// This is a hint: it may prefetch too many blocks, and it ignores errors, which the gets will
/// meet.
///
/// # Panics
/// With more than [`MULTI_GET_BATCH`] keys.
pub fn prefetch_blocks(super_version: &SuperVersion, keys: &[&[u8]], seqno: Seqno) -> usize {
    assert!(keys.len() <= MULTI_GET_BATCH);
    let mut hashes = [None; MULTI_GET_BATCH];
    for (hash, key) in hashes.iter_mut().zip(keys) {
        *hash = hash_unless_in_memory(super_version, key, seqno);
    }
    let mut blocks = 0;
    let mut reads = PrefetchBatch::new();
    for run in super_version.runs() {
        let mut last = None;
        for (key, hash) in keys.iter().zip(&hashes) {
            let Some(hash) = *hash else { continue };
            let Some(Ok(reader)) = run.find(key).map(|file| file.reader()) else {
                continue;
            };
            let Some(bytes) = reader.bytes_to_read(key, hash) else {
                continue;
            };
            let place = Some((reader.file_id(), bytes.start));
            if place != last {
                reader.prefetch(bytes, &mut reads);
                blocks += 1;
                last = place;
            }
        }
    }
    reads.start();
    blocks
}

/// The key's hash; `None` if a memtable may have the key, according to its filter, or if the row
/// cache has it.
fn hash_unless_in_memory(
    super_version: &SuperVersion,
    key: &[u8],
    seqno: Seqno,
) -> Option<KeyHash> {
    if super_version
        .memtables()
        .any(|memtable| !memtable.is_empty() && memtable.may_contain(key))
    {
        return None;
    }
    let hash = KeyHash::of(key);
    let rows = &super_version.rows;
    let cached = rows.is_enabled()
        && rows
            .get(hash, key, seqno, super_version.active.id(), |_, _| ())
            .is_some();
    (!cached).then_some(hash)
}

/// Calls `get` with the number of each key in `keys`, in the order of the keys. Before each batch
/// of calls, prefetches the blocks of its keys.
pub fn in_batches(
    super_version: &SuperVersion,
    keys: &[&[u8]],
    seqno: Seqno,
    mut get: impl FnMut(usize),
) {
    let mut order: Vec<usize> = (0..keys.len()).collect();
    order.sort_by_key(|&i| keys[i]);
    for batch in order.chunks(MULTI_GET_BATCH) {
        let mut sorted = [&[][..]; MULTI_GET_BATCH];
        for (key, &i) in sorted.iter_mut().zip(batch) {
            *key = keys[i];
        }
        prefetch_blocks(super_version, &sorted[..batch.len()], seqno);
        batch.iter().for_each(|&i| get(i));
    }
}

/// Runs [`super::get`] for each of `keys`, which may be in any order and repeated. The results are
/// in the order of `keys`. `f` also gets the number of the key. An error concerns its key alone.
pub fn multi_get<R>(
    super_version: &SuperVersion,
    keys: &[&[u8]],
    seqno: Seqno,
    mut f: impl FnMut(usize, InternalKey<'_>, Value<'_>) -> R,
) -> Vec<Result<Option<R>>> {
    let mut results: Vec<_> = keys.iter().map(|_| Ok(None)).collect();
    in_batches(super_version, keys, seqno, |i| {
        results[i] = super::get(super_version, keys[i], seqno, ReadClass::Range, |k, v| {
            f(i, k, v)
        });
    });
    results
}
