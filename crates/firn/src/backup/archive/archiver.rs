//! Puts closed segments, and what they name, into the archive.

use super::super::files::{copy, link_or_copy};
use super::archived_segments;
use super::identity::{Archiving, Coverage, claim, write_coverage};
use crate::base::events::{Listener, Severity};
use crate::base::{Error, ErrorKind, Result};
use crate::blob::BlobStore;
use crate::env::Env;
use crate::store::{FileKind, PENDING, parse_file_name};
use crate::wal::{ClosedSegment, SegmentId, Wal, segment_name};
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Failures are told that far apart, microseconds.
const TELL_EVERY_US: u64 = 60_000_000;

/// What an archiver works with.
pub struct ArchiverParts {
    /// Where database and archive lie.
    pub env: Arc<dyn Env>,
    /// The database's directory.
    pub dir: PathBuf,
    /// The archive.
    pub archive: PathBuf,
    /// What [`super::begin_archiving`] returned.
    pub archiving: Archiving,
    /// The log.
    pub wal: Arc<Wal>,
    /// Values out of line.
    pub blobs: Arc<BlobStore>,
    /// Hears of failures.
    pub listener: Listener,
}

/// How the archive stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ArchiverStats {
    /// Segments archived since the database was opened.
    pub archived: u64,
    /// Closed segments that wait.
    pub waiting: u64,
    /// Bytes of them.
    pub waiting_bytes: u64,
    /// Attempts that failed.
    pub failures: u64,
}

#[derive(Default)]
struct State {
    /// The next segment to be archived, once the archive was looked at.
    next: Option<SegmentId>,
    archived: u64,
    failures: u64,
    /// When a failure was told, if the last attempt failed.
    told_us: Option<u64>,
    /// The current segment, and since when it is known to be used.
    used_since: Option<(SegmentId, u64)>,
    covered_us: Option<u64>,
}

/// Archives the log of an open database.
pub struct Archiver {
    parts: ArchiverParts,
    /// Held while files are linked and copied. Taken before `state`.
    working: Mutex<()>,
    /// Held for moments only: people ask how it stands.
    state: Mutex<State>,
}

impl Archiver {
    /// An archiver; from here on the log keeps what is not archived.
    pub fn new(parts: ArchiverParts) -> Self {
        parts.wal.keep_from(parts.archiving.from);
        Self {
            parts,
            working: Mutex::default(),
            state: Mutex::default(),
        }
    }

    /// How it stands.
    pub fn stats(&self) -> ArchiverStats {
        let state = self.state.lock();
        let next = state.next.unwrap_or(self.parts.archiving.from);
        let waiting = self.parts.wal.closed_segments(next);
        ArchiverStats {
            archived: state.archived,
            waiting: waiting.len() as u64,
            waiting_bytes: waiting.iter().map(|segment| segment.size).sum(),
            failures: state.failures,
        }
    }

    /// Whether the current segment has been in use for so long that it is to be closed.
    pub fn is_due(&self, timeout_us: u64) -> bool {
        let (wal, now) = (&self.parts.wal, self.parts.env.monotonic_micros());
        let mut state = self.state.lock();
        let current = wal.current_segment();
        if !wal.segment_used() {
            state.used_since = None;
            return false;
        }
        match state.used_since {
            Some((segment, since)) if segment == current => now - since >= timeout_us,
            _ => {
                state.used_since = Some((current, now));
                timeout_us == 0
            }
        }
    }

    /// Archives all segments that are closed. Returns how many.
    ///
    /// # Errors
    /// Of the file system; `AlreadyExists` if the archive is another database's. The log keeps its segments, and the
    /// next call tries again.
    pub fn archive(&self) -> Result<u64> {
        let _one_at_a_time = self.working.lock();
        let parts = &self.parts;
        let next = self.state.lock().next;
        let closed = parts
            .wal
            .closed_segments(next.unwrap_or(parts.archiving.from));
        if closed.is_empty() {
            return Ok(0);
        }
        let before = self.state.lock().archived;
        let done = self.archive_these(&closed);
        let now = parts.env.monotonic_micros();
        let mut state = self.state.lock();
        match &done {
            Ok(()) => {
                if state.told_us.take().is_some() {
                    let message = "the archive of the log is written again";
                    parts.listener.log(Severity::Note, message);
                }
            }
            Err(error) => {
                state.failures += 1;
                if state.told_us.is_none_or(|told| now - told >= TELL_EVERY_US) {
                    state.told_us = Some(now);
                    let message = format!(
                        "the log is not archived in {}, {} segments wait and take room: {error}",
                        parts.archive.display(),
                        closed.len()
                    );
                    parts.listener.log(Severity::Warning, &message);
                }
            }
        }
        done.map(|()| state.archived - before)
    }

