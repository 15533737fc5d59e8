//! Counters of a flush or a compaction, and the check that no entry was lost.

use super::drop_rule::{DropDecision, DropReason};
use crate::base::{Error, ErrorKind, Result};
use crate::version::FileMeta;

/// Counters of one flush or compaction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JobStats {
    /// Stored bytes read.
    pub read_bytes: u64,
    /// Stored bytes written.
    pub written_bytes: u64,
    /// The part of `written_bytes` that was copied as stored blocks.
    pub reused_bytes: u64,
    /// Files written.
    pub files_written: u64,
    /// Files written for which tunings were tried and a dictionary was trained.
    pub recipes_tried: u64,
    /// Files written that inherited the recipe of another file.
    pub recipes_inherited: u64,
    /// Entries read.
    pub entries_in: u64,
    /// Entries written.
    pub entries_out: u64,
    /// Entries dropped because a newer version hides them.
    pub shadowed: u64,
    /// Deletions dropped because there is no older version left that they hide.
    pub tombstones: u64,
    /// Entries dropped because their index was dropped.
    pub retired: u64,
}

impl JobStats {
    /// Counts a block that was copied: its entries, and its stored bytes.
    pub(super) fn count_copy(&mut self, entries: u64, stored: u64) {
        self.entries_in += entries;
        self.entries_out += entries;
        self.reused_bytes += stored;
    }

    pub(super) fn count(&mut self, verdict: DropDecision) {
        self.entries_in += 1;
        match verdict {
            DropDecision::Keep(_) => self.entries_out += 1,
            DropDecision::Drop(DropReason::Shadowed) => self.shadowed += 1,
            DropDecision::Drop(DropReason::Tombstone) => self.tombstones += 1,
            DropDecision::Drop(DropReason::Retired) => self.retired += 1,
        }
    }

    /// Sets the totals and checks that each entry that was read is either in `files` or counted as
    /// dropped.
    pub(super) fn finish(&mut self, written: u64, files: &[FileMeta]) -> Result<()> {
        self.written_bytes = written;
        self.files_written = files.len() as u64;
        let in_files: u64 = files.iter().map(|f| f.entries).sum();
        let dropped = self.shadowed + self.tombstones + self.retired;
        if in_files != self.entries_out || self.entries_in != self.entries_out + dropped {
            return Err(lost(&format!("{self:?}, {in_files} in the files")));
        }
        Ok(())
    }
}

pub(super) fn lost(what: &str) -> Error {
    let what = format!("bug: entries of a compaction do not add up: {what}");
    Error::new(ErrorKind::ShutDown, what)
}
