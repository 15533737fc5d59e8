//! The damaged files of a version: no compaction reads them, or moves data past them.

use super::{Edit, FileHandle, FileMeta, LAST_LEVEL, Version};
use crate::base::Error;
use crate::base::key_range::KeyRange;
use std::ops::Bound;
use std::sync::Arc;

/// A file in which a compaction has met damage.
#[derive(Debug, Clone)]
pub struct DamagedFile {
    /// The level of the file.
    pub level: u8,
    /// The file. This is metadata instead of a handle, because a handle would keep a dropped file
    /// on disk.
    pub meta: Arc<FileMeta>,
    /// The damage.
    pub error: Error,
    /// Whether the device could not read the file, which may pass.
    pub unreadable: bool,
}

/// Bytes of files of one level.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BlockedBytes {
    /// Stored bytes of the files.
    pub stored: u64,
    /// Bytes of the blobs to which the files refer.
    pub blobs: u128,
}

impl Version {
    /// The files in quarantine.
    pub fn quarantine(&self) -> &[DamagedFile] {
        &self.quarantine
    }

    /// Whether the file is in quarantine.
    pub fn in_quarantine(&self, file_id: u64) -> bool {
        { self.quarantine.iter() }.any(|damaged| damaged.meta.file_id == file_id)
    }

    /// This version with one more file in quarantine. `None` if the version does not have the file,
    /// or has it in quarantine already.
    pub fn with_quarantine(&self, damaged: DamagedFile) -> Option<Self> {
        let file = &damaged.meta;
        if !self.has(damaged.level, file) || self.in_quarantine(file.file_id) {
            return None;
        }
        let all = self.quarantine.iter().cloned().chain([damaged]);
        let mut next = self.clone();
        next.quarantine = all.collect();
        Some(next)
    }

    /// This version without the file in quarantine.
    pub fn without_quarantine(&self, file_id: u64) -> Self {
        let mut next = self.clone();
        let rest = self.quarantine.iter().filter(|d| d.meta.file_id != file_id);
        next.quarantine = rest.cloned().collect();
        next
    }

    /// The files in quarantine that may be readable again.
    pub fn unreadable_files(&self) -> Vec<Arc<FileHandle>> {
        let unreadable = self.quarantine.iter().filter(|damaged| damaged.unreadable);
        let handle = |damaged: &DamagedFile| {
            let runs = self.runs(damaged.level).iter();
            let mut files = runs.filter_map(|run| run.find(&damaged.meta.smallest));
            files
                .find(|file| file.file_id == damaged.meta.file_id)
                .cloned()
        };
        unreadable.filter_map(handle).collect()
    }

    /// Applies `edit` to the quarantine: a removed file leaves it, and a file that the edit adds
    /// again stays in it.
    pub(super) fn edit_quarantine(&mut self, edit: &Edit) {
        if self.quarantine.is_empty() {
            return;
        }
        let after = |damaged: &DamagedFile| {
            let id = damaged.meta.file_id;
            if !edit.removed.iter().any(|(_, removed)| *removed == id) {
                return Some(damaged.clone());
            }
            let (level, _, meta) = edit.added.iter().find(|(.., meta)| meta.file_id == id)?;
            Some(DamagedFile {
                level: *level,
                meta: Arc::new(meta.clone()),
                ..damaged.clone()
            })
        };
        self.quarantine = self.quarantine.iter().filter_map(after).collect();
    }

    /// The deepest level into which data of L0 may be compacted. It lies above each level that has
    /// a file in quarantine, so that new data over a damaged file can leave L0. Above L1 there is
    /// no such level.
    pub fn base_level_max(&self) -> usize {
        let levels = self.quarantine.iter().map(|d| usize::from(d.level));
        let highest = levels.filter(|level| *level > 0).min();
        highest.map_or(LAST_LEVEL, |level| (level - 1).max(1))
    }

    /// The files in quarantine that block those files of `level` which they overlap: the ones of
    /// the same level, which are the files themselves, and those of the next level.
    fn blocking(&self, level: u8) -> impl Iterator<Item = &DamagedFile> {
        let near = move |damaged: &&DamagedFile| (level..=level + 1).contains(&damaged.level);
        self.quarantine.iter().filter(near)
    }

    /// Whether no compaction may move this file of `level`, which is not L0: it is in quarantine,
    /// or overlaps a file in quarantine one level further.
    pub fn is_blocked(&self, level: u8, file: &FileMeta) -> bool {
        let mut blocking = self.blocking(level);
        blocking.any(|damaged| damaged.meta.overlaps(&file.smallest, &file.largest))
    }

    /// Bytes of the files of `level` that are [blocked](Self::is_blocked).
    pub fn blocked(&self, level: u8) -> BlockedBytes {
        let mut ranges: Vec<KeyRange> = (self.blocking(level))
            .map(|damaged| damaged.meta.range())
            .collect();
        ranges.sort_by(|a, b| a.smallest.cmp(&b.smallest));
        let run = &self.levels[usize::from(level) - 1];
        let (mut all, mut from) = (BlockedBytes::default(), 0);
        for range in ranges {
            let upper = Bound::Included(range.largest.as_slice());
            let over = run.overlapping(&range.smallest, upper).positions();
            // A file that overlaps several ranges counts once.
            let begin = over.start.max(from);
            from = over.end.max(begin);
            let sums = run.files.range(begin..from).sum();
            all.stored += sums.size;
            all.blobs += sums.blob_bytes;
        }
        all
    }
}

#[cfg(test)]
mod tests;