    fn archive_these(&self, closed: &[ClosedSegment]) -> Result<()> {
        let ArchiverParts {
            env, archive, wal, ..
        } = &self.parts;
        if !env.exists(archive)? {
            // Not made here: it may be on a file system that is not mounted.
            let message = format!("{}: no such directory", archive.display());
            return Err(Error::new(ErrorKind::NotFound, message));
        }
        claim(&**env, archive, &self.parts.archiving.id)?;
        let last = archived_segments(&**env, archive)?.last().copied();
        let next = (last.unwrap_or(0) + 1).max(self.parts.archiving.from);
        self.state.lock().next = Some(next);
        wal.keep_from(next);
        self.archive_pending()?;
        for segment in closed.iter().filter(|segment| segment.id >= next) {
            self.archive_segment(segment)?;
            let mut state = self.state.lock();
            state.next = Some(segment.id + 1);
            state.archived += 1;
            drop(state);
            wal.keep_from(segment.id + 1);
        }
        Ok(())
    }

    /// Files that the records of all closed segments name; and others, which later ones may.
    fn archive_pending(&self) -> Result<()> {
        let ArchiverParts {
            env, archive, dir, ..
        } = &self.parts;
        let pending = dir.join(PENDING);
        let mut done = Vec::new();
        for name in env.list_dir(&pending)? {
            let Some((kind, id)) = parse_file_name(&name) else {
                continue;
            };
            // Asked first: what is written after the copy must not be missing from it.
            let quiet = kind != FileKind::Blob || self.parts.blobs.is_quiet(id);
            let linked = self.put(&pending, &name, u64::MAX, true)?;
            if linked || quiet {
                done.push(name);
            }
        }
        env.sync_dir(archive)?;
        done.iter()
            .try_for_each(|name| env.remove(&pending.join(name)))
    }

    fn archive_segment(&self, segment: &ClosedSegment) -> Result<()> {
        // A segment closed early is mostly room for nothing.
        let link = segment.end * 2 > segment.size;
        let name = segment_name(segment.id);
        self.put(&self.parts.dir, &name, segment.end, link)?;
        self.parts.env.sync_dir(&self.parts.archive)
    }

    /// Gives a file its place in the archive, whole or not at all. Returns whether it is a second name.
    fn put(&self, from: &Path, name: &str, len: u64, link: bool) -> Result<bool> {
        let ArchiverParts { env, archive, .. } = &self.parts;
        let (from, to) = (from.join(name), archive.join(name));
        let aside = archive.join(format!("{name}.tmp"));
        // What an attempt left that was cut short.
        match env.remove(&aside) {
            Err(error) if *error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let copied = match link {
            true => link_or_copy(&**env, &from, &aside)?,
            false => copy(&**env, &from, &aside, len)?,
        };
        env.rename(&aside, &to)?;
        if env.exists(&aside)? {
            // Two names of one file: renaming one to the other does nothing.
            env.remove(&aside)?;
        }
        Ok(link && copied == 0)
    }

    /// Notes in the archive that everything committed until `until_ms` is there, if that is so: nothing waits, and
    /// `unused`: nothing was appended to the current segment at that time. At most once in so long.
    ///
    /// # Errors
    /// Of the file system.
    pub fn note_coverage(&self, until_ms: u64, unused: bool, every_us: u64) -> Result<()> {
        let ArchiverParts {
            env, archive, wal, ..
        } = &self.parts;
        let _one_at_a_time = self.working.lock();
        let (next, covered_us) = {
            let state = self.state.lock();
            (state.next, state.covered_us)
        };
        let Some(next) = next.filter(|_| unused) else {
            return Ok(());
        };
        let now = env.monotonic_micros();
        let soon = covered_us.is_some_and(|last| now - last < every_us);
        if soon || !wal.closed_segments(next).is_empty() || wal.current_segment() > next {
            return Ok(());
        }
        let segment = next - 1;
        write_coverage(&**env, archive, Coverage { until_ms, segment })?;
        self.state.lock().covered_us = Some(now);
        Ok(())
    }
}
