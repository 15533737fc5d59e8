//! What a compaction leaves in the block cache.

use super::plan::Job;
use crate::version::Version;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ops::Range;

/// Entries of an output file, by number, that came from cached blocks.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FromCache {
    entries: u64,
    ranges: Vec<Range<u64>>,
}

impl FromCache {
    /// Notes the next entry of the file.
    #[inline]
    pub(super) fn note(&mut self, cached: bool) {
        if cached {
            match self.ranges.last_mut() {
                Some(last) if last.end == self.entries => last.end += 1,
                _ => self.ranges.push(self.entries..self.entries + 1),
            }
        }
        self.entries += 1;
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
    outputs: Mutex<HashMap<u64, Vec<Range<u64>>>>,
}

impl Handover {
    /// An output file is complete.
    pub(super) fn output(&self, file_id: u64, from_cache: FromCache) {
        if !from_cache.ranges.is_empty() {
            self.outputs.lock().insert(file_id, from_cache.ranges);
        }
    }

    /// `job` is installed, and `version` or a newer one has its outputs. Errors stay unmentioned:
    /// whoever needs the block meets them.
    pub fn complete(self, job: &Job, version: &Version) {
        let outputs = self.outputs.into_inner();
        let live: HashMap<u64, _> = version.files().map(|(_, f)| (f.file_id, f)).collect();
        for (_, file) in job.files() {
            // Files that were merely moved are live.
            if !live.contains_key(&file.file_id)
                && let Some(reader) = file.opened()
            {
                let _ = reader.forget_cached();
            }
        }
        for (file_id, entries) in &outputs {
            if let Some(file) = live.get(file_id)
                && let Ok(reader) = file.reader()
            {
                let _ = reader.warm(entries);
            }
        }
    }
}

#[cfg(test)]
mod tests;
