//! What a compaction leaves in the block cache.

use super::plan::Job;
use crate::cache::BlockKey;
use crate::version::Version;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ops::Range;

/// Entries of an output file, by number, that came from cached blocks.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FromCache {
    entries: u64,
    ranges: Vec<Range<u64>>,
    /// The first entry of each block that was copied from a cached one, and the name of that.
    copies: Vec<(u64, BlockKey)>,
}

impl FromCache {
    /// Notes the next entry of the file.
    #[inline]
    pub(super) fn note(&mut self, cached: bool) {
        self.note_many(1, cached);
    }

    /// Notes the next entries of the file: a block copied, from this one in the cache.
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

/// The successors of cached blocks, by output file.
///
/// A compaction fills no cache: most of what it reads nobody asked for. But the blocks that readers
/// had in the cache are named after the input files, and nobody will ask for them any more. So the
/// job notes which entries came from cached blocks, and once its outputs are installed it drops the
/// blocks of the inputs and loads, in their place, the output blocks that took at least half of
/// their entries from them.
///
/// A block that was copied as stored looks as before, decoded: it gets its new name.
///
/// Readers that come before a successor is loaded load it themselves; each block is decoded once
/// either way. Loading costs a read of what was just written and a decompression, on the job's
/// thread.
///
/// The blocks of the inputs go first: a full cache gives newcomers a thirtieth of its room, where
/// successors would push each other out before anybody asks for them. A statement that still reads
/// an older version loads anew what it needs.
///
/// Rejected: keeping the decoded outputs until the install (up to the whole cache a second time);
/// inserting them while the job runs (into a cache still full of inputs, see above); waiting with the
/// inputs until no view pins them (some statement always does, for microseconds).
#[derive(Debug, Default)]
pub struct Handover {
    outputs: Mutex<HashMap<u64, FromCache>>,
}

impl Handover {
    /// An output file is complete.
    pub(super) fn output(&self, file_id: u64, from_cache: FromCache) {
        if !from_cache.ranges.is_empty() {
            self.outputs.lock().insert(file_id, from_cache);
        }
    }

    /// `job` is installed, and `version` or a newer one has its outputs. Errors stay unmentioned:
    /// whoever needs the block meets them.
    pub fn complete(self, job: &Job, version: &Version) {
        let outputs = self.outputs.into_inner();
        let live: HashMap<u64, _> = version.files().map(|(_, f)| (f.file_id, f)).collect();
        let gone: HashMap<u64, _> = job
            .files()
            // Files that were merely moved are live.
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
