//! Hands the block cache over from the inputs of a compaction to its outputs.

use super::running_jobs::Job;
use crate::cache::BlockKey;
use crate::version::Version;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ops::Range;

/// The entries of an output file, by ordinal, that came from cached blocks.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FromCache {
    entries: u64,
    ranges: Vec<Range<u64>>,
    /// Ordinal of the first entry of each block copied from a cached block, with that block's cache
    /// key.
    copies: Vec<(u64, BlockKey)>,
}

impl FromCache {
    /// Notes the next entry of the file.
    #[inline]
    pub(super) fn note(&mut self, cached: bool) {
        self.note_many(1, cached);
    }

    /// Notes the next entries of the file: a copied block, with its cache key if it was cached.
    pub(super) fn note_copy(&mut self, entries: u64, from: Option<BlockKey>) {
        self.copies.extend(from.map(|from| (self.entries, from)));
        self.note_many(entries, from.is_some());
    }

    #[inline]
    fn note_many(&mut self, entries: u64, cached: bool) {
        let end = self.entries + entries;
        if cached {
            match self.ranges.last_mut() {
                Some(last) if last.end == self.entries => last.end = end,
                _ => self.ranges.push(self.entries..end),
            }
        }
        self.entries = end;
    }
}

/// Remembers which entries of each output file came from cached blocks.
///
/// A compaction does not fill the cache: readers have not asked for most of what it reads. But the
/// blocks that readers did cache are keyed by the input files, and no read asks for those files any
/// more. So the job notes which entries came from cached blocks. Once its outputs are installed, it
/// drops the cached blocks of the inputs and loads in their stead the output blocks that got at
/// least half of their entries from cached blocks.
///
/// A copied block decodes to the same bytes, so its decoded form is reused under its new key.
///
/// A reader that needs a successor before it is loaded loads it itself; either way each block is
/// decoded once. The cost is one read of freshly written blocks and their decompression, on the
/// job's thread.
///
/// The blocks of the inputs are dropped first. A full cache gives newcomers a small part of its
/// room, where the successors would evict each other before a read needs them. A statement that
/// still reads an older version reloads its blocks.
///
/// Rejected: keeping the decoded outputs until the install (as much memory as the cache once more);
/// inserting them while the job runs (the cache is still full of inputs); keeping the inputs until
/// no view pins them (some statement always does, for microseconds).
#[derive(Debug, Default)]
pub struct CacheHandover {
    outputs: Mutex<HashMap<u64, FromCache>>,
}

impl CacheHandover {
    /// Records a complete output file.
    pub(super) fn output(&self, file_id: u64, from_cache: FromCache) {
        if !from_cache.ranges.is_empty() {
            self.outputs.lock().insert(file_id, from_cache);
        }
    }

    /// Moves the cache to the outputs. Call it once `job` is installed; `version` has its outputs.
    /// Errors are ignored: the next reader of the block hits them.
    pub fn complete(self, job: &Job, version: &Version) {
        let outputs = self.outputs.into_inner();
        let live: HashMap<u64, _> = version.files().map(|(_, f)| (f.file_id, f)).collect();
        let gone: HashMap<u64, _> = job
            .files()
            // A moved file is still live and keeps its blocks.
            .filter(|(_, file)| !live.contains_key(&file.file_id))
            .filter_map(|(_, file)| Some((file.file_id, file.opened()?)))
            .collect();
        let cached = |from: &BlockKey| gone.get(&from.file_id)?.cached_at(from.offset);
        let warm: Vec<_> = outputs
            .into_iter()
            .map(|(file_id, from)| {
                let copies = from.copies.iter();
                let decoded: Vec<_> = copies
                    .filter_map(|(entry, from)| Some((*entry, cached(from)?)))
                    .collect();
                (file_id, from.ranges, decoded)
            })
            .collect();
        for reader in gone.values() {
            let _ = reader.forget_cached();
        }
        for (file_id, entries, decoded) in warm {
            if let Some(file) = live.get(&file_id)
                && let Ok(reader) = file.reader()
            {
                let _ = reader.warm(&entries, decoded);
            }
        }
    }
}

#[cfg(test)]
mod tests;
