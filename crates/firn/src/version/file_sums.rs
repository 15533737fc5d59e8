//! Sums over the files of a run, by which picker and estimates need no visit to each file.

use super::{DEAD_SHARES, FileHandle, FileMeta, share_over};
use crate::base::Seqno;
use crate::base::summed_list::{Span, Summed, SummedList};
use std::sync::Arc;

/// The files of a run, ascending by their keys.
pub type FileList = SummedList<Arc<FileHandle>>;

/// Neighbouring files of a run.
pub type FileSpan<'a> = Span<'a, Arc<FileHandle>>;

/// The sum over several files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSums {
    /// Number of files.
    pub files: u64,
    /// Stored bytes.
    pub size: u64,
    /// Entries, deletions included.
    pub entries: u64,
    /// Deletions.
    pub deletes: u64,
    /// Entries with a newer version in the same file.
    pub superseded: u64,
    /// Bytes of keys and values before compression.
    pub raw_bytes: u64,
    /// Bytes of blobs that the entries refer to. Has 128 bits, because the sum over all files may
    /// not fit into 64.
    pub blob_bytes: u128,
    /// Files with entries that refer to blobs.
    pub with_blobs: u64,
    /// Files of which [`FileMeta::has_many_deletions`] is true.
    pub with_many_deletions: u64,
    /// Number of files that were not written with the layout and the codec of the last level.
    pub not_at_rest: u64,
    /// The smallest `min_seqno` of the files; the largest number if there is none.
    pub min_seqno: Seqno,
    /// For each share in [`DEAD_SHARES`]: the smallest `max_seqno` of the files in which a larger
    /// share of the entries is dead ([`FileMeta::droppable_entries_min`]); the largest number if
    /// there is no such file.
    pub dead: [Seqno; DEAD_SHARES.len()],
}

impl Default for FileSums {
    fn default() -> Self {
        Self {
            files: 0,
            size: 0,
            entries: 0,
            deletes: 0,
            superseded: 0,
            raw_bytes: 0,
            blob_bytes: 0,
            with_blobs: 0,
            with_many_deletions: 0,
            not_at_rest: 0,
            min_seqno: Seqno::MAX,
            dead: [Seqno::MAX; DEAD_SHARES.len()],
        }
    }
}

impl FileSums {
    /// The sums of one file.
    pub(super) fn of(file: &FileMeta) -> Self {
        let dead = |percent| match share_over(file.droppable_entries_min(), file.entries, percent) {
            true => file.max_seqno,
            false => Seqno::MAX,
        };
        Self {
            files: 1,
            size: file.size,
            entries: file.entries,
            deletes: file.deletes,
            superseded: file.superseded,
            raw_bytes: file.raw_bytes,
            blob_bytes: u128::from(file.blob_bytes()),
            with_blobs: u64::from(!file.blobs.is_empty()),
            with_many_deletions: u64::from(file.has_many_deletions()),
            not_at_rest: u64::from(!file.at_rest),
            min_seqno: file.min_seqno,
            dead: DEAD_SHARES.map(dead),
        }
    }

    /// Adds `other`.
    pub fn add(&mut self, other: &Self) {
        self.files += other.files;
        self.size = self.size.saturating_add(other.size);
        self.entries = self.entries.saturating_add(other.entries);
        self.deletes = self.deletes.saturating_add(other.deletes);
        self.superseded = self.superseded.saturating_add(other.superseded);
        self.raw_bytes = self.raw_bytes.saturating_add(other.raw_bytes);
        self.blob_bytes += other.blob_bytes;
        self.with_blobs += other.with_blobs;
        self.with_many_deletions += other.with_many_deletions;
        self.not_at_rest += other.not_at_rest;
        self.min_seqno = self.min_seqno.min(other.min_seqno);
        for (own, other) in self.dead.iter_mut().zip(other.dead) {
            *own = (*own).min(other);
        }
    }
}

impl Summed for Arc<FileHandle> {
    type Sum = FileSums;

    fn sum(&self) -> FileSums {
        *self.sums()
    }

    fn join(left: &mut FileSums, right: &FileSums) {
        left.add(right);
    }
}
