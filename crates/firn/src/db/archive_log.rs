//! Moves closed segments of an open database into the log archive, and opens a database that is
//! recovered to a point in time.

use super::background::BackgroundWork;
use super::{Attached, Db, OpenedOn};
use crate::backup::{Archiver, ArchiverStats, RecoveryPoint};
use crate::base::event_listener::Severity;
use crate::base::options::Options;
use crate::base::{ErrorKind, Result};
use crate::env::Env;
use crate::version::Flushable;
use crate::write::OwnedBinlogPosition;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl BackgroundWork {
    /// Archives the closed segments. Then closes the current segment if it has been in use for
    /// [`crate::base::options::MutableOptions::log_archive_timeout_us`], and archives that, too.
    /// Releases the archived segments. Returns the number of segments archived.
    ///
    /// The closed segments are archived first, because closing the current one needs room for the
    /// next, and a full disk has none until the log releases archived segments. While the archive
    /// is unreachable, the current segment is not closed early, because a segment takes the same
    /// room whether it is full or not.
    pub(super) fn archive_log(&self) -> Result<u64> {
        let Some(archiver) = &self.archiver else {
            return Ok(0);
        };
        let mutable = &self.options.mutable;
        let timeout_us = mutable.log_archive_timeout_us.load(Ordering::Relaxed);
        // Call `is_due` even if the archive is unreachable: the time after which a segment is
        // closed counts from the first call for that segment.
        let due = archiver.is_due(timeout_us);
        let mut archived = self.archive_closed(archiver)?;
        if due && self.health.check().is_ok() {
            let begun = self.pipeline.begin_cut(&|| self.env.monotonic_micros());
            let closed = begun.and_then(|begun| self.pipeline.finish_cut(begun));
            closed.inspect_err(|error| archiver.close_failed(error))?;
            archived += self.archive_closed(archiver)?;
        }
        self.note_coverage(archiver, timeout_us)?;
        Ok(archived)
    }

    fn archive_closed(&self, archiver: &Archiver) -> Result<u64> {
        let archived = archiver.archive();
        if archived
            .as_ref()
            .is_err_and(|e| *e.kind() == ErrorKind::ShutDown)
        {
            return archived;
        }
        // Release even after an error: some segments may be archived.
        self.wal.release_before(self.versions.log_number())?;
        archived
    }

    fn note_coverage(&self, archiver: &Archiver, every_us: u64) -> Result<()> {
        let (now, unused) = self.pipeline.quiet_moment(&|| self.env.wall_micros());
        // Let the covered time end before the current millisecond, since more commits may follow
        // within it.
        let until_ms = (now / 1000).saturating_sub(1);
        archiver.note_coverage(until_ms, unused, every_us)
    }

    /// Archives the last segments of the closed log. If that fails, the next open does it.
    pub(super) fn archive_rest(&self) {
        let Some(archiver) = &self.archiver else {
            return;
        };
        let done = archiver
            .archive()
            .and_then(|_| self.note_coverage(archiver, 0));
        if let Err(error) = done
            && *error.kind() != ErrorKind::ShutDown
        {
            let message = format!("the end of the log is archived at the next start: {error}");
            self.options.listener.log(Severity::Warning, &message);
        }
    }
}

impl Db {
    /// Archives the closed log segments, then closes and archives the current one if it has been in
    /// use longer than [`crate::base::options::MutableOptions::log_archive_timeout_us`]. Returns
    /// the number of segments archived. With background jobs, a thread calls this.
    ///
    /// # Errors
    /// Those of [`crate::backup::Archiver::archive`], and `NoSpace` or `Poisoned` of closing the
    /// segment; the log keeps the segments that are not archived.
    pub fn archive_log(&self) -> Result<u64> {
        self.work.archive_log()
    }

    /// State of the log archive; `None` if the log is not archived.
    pub fn archive_stats(&self) -> Option<ArchiverStats> {
        self.work.archiver.as_ref().map(|archiver| archiver.stats())
    }

    /// Records that the server's binary log ends at `place`. The next change of the catalog writes
    /// this to the log.
    pub fn note_binlog_position(&self, place: OwnedBinlogPosition) {
        self.cx.pipeline.note_binlog_position(place);
    }

    /// Opens a restored backup and replays the archived segments that follow its log, up to
    /// `point`, as found by [`crate::backup::find_point`]. The files that the log names must be in
    /// `dir`. On return, no commit behind the point is in the files or in the log. If the recovery
    /// is interrupted, `dir` must not be used. Call [`Self::retire_unknown_indexes`] next.
    ///
    /// # Errors
    /// Those of [`Self::open`].
    pub fn recover_to(
        env: Arc<dyn Env>,
        dir: &Path,
        options: Options,
        point: RecoveryPoint,
    ) -> Result<Arc<Self>> {
        Self::open_at(
            OpenedOn::Env(env, Attached::default()),
            dir,
            options,
            None,
            Some(point),
        )
    }

    /// After a recovery to a point, and before the first transaction: retires the indexes that no
    /// table has and of which files or memtables have entries. If there are any, that is a commit.
    ///
    /// The log that was replayed may say that an index was dropped, and then that nothing has
    /// entries of it any more. That was true of the files of the database that was backed up, but
    /// not of those of the backup, nor of those of loads after it. Without this call nobody would
    /// ever purge these entries.
    ///
    /// # Errors
    /// Those of a commit: `NoSpace`, `Poisoned`, `ShutDown`, `Io`.
    pub fn retire_unknown_indexes(&self) -> Result<()> {
        let found = self.cx.super_versions.pin();
        let in_files = found.version.all_index_stats().map(|stats| stats.index);
        let in_queue = found.frozen.iter().flat_map(Flushable::indexes);
        self.catalog().retire_unknown(in_files.chain(in_queue))
    }
}

#[cfg(test)]
mod tests;
