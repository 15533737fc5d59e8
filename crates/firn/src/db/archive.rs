//! The archive of the log, and recovery to a point in it.

use super::Db;
use super::background::Work;
use crate::backup::{ArchiverStats, Point};
use crate::base::Result;
use crate::base::events::Severity;
use crate::base::options::Options;
use crate::env::Env;
use crate::write::BinlogPlace;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Work {
    /// Closes the log's segment if that is due, archives what is closed, and lets go of it. Returns how many segments.
    pub(super) fn archive_log(&self) -> Result<u64> {
        let Some(archiver) = &self.archiver else {
            return Ok(0);
        };
        let live = &self.options.live;
        let timeout_us = live.log_archive_timeout_us.load(Ordering::Relaxed);
        if self.health.check().is_ok() && archiver.is_due(timeout_us) {
            let begun = self.pipeline.begin_cut(&|| self.env.monotonic_micros())?;
            self.pipeline.finish_cut(begun)?;
        }
        let archived = archiver.archive()?;
        if archived > 0 {
            self.wal.release_before(self.versions.log_number())?;
        }
        let (now, unused) = self.pipeline.quiet_moment(&|| self.env.wall_micros());
        archiver.note_coverage(now / 1000, unused, timeout_us)?;
        Ok(archived)
    }

    /// The log is closed: its last segment is archived, too, if that is possible now.
    pub(super) fn archive_rest(&self) {
        let Some(archiver) = &self.archiver else {
            return;
        };
        let now = self.env.wall_micros();
        let done = archiver
            .archive()
            .and_then(|_| archiver.note_coverage(now / 1000, true, 0));
        if let Err(error) = done {
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
