//! Moves closed segments, and the files that they name, into the archive.

use super::super::copy_files::{copy, copy_changed, link_or_copy};
use super::archive_identity::{ArchiveIdentity, Coverage, claim, write_coverage};
use super::archived_segments;
use crate::base::event_listener::{Listener, Severity};
use crate::base::{Error, ErrorKind, Result};
use crate::blob::BlobStore;
use crate::env::Env;
use crate::store::{FileKind, PENDING, parse_file_name};
use crate::wal::{ClosedSegment, SegmentId, Wal, fingerprint, segment_name};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// In microseconds: the least time between two reports of a failure, and also the time after which
/// a step counts as slow.
const REPORT_EVERY_US: u64 = 60_000_000;

/// The parts of a database that an archiver needs.
pub struct ArchiverContext {
    /// Environment of database and archive.
    pub env: Arc<dyn Env>,
    /// Directory of the database.
    pub dir: PathBuf,
    /// Directory of the archive.
    pub archive: PathBuf,
    /// The result of [`super::begin_archiving`].
    pub archiving: ArchiveIdentity,
    /// The log.
    pub wal: Arc<Wal>,
    /// The blob files.
    pub blobs: Arc<BlobStore>,
    /// Receives failures.
    pub listener: Listener,
}

/// State of the archive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ArchiverStats {
    /// Segments archived since the database was opened.
    pub archived: u64,
    /// Closed segments that are not archived yet.
    pub waiting: u64,
    /// Size of the waiting segments, bytes.
    pub waiting_bytes: u64,
    /// Failed attempts.
    pub failures: u64,
}

#[derive(Default)]
struct ArchiverState {
    /// Id of the next segment to archive, one above that of the last archived segment; `None` until
    /// the archive's directory was read.
    next: Option<SegmentId>,
    archived: u64,
    failures: u64,
    /// Time of the last report, monotonic microseconds, if the last attempt failed.
    reported_us: Option<u64>,
    /// The id of the current segment, and the time, in monotonic microseconds, at which
    /// [`Archiver::is_due`] first saw that the segment has records.
    used_since: Option<(SegmentId, u64)>,
    covered_us: Option<u64>,
    /// Time at which the running step began, monotonic microseconds; `None` if no step runs, or if
    /// the step was already reported as slow.
    step_us: Option<u64>,
}

/// Copies of files that may still grow, by name, with the checksums of their chunks
/// ([`copy_changed`]).
type Growing = BTreeMap<String, Vec<u64>>;

/// Archives the log of an open database.
///
/// Only the log that wrote an archive continues it, and no copy of that log: the last archived
/// segment must equal the log's segment of that name, group by group. So the log keeps that
/// segment, too. A segment never replaces another one in the archive.
///
/// Locks: `working` for a whole attempt, I/O included; then `state`, for moments.
///
/// An archive on a network file system may stop answering. Then the attempt hangs with `working`
/// held, [`Self::stats`] still answers, and [`Self::leave`] lets the database close.
pub struct Archiver {
    parts: ArchiverContext,
    /// Held for a whole attempt to archive, in which files are linked and copied. A thread that
    /// needs this mutex and the mutex `state` takes this one first.
    working: Mutex<(ArchiveIdentity, Growing)>,
    /// Held for moments only, since status queries read it.
    state: Mutex<ArchiverState>,
    /// Whether the database was closed without waiting for the archive.
    left: AtomicBool,
}

impl Archiver {
    /// A new archiver. From here on the log keeps the segments that are not archived.
    pub fn new(parts: ArchiverContext) -> Self {
        parts.wal.keep_from(parts.archiving.from);
        Self {
            working: Mutex::new((parts.archiving.clone(), Growing::new())),
            parts,
            state: Mutex::default(),
            left: AtomicBool::new(false),
        }
    }

    /// Abandons the archive: a running attempt ends before its next step, without a report, and
    /// later attempts fail with `ShutDown`.
    pub fn leave(&self) {
        self.left.store(true, Ordering::Release);
    }

    /// Whether [`Self::leave`] was called.
    pub fn is_left(&self) -> bool {
        self.left.load(Ordering::Acquire)
    }

