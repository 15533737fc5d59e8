//! The damaged files of a version: no compaction reads them, or moves data past them.

use super::{Edit, FileHandle, FileMeta, LAST_LEVEL, LEVELS, Version};
use crate::base::Error;
use crate::base::key_range::DisjointRanges;
use std::collections::HashSet;
use std::ops::Bound;
use std::sync::{Arc, OnceLock};

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

/// The damaged files of a version, and what follows from them alone. A version with other damaged
/// files gets another quarantine; all others share it.
#[derive(Debug, Default)]
pub(super) struct Quarantine {
    files: Vec<DamagedFile>,
    ids: HashSet<u64>,
    /// By level, the key ranges of its damaged files.
    ranges: [DisjointRanges; LEVELS],
    /// By level, the key ranges of the damaged files of the level and of the next one.
    blocking: [DisjointRanges; LEVELS],
    /// By level, see [`Version::edges`].
    edges: [Vec<Vec<u8>>; LEVELS],
}

impl Quarantine {
    fn of(files: Vec<DamagedFile>) -> Self {
        let mut all = Self::default();
        for damaged in &files {
            let (level, meta) = (usize::from(damaged.level), &damaged.meta);
            let above = level.saturating_sub(1);
            all.ids.insert(meta.file_id);
            all.ranges[level].add(meta.range());
            all.blocking[level].add(meta.range());
            if above < level {
                all.blocking[above].add(meta.range());
            }
            // The smallest key above `largest` is `largest` with a zero behind it.
            let behind = [&meta.largest[..], &[0]].concat();
            all.edges[above].extend([meta.smallest.clone(), behind]);
        }
        all.edges.iter_mut().for_each(|edges| edges.sort_unstable());
        Self { files, ..all }
    }
}

/// The part of L0 that compactions can work off.
#[derive(Debug, Clone, Copy)]
pub struct MovableL0 {
    /// Runs over one key.
    pub runs: usize,
    /// Stored bytes.
    pub size: u64,
}

/// Sums that take a visit to many files, so they are computed once for a version. A copy of them is
/// empty, because a version is copied in order to change the copy.
#[derive(Debug, Default)]
pub(super) struct MovableSums {
    l0: OnceLock<MovableL0>,
    blocked: OnceLock<[BlockedBytes; LEVELS]>,
}

impl Clone for MovableSums {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Version {
    /// The files in quarantine.
    pub fn quarantine(&self) -> &[DamagedFile] {
        &self.quarantine.files
    }

    /// The part of L0 that compactions can work off, which `measure` computes if it is not known
    /// yet.
    pub fn movable_l0(&self, measure: impl FnOnce() -> MovableL0) -> MovableL0 {
        *self.movable_sums.l0.get_or_init(measure)
    }

    /// The key ranges of the damaged files of `level`, joined where they share a key, ascending.
    pub fn damaged_ranges(&self, level: u8) -> &DisjointRanges {
        &self.quarantine.ranges[usize::from(level)]
    }

    /// The edges of the damaged files over which output of a job into `level` has to stay,
    /// ascending. Files must end there, so that only data over the damage stays, and no neighbour
    /// with it.
    pub fn edges(&self, level: u8) -> &[Vec<u8>] {
        &self.quarantine.edges[usize::from(level)]
    }

    /// Whether the file is in quarantine.
    pub fn in_quarantine(&self, file_id: u64) -> bool {
        self.quarantine.ids.contains(&file_id)
    }

    /// This version with one more file in quarantine. `None` if the version does not have the file,
    /// or has it in quarantine already.
    pub fn with_quarantine(&self, damaged: DamagedFile) -> Option<Self> {
        let file = &damaged.meta;
        if !self.has(damaged.level, file) || self.in_quarantine(file.file_id) {
            return None;
        }
        let all = self.quarantine().iter().cloned().chain([damaged]);
        let mut next = self.clone();
        next.quarantine = Arc::new(Quarantine::of(all.collect()));
        Some(next)
    }

    /// This version without the file in quarantine.
    pub fn without_quarantine(&self, file_id: u64) -> Self {
        let mut next = self.clone();
        let rest = { self.quarantine().iter() }.filter(|d| d.meta.file_id != file_id);
        next.quarantine = Arc::new(Quarantine::of(rest.cloned().collect()));
        next
    }

    /// The files in quarantine that may be readable again, with their levels.
    pub fn unreadable_files(&self) -> Vec<(u8, Arc<FileHandle>)> {
        let unreadable = { self.quarantine().iter() }.filter(|damaged| damaged.unreadable);
        let handle = |damaged: &DamagedFile| {
            let runs = self.runs(damaged.level).iter();
            let mut files = runs.filter_map(|run| run.find(&damaged.meta.smallest));
            let file = files.find(|file| file.file_id == damaged.meta.file_id)?;
            Some((damaged.level, Arc::clone(file)))
        };
        unreadable.filter_map(handle).collect()
    }

    /// Applies `edit` to the quarantine: a removed file leaves it, and a file that the edit adds
    /// again stays in it.
    pub(super) fn edit_quarantine(&mut self, edit: &Edit) {
        if !edit.removed.iter().any(|(_, id)| self.in_quarantine(*id)) {
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
        let left = self.quarantine().iter().filter_map(after).collect();
        self.quarantine = Arc::new(Quarantine::of(left));
    }

    /// The deepest level into which data of L0 may be compacted. It lies above each level that has
    /// a file in quarantine, so that new data over a damaged file can leave L0. Above L1 there is
    /// no such level.
    pub fn base_level_max(&self) -> usize {
        let is_damaged = |level: &usize| !self.quarantine.ranges[*level].as_slice().is_empty();
        let highest = (1..LEVELS).find(is_damaged);
        highest.map_or(LAST_LEVEL, |level| (level - 1).max(1))
    }

    /// Whether no compaction may move this file of `level`, which is not L0: it is in quarantine,
    /// or overlaps a file in quarantine one level further.
    pub fn is_blocked(&self, level: u8, file: &FileMeta) -> bool {
        let blocking = &self.quarantine.blocking[usize::from(level)];
        blocking.find(&file.smallest, &file.largest).is_some()
    }

    /// Bytes of the files of `level`, which is not L0, that are [blocked](Self::is_blocked).
    pub fn blocked(&self, level: u8) -> BlockedBytes {
        let all = self.movable_sums.blocked.get_or_init(|| {
            let mut all = [BlockedBytes::default(); LEVELS];
            (1..LEVELS).for_each(|level| all[level] = self.sum_blocked(level));
            all
        });
        all[usize::from(level)]
    }

    fn sum_blocked(&self, level: usize) -> BlockedBytes {
        let run = &self.levels[level - 1];
        let (mut all, mut from) = (BlockedBytes::default(), 0);
        for range in self.quarantine.blocking[level].as_slice() {
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
