//! The archive of the log, and recovery to a point in it.

use super::Db;
use super::background::Work;
use crate::backup::{Archiver, ArchiverStats, Point};
use crate::base::events::Severity;
use crate::base::options::Options;
use crate::base::{ErrorKind, Result};
use crate::env::Env;
use crate::write::BinlogPlace;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Work {
    /// Archives the segments that are closed, then closes the current one if that is due and archives it, too. Lets go of
    /// what is archived. Returns how many segments.
    ///
    /// What waits goes first: closing a segment takes room for the next one, of which a full disk has none until the log
    /// has let go of some. And while the archive is away no segment is closed early: each would take the room of a full one.
    pub(super) fn archive_log(&self) -> Result<u64> {
        let Some(archiver) = &self.archiver else {
            return Ok(0);
        };
        let live = &self.options.live;
        let timeout_us = live.log_archive_timeout_us.load(Ordering::Relaxed);
        // Asked even if the archive is away: the time counts.
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
        // Some may be archived although others could not be.
        self.wal.release_before(self.versions.log_number())?;
        archived
    }

    fn note_coverage(&self, archiver: &Archiver, every_us: u64) -> Result<()> {
        let (now, unused) = self.pipeline.quiet_moment(&|| self.env.wall_micros());
        // Its millisecond is not over.
        let until_ms = (now / 1000).saturating_sub(1);
        archiver.note_coverage(until_ms, unused, every_us)
    }

    /// The log is closed: its last segment is archived, too, if that is possible now.
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
    /// Archives the segments of the log that are closed, first the current one if it has been in use for so long as
    /// [`crate::base::options::LiveOptions`] say. Returns how many. A thread does it where there are background jobs.
    ///
    /// # Errors
    /// As of [`crate::backup::Archiver::archive`]; the log keeps what is not archived.
    pub fn archive_log(&self) -> Result<u64> {
        self.work.archive_log()
    }

    /// How the archive of the log stands; none if the log is not archived.
    pub fn archive_stats(&self) -> Option<ArchiverStats> {
        self.work.archiver.as_ref().map(|archiver| archiver.stats())
    }

    /// Whether closing has left a thread behind, since the archive did not answer.
    pub fn archive_left(&self) -> bool {
        let archiver = self.work.archiver.as_ref();
        archiver.is_some_and(Archiver::is_left)
    }

    /// The server's binary log ends at `place` before the change of the catalog that comes next.
    pub fn tell_binlog(&self, place: BinlogPlace) {
        self.cx.pipeline.tell_binlog(place);
    }

    /// Opens a backup, behind whose log the segments of an archive lie, up to `point`, which
    /// [`crate::backup::find_point`] has found. Files that the log names must be there. Whatever lies behind the point is
    /// gone on return. Cut short, it leaves a directory that must not be used.
    ///
    /// # Errors
    /// As of [`Self::open`].
    pub fn recover_to(
        env: Arc<dyn Env>,
        dir: &Path,
        options: Options,
        point: Point,
    ) -> Result<Arc<Self>> {
        Self::open_at(env, dir, options, None, Some(point))
    }
}

#[cfg(test)]
mod tests;