    fn check_left(&self) -> Result<()> {
        match self.is_left() {
            true => Err(Error::new(
                ErrorKind::ShutDown,
                "the archive was left to itself",
            )),
            false => Ok(()),
        }
    }

    /// Reports a step that has run for `REPORT_EVERY_US`, once: a network file system may never
    /// answer.
    pub fn watch(&self) {
        let now = self.parts.env.monotonic_micros();
        let mut state = self.state.lock();
        let slow = state
            .step_us
            .take_if(|began| now.saturating_sub(*began) >= REPORT_EVERY_US)
            .is_some();
        if slow {
            let message = format!(
                "the archive of the log in {} does not answer, or takes over a minute for a file; segments wait and take room",
                self.parts.archive.display()
            );
            self.parts.listener.log(Severity::Warning, &message);
        }
    }

    /// Runs `work` on the archive, one caller at a time, and reports its outcome.
    fn attempt(
        &self,
        work: impl FnOnce(&mut ArchiveIdentity, &mut Growing) -> Result<()>,
    ) -> Result<()> {
        self.check_left()?;
        let mut working = self.working.lock();
        let (archiving, growing) = &mut *working;
        let done = self.begin_step().and_then(|()| work(archiving, growing));
        self.state.lock().step_us = None;
        self.check_left()?;
        self.report(&done);
        done
    }

    fn begin_step(&self) -> Result<()> {
        self.state.lock().step_us = Some(self.parts.env.monotonic_micros());
        self.check_left()
    }

    /// State of the archive.
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

    /// Whether the current segment has had records for `timeout_us` microseconds, so that it should
    /// be closed and archived.
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

    /// Archives all closed segments. Returns their number.
    ///
    /// # Errors
    /// `NotFound` if the archive's directory is missing; `AlreadyExists` if the archive is another
    /// log's; `ShutDown` after [`Self::leave`]; `NoSpace`, `Io` and `Corruption` of reading and
    /// writing. The log keeps its segments, and the next call retries.
    pub fn archive(&self) -> Result<u64> {
        let (next, before) = {
            let state = self.state.lock();
            (state.next, state.archived)
        };
        let waits = |next| !self.parts.wal.closed_segments(next).is_empty();
        if !next.is_none_or(waits) {
            return self.check_left().map(|()| 0);
        }
        self.attempt(|archiving, growing| self.archive_closed(archiving, growing))?;
        Ok(self.state.lock().archived - before)
    }

    /// Reports the outcome of an attempt: a failure at most once per [`REPORT_EVERY_US`], and the
    /// first success after it.
    fn report(&self, done: &Result<()>) {
        let ArchiverContext {
            archive, listener, ..
        } = &self.parts;
        let now = self.parts.env.monotonic_micros();
        let waiting = self.stats().waiting;
        let mut state = self.state.lock();
        let Err(error) = done else {
            if state.reported_us.take().is_some() {
                let message = "the archive of the log is written again";
                listener.log(Severity::Note, message);
            }
            return;
        };
        state.failures += 1;
        if state
            .reported_us
            .is_none_or(|reported| now - reported >= REPORT_EVERY_US)
        {
            state.reported_us = Some(now);
            let message = format!(
                "the log is not archived in {}, {waiting} segments wait and take room: {error}",
                archive.display()
            );
            listener.log(Severity::Warning, &message);
        }
    }

    /// Reports that the current segment could not be closed for the archive.
    pub fn close_failed(&self, error: &Error) {
        self.report(&Err(error.clone()));
    }

    fn archive_closed(&self, archiving: &mut ArchiveIdentity, growing: &mut Growing) -> Result<()> {
        let wal = &self.parts.wal;
        let next = self.first_unarchived(archiving)?;
        let closed = wal.closed_segments(next);
        if closed.is_empty() {
            return Ok(());
        }
        self.archive_pending(growing)?;
        for segment in closed {
            self.archive_segment(&segment)?;
            let mut state = self.state.lock();
            state.next = Some(segment.id + 1);
            state.archived += 1;
            drop(state);
            wal.keep_from(segment.id);
        }
        Ok(())
    }

