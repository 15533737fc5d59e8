//! Cache handover: loads the outputs of a compaction into the block cache and the memory pool in
//! place of its inputs.

use super::rate_limiter::RateLimiter;
use super::running_jobs::Job;
use crate::base::BlockResidence;
use crate::cache::BlockKey;
use crate::version::Version;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ops::{Bound, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Records which entries of one output file, by their number in the file, came from blocks in the
/// block cache and from blocks in the memory pool.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FromMemory {
    entries: u64,
    cached: EntryRanges,
    pooled: EntryRanges,
    /// For each block of the file that is a copy of a cached block: the ordinal of its first entry,
    /// and the cache key of the original.
    copies: Vec<(u64, BlockKey)>,
}

/// Ranges of entries, ascending, disjoint and not adjacent.
#[derive(Debug, Default, PartialEq, Eq)]
struct EntryRanges(Vec<Range<u64>>);

impl EntryRanges {
    #[inline]
    fn add(&mut self, entries: Range<u64>) {
        match self.0.last_mut() {
            Some(last) if last.end == entries.start => last.end = entries.end,
            _ => self.0.push(entries),
        }
    }
}

impl FromMemory {
    /// Counts the next entry of the file; `from` says where its block was kept.
    #[inline]
    pub(super) fn note(&mut self, from: BlockResidence) {
        self.note_many(1, from);
    }

    /// Counts the next `entries` entries of the file, which are those of a copied block. `from`
    /// says where the original block was kept, and `key` is its key in the block cache.
    pub(super) fn note_copy(&mut self, entries: u64, from: BlockResidence, key: BlockKey) {
        self.copies
            .extend(from.cached.then_some((self.entries, key)));
        self.note_many(entries, from);
    }

    #[inline]
    fn note_many(&mut self, entries: u64, from: BlockResidence) {
        let end = self.entries + entries;
        if from.cached {
            self.cached.add(self.entries..end);
        }
        if from.pooled {
            self.pooled.add(self.entries..end);
        }
        self.entries = end;
    }

    fn is_empty(&self) -> bool {
        self.cached.0.is_empty() && self.pooled.0.is_empty()
    }
}

/// Records which entries of each output file of a job came from blocks in memory.
///
/// A compaction does not fill the cache with what it reads, because no reader has asked for most of
/// it. But the blocks that readers did ask for are cached under keys of the input files, which
/// nobody reads after the compaction. So the job records which entries came from cached blocks.
/// Once its outputs are installed, it drops the cached blocks of the inputs and loads those blocks
/// of the outputs of which at least half of the entries came from cached blocks.
///
/// A copied block decodes to the same bytes as its original. So the decoded block is taken over
/// under its new key.
///
/// The memory pool gets blocks of the outputs by the same rule. Without that, each compaction would
/// empty it, since the names of its blocks have the id of their file. Blocks go to the pool as they
/// are stored, so they are read once more from the file, at the rate of background work and no
/// faster than the pool takes them. The names of the inputs are deleted at the end.
///
/// A reader that needs a block of an output before the handover has loaded it loads the block
/// itself; either way it is decoded once. The cost of the handover is one read of freshly written
/// blocks and their decompression, on the thread of the job.
///
/// The blocks of the inputs are dropped first. Otherwise the cache would be full, and a full cache
/// gives new blocks only a small part of its space: the blocks of the outputs would evict each
/// other before a read needs them. A statement that still reads an older version must load its
/// blocks again.
///
/// Rejected: keeping the decoded outputs in memory until the install, which takes as much memory as
/// the cache once more; inserting them while the job runs, because the cache is still full of input
/// blocks; keeping the input blocks until no super version pins the inputs, because at any time
/// some statement pins one for microseconds.
#[derive(Debug, Default)]
pub struct CacheHandover {
    outputs: Mutex<HashMap<u64, FromMemory>>,
}

/// What slows a handover down, and what ends it.
#[derive(Clone, Copy)]
pub struct HandoverPace<'a> {
    /// Limits the rate at which blocks for the memory pool are read.
    pub limiter: &'a RateLimiter,
    /// Set when background work is to end.
    pub stopping: &'a AtomicBool,
}

/// How long a handover waits for room among the puts of the memory pool before it tries again.
const POOL_WAIT: Duration = Duration::from_millis(1);
/// Largest number of such waits of a job: a slow node holds no job up for long. Blocks that are
/// left out are put when they are read.
const POOL_WAITS_MAX: u32 = 1000;

impl CacheHandover {
    /// Records which entries of a finished output file came from blocks in memory.
    pub(super) fn output(&self, file_id: u64, from: FromMemory) {
        if !from.is_empty() {
            self.outputs.lock().insert(file_id, from);
        }
    }

    /// Drops the blocks of the inputs from block cache and memory pool, and loads the blocks of the
    /// outputs that are to be there. Call it once the edit of `job` is installed; `version` must
    /// have the outputs. Ignores errors of reading a block: the next reader of the block meets
    /// them.
    pub fn complete(self, job: &Job, version: &Version, pace: &HandoverPace<'_>) {
        let outputs = self.outputs.into_inner();
        // The files of the output level that overlap an input of the job: the outputs that the job
        // has written, and the inputs that it has moved there without rewriting them.
        let mut live: HashMap<u64, _> = HashMap::new();
        for (_, input) in job.files() {
            let upper = Bound::Included(input.largest.as_slice());
            for run in version.runs(job.output_level) {
                let files = run.overlapping(&input.smallest, upper).iter();
                live.extend(files.map(|file| (file.file_id, file)));
            }
        }
        let gone: HashMap<u64, _> = job
            .files()
            // A moved file is still in the tree and keeps its cached blocks.
            .filter(|(_, file)| !live.contains_key(&file.file_id))
            // The reader may have been evicted since the merge. Without it the cached blocks would
            // be lost, so open the file again. If that fails, they are evicted in time.
            .filter_map(|(_, file)| Some((file.file_id, Arc::clone(&*file.reader().ok()?))))
            .collect();
        let cached = |from: &BlockKey| gone.get(&from.file_id)?.cached_at(from.offset);
        let warm: Vec<_> = outputs
            .into_iter()
            .map(|(file_id, from)| {
                let copies = from.copies.iter();
                let decoded: Vec<_> = copies
                    .filter_map(|(entry, from)| Some((*entry, cached(from)?)))
                    .collect();
                (file_id, from.cached.0, decoded, from.pooled.0)
            })
            .collect();
        for reader in gone.values() {
            let _ = reader.forget_cached();
        }
        let is_stopping = || pace.stopping.load(Ordering::Relaxed);
        let mut waits = 0;
        for (file_id, cached, decoded, pooled) in warm {
            if let Some(file) = live.get(&file_id)
                && let Ok(reader) = file.reader()
            {
                let _ = reader.warm(&cached, decoded);
                let has_no_room = || {
                    let waited = waits;
                    waits = (waits + 1).min(POOL_WAITS_MAX);
                    if waited == POOL_WAITS_MAX || is_stopping() {
                        return false;
                    }
                    std::thread::sleep(POOL_WAIT);
                    true
                };
                let has_read = |bytes| pace.limiter.take(bytes, pace.stopping);
                let _ = reader.fill_pool(&pooled, has_read, has_no_room);
            }
            if is_stopping() {
                return;
            }
        }
        // The pool has no use for these names, but they do no harm either, so they go last.
        for reader in gone.values() {
            let _ = reader.forget_pooled();
        }
    }
}

#[cfg(test)]
mod tests;
