//! Limits the size of the log that a recovery would replay to `max_wal_size`.
//!
//! Two things keep log segments: memtables, which are frozen when the log from their first segment
//! on reaches half of the limit ([`crate::write::Pipeline`]), and prepared transactions, which this
//! module logs again at the end of the log. An unreachable log archive and a checkpoint in progress
//! keep segments, too, but a recovery does not replay these.

use super::Db;
use super::background::BackgroundWork;
use crate::base::Result;
use crate::base::health::FullDisk;
use std::sync::atomic::Ordering;

/// The limit is raised to this many times the size of the prepare records of all prepared
/// transactions, if it is smaller. Otherwise writing them again could take more log than it
/// releases.
const PREPARED_SHARE: u64 = 4;

impl BackgroundWork {
    /// If prepared transactions keep more log than half of the limit from being released, writes
    /// them again at the end of the log. Returns their number.
    pub(super) fn bound_log(&self) -> Result<u64> {
        let Some((floor, prepared_bytes)) = self.pipeline.prepared_log() else {
            return Ok(0);
        };
        // Do nothing on a full disk: to log the prepared transactions again takes room before the
        // old segments can be released.
        if self.health.is_full(Some(FullDisk::Log)) {
            return Ok(0);
        }
        let limit = self.options.mutable.max_wal_size.load(Ordering::Relaxed);
        let limit = limit.max(prepared_bytes.saturating_mul(PREPARED_SHARE));
        if self.wal.bytes_from(floor) <= limit / 2 {
            return Ok(0);
        }
        self.pipeline.relog_prepared(self.wal.current_segment())
    }
}

impl Db {
    /// If prepared transactions keep more log than half of `max_wal_size` from being released,
    /// writes them again at the end of the log. Returns their number. With background jobs, a
    /// thread calls this once a second.
    ///
    /// # Errors
    /// Those of the log: `NoSpace`, `NoDescriptor`, `Poisoned`. The transactions then keep the same
    /// segments as before.
    pub fn bound_log(&self) -> Result<u64> {
        self.work.bound_log()
    }
}

#[cfg(test)]
mod tests;