    /// Checks that the archive is present and that this log may continue it. Returns the next
    /// segment to archive.
    fn first_unarchived(&self, archiving: &mut ArchiveIdentity) -> Result<SegmentId> {
        let ArchiverContext {
            env,
            archive,
            dir,
            wal,
            ..
        } = &self.parts;
        if !env.exists(archive)? {
            // Do not create the missing directory: it may be the mount point of a file system that
            // is not mounted.
            let message = format!("{}: no such directory", archive.display());
            return Err(Error::new(ErrorKind::NotFound, message));
        }
        claim(&**env, dir, archive, archiving)?;
        let known = self.state.lock().next;
        let next = match archived_segments(&**env, archive)?.last() {
            Some(&last) if known == Some(last + 1) => return Ok(last + 1),
            Some(&last) => {
                self.require_ours(last)?;
                // Make the segment's name durable: the attempt that created it may have failed
                // before it synced the directory.
                env.sync_dir(archive)?;
                wal.keep_from(last);
                last + 1
            }
            None => known.unwrap_or(archiving.from),
        };
        self.state.lock().next = Some(next);
        Ok(next)
    }

    /// Fails unless this log has a closed segment with the id `last` of the archive's last segment,
    /// and both have the same groups.
    fn require_ours(&self, last: SegmentId) -> Result<()> {
        let ArchiverContext {
            env, archive, dir, ..
        } = &self.parts;
        let name = segment_name(last);
        let same = last < self.parts.wal.closed_before()
            && env.exists(&dir.join(&name))?
            && fingerprint(&**env, dir, last)? == fingerprint(&**env, archive, last)?;
        if same {
            return Ok(());
        }
        let message = format!(
            "{name}, the last one in {}, is not of this log: a copy of the database has gone on with the archive, or this one \
             was set back, or later segments were removed there; a new archive is needed",
            archive.display()
        );
        Err(Error::new(ErrorKind::AlreadyExists, message))
    }

    /// Archives the files in the directory `pending`. The segments that are about to be archived,
    /// or later ones, name these files.
    fn archive_pending(&self, growing: &mut Growing) -> Result<()> {
        let ArchiverContext {
            env, archive, dir, ..
        } = &self.parts;
        let pending = dir.join(PENDING);
        let mut done = Vec::new();
        for name in env.list_dir(&pending)? {
            let Some((kind, id)) = parse_file_name(&name) else {
                continue;
            };
            // Ask whether the file still grows before copying it, not after: bytes that are
            // appended during the copy may be missing in it, and then the file must be copied
            // again.
            let quiet = kind != FileKind::Blob || self.parts.blobs.is_quiet(id);
            let known = growing.remove(&name);
            let (linked, copied) = self.put_pending(&pending.join(&name), &name, known)?;
            match linked || quiet {
                true => done.push(name),
                false => drop(growing.insert(name, copied)),
            }
        }
        env.sync_dir(archive)?;
        done.iter()
            .try_for_each(|name| env.remove(&pending.join(name)))
    }

    /// Links or copies a pending file. If the archive has an earlier copy of a growing file,
    /// updates that copy in place, which is safe because bytes once written never change. Returns
    /// whether the archive has a link to the file; if it has a copy instead, also returns the
    /// checksums of the copy's chunks.
    fn put_pending(
        &self,
        from: &Path,
        name: &str,
        known: Option<Vec<u64>>,
    ) -> Result<(bool, Vec<u64>)> {
        let ArchiverContext { env, archive, .. } = &self.parts;
        let to = archive.join(name);
        if let Some(mut known) = known
            && !known.is_empty()
            && env.exists(&to)?
        {
            self.begin_step()?;
            copy_changed(&**env, from, &to, u64::MAX, &mut known)?;
            return Ok((false, known));
        }
        let (mut linked, mut copied) = (false, Vec::new());
        self.put(name, true, &mut |aside| match env.link(from, aside) {
            Err(error) if *error.kind() == ErrorKind::Unsupported => {
                copy_changed(&**env, from, aside, u64::MAX, &mut copied).map(drop)
            }
            done => {
                linked = done.is_ok();
                done
            }
        })?;
        Ok((linked, copied))
    }

    fn archive_segment(&self, segment: &ClosedSegment) -> Result<()> {
        let ArchiverContext {
            env, archive, dir, ..
        } = &self.parts;
        let name = segment_name(segment.id);
        let from = dir.join(&name);
        // A segment that was closed early is mostly unused space. Copy its used part, because a
        // link would keep the whole segment on disk.
        let link = segment.end * 2 > segment.size;
        self.put(&name, false, &mut |aside| {
            let copied = match link {
                true => link_or_copy(&**env, &from, aside),
                false => copy(&**env, &from, aside, segment.end),
            };
            copied.map(drop)
        })?;
        env.sync_dir(archive)
    }

    /// Makes a file under a temporary name with `make`, then gives it its name in the archive,
    /// atomically. It replaces an existing file only if `replaces`.
    fn put(
        &self,
        name: &str,
        replaces: bool,
        make: &mut dyn FnMut(&Path) -> Result<()>,
    ) -> Result<()> {
        let ArchiverContext { env, archive, .. } = &self.parts;
        let to = archive.join(name);
        let aside = archive.join(format!("{name}.tmp"));
        self.begin_step()?;
        // An interrupted attempt may have left a file of this name.
        self.remove(&aside)?;
        make(&aside).inspect_err(|_| {
            // Remove the incomplete file: it takes room, and a lack of room may be why `make`
            // failed.
            let _ = env.remove(&aside);
        })?;
        self.check_left()?;
        match replaces {
            true => env.rename(&aside, &to)?,
            false => self.rename_new(&aside, &to)?,
        }
        // The temporary name may still exist: `rename_new` links the file and keeps the old name,
        // and POSIX lets `rename` do nothing if the temporary and the final name are links to one
        // file.
        self.remove(&aside)
    }

    /// Renames without replacing. It links the file at `from` as `to`, which fails if that name
    /// exists, and leaves the old name to the caller. Where the file system has no links, it checks
    /// that `to` is free and then renames.
    fn rename_new(&self, from: &Path, to: &Path) -> Result<()> {
        let env = &self.parts.env;
        let Err(error) = env.link(from, to) else {
            return Ok(());
        };
        match error.kind() {
            ErrorKind::Unsupported if !env.exists(to)? => env.rename(from, to),
            ErrorKind::Unsupported | ErrorKind::AlreadyExists => Err(taken(to)),
            _ => Err(error),
        }
    }

    fn remove(&self, path: &Path) -> Result<()> {
        match self.parts.env.remove(path) {
            Err(error) if *error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Records in the archive that it holds all commits up to the time `until_ms`. `unused` says
    /// whether the current segment had no records at that time. Does nothing if it had some, if a
    /// closed segment waits to be archived, or if the last record of this kind was made less than
    /// `every_us` microseconds ago.
    ///
    /// # Errors
    /// Those of [`Self::archive`].
    pub fn note_coverage(&self, until_ms: u64, unused: bool, every_us: u64) -> Result<()> {
        let ArchiverContext {
            env, archive, wal, ..
        } = &self.parts;
        let (next, covered_us) = {
            let state = self.state.lock();
            (state.next, state.covered_us)
        };
        let Some(next) = next else {
            return Ok(());
        };
        let now = env.monotonic_micros();
        let soon = covered_us.is_some_and(|last| now - last < every_us);
        // All records are archived if the current segment has none, or if that segment is archived
        // itself. The latter happens after the log is closed: then `current` is below `next`, the
        // first segment that is not archived. Do not test `current == next` instead of `unused`: a
        // new epoch skips segment ids, so an unused current segment may be far above `next`.
        let current = wal.current_segment();
        let all = current < next || unused;
        // Do nothing either if the log has gone on from segment `next` (`has_left_segment`). That
        // segment is not archived yet, because its last groups may not be durable.
        if soon || !all || wal.has_left_segment(next) {
            return Ok(());
        }
        self.attempt(|archiving, _| {
            // Check first that the archive is still there: it may have become unreachable while
            // there was nothing to archive.
            self.first_unarchived(archiving)?;
            let segment = next - 1;
            write_coverage(&**env, archive, Coverage { until_ms, segment })
        })?;
        self.state.lock().covered_us = Some(now);
        Ok(())
    }
}

fn taken(place: &Path) -> Error {
    let message = format!(
        "{} is there: another log writes to this archive",
        place.display()
    );
    Error::new(ErrorKind::AlreadyExists, message)
}
