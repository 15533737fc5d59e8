//! Puts closed segments, and what they name, into the archive.

use super::super::files::{copy, copy_changed, link_or_copy};
use super::archived_segments;
use super::identity::{Archiving, Coverage, claim, write_coverage};
use crate::base::events::{Listener, Severity};
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
    /// The next segment to be archived, once the archive was looked at: its last one is that before.
    next: Option<SegmentId>,
    archived: u64,
    failures: u64,
    /// When a failure was told, if the last attempt failed.
    told_us: Option<u64>,
    /// The current segment, and since when it is known to be used.
    used_since: Option<(SegmentId, u64)>,
    covered_us: Option<u64>,
    /// When the step began that is under way, unless it was told that it takes long.
    step_us: Option<u64>,
}

/// Copies of files that may still grow, and the checksums of what they have ([`copy_changed`]).
type Growing = BTreeMap<String, Vec<u64>>;

/// Archives the log of an open database.
///
/// An archive is continued by the log that wrote it, and by no copy of it: the last segment in the archive must be the one
/// that the log has under this name, group by group. So the log keeps that one, too; and a segment never replaces another.
pub struct Archiver {
    parts: ArchiverParts,
    /// Held while files are linked and copied. Taken before `state`.
    working: Mutex<(Archiving, Growing)>,
    /// Held for moments only: people ask how it stands.
    state: Mutex<State>,
    /// The archive did not answer, and the database is closed without it.
    left: AtomicBool,
}

impl Archiver {
    /// An archiver; from here on the log keeps what is not archived.
    pub fn new(parts: ArchiverParts) -> Self {
        parts.wal.keep_from(parts.archiving.from);
        Self {
            working: Mutex::new((parts.archiving.clone(), Growing::new())),
            parts,
            state: Mutex::default(),
            left: AtomicBool::new(false),
        }
    }

    /// Nobody waits for the archive any more: whatever is under way ends before its next step, and says nothing.
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

    /// Says so, once, if a step has taken long: a file system of others may never answer.
    pub fn watch(&self) {
        let now = self.parts.env.monotonic_micros();
        let mut state = self.state.lock();
        let slow = state
            .step_us
            .take_if(|began| now - *began >= TELL_EVERY_US)
            .is_some();
        if slow {
            let message = format!(
                "the archive of the log in {} does not answer, or takes over a minute for a file; segments wait and take room",
                self.parts.archive.display()
            );
            self.parts.listener.log(Severity::Warning, &message);
        }
    }

    /// Does something with the archive, one at a time, and tells what it came to.
    fn attempt(&self, work: impl FnOnce(&mut Archiving, &mut Growing) -> Result<()>) -> Result<()> {
        self.check_left()?;
        let mut working = self.working.lock();
        let (archiving, growing) = &mut *working;
        let done = self.begin_step().and_then(|()| work(archiving, growing));
        self.state.lock().step_us = None;
        self.check_left()?;
        self.tell(&done);
        done
    }

    fn begin_step(&self) -> Result<()> {
        self.state.lock().step_us = Some(self.parts.env.monotonic_micros());
        self.check_left()
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
    /// Of the file system; `AlreadyExists` if the archive is another log's; `NotFound` if it is not there. The log keeps
    /// its segments, and the next call tries again.
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

    /// What came of something: that the log is not archived is told once in a while, and that it is again.
    fn tell(&self, done: &Result<()>) {
        let ArchiverParts {
            archive, listener, ..
        } = &self.parts;
        let now = self.parts.env.monotonic_micros();
        let waiting = self.stats().waiting;
        let mut state = self.state.lock();
        let Err(error) = done else {
            if state.told_us.take().is_some() {
                let message = "the archive of the log is written again";
                listener.log(Severity::Note, message);
            }
            return;
        };
        state.failures += 1;
        if state.told_us.is_none_or(|told| now - told >= TELL_EVERY_US) {
            state.told_us = Some(now);
            let message = format!(
                "the log is not archived in {}, {waiting} segments wait and take room: {error}",
                archive.display()
            );
            listener.log(Severity::Warning, &message);
        }
    }

    /// The current segment was to be closed for the archive, and could not be.
    pub fn close_failed(&self, error: &Error) {
        self.tell(&Err(error.clone()));
    }

    fn archive_closed(&self, archiving: &mut Archiving, growing: &mut Growing) -> Result<()> {
        let wal = &self.parts.wal;
        let next = self.look(archiving)?;
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

    /// Makes sure that the archive is there and that this log goes on with it. Returns the next segment.
    fn look(&self, archiving: &mut Archiving) -> Result<SegmentId> {
        let ArchiverParts {
            env,
            archive,
            dir,
            wal,
            ..
        } = &self.parts;
        if !env.exists(archive)? {
            // Not made here: it may be on a file system that is not mounted.
            let message = format!("{}: no such directory", archive.display());
            return Err(Error::new(ErrorKind::NotFound, message));
        }
        claim(&**env, dir, archive, archiving)?;
        let known = self.state.lock().next;
        let next = match archived_segments(&**env, archive)?.last() {
            Some(&last) if known == Some(last + 1) => return Ok(last + 1),
            Some(&last) => {
                self.require_ours(last)?;
                // It may be there since a moment ago, by an attempt that failed then.
                env.sync_dir(archive)?;
                wal.keep_from(last);
                last + 1
            }
            None => known.unwrap_or(archiving.from),
        };
        self.state.lock().next = Some(next);
        Ok(next)
    }

    /// The last segment of the archive is that of this log.
    fn require_ours(&self, last: SegmentId) -> Result<()> {
        let ArchiverParts {
            env, archive, dir, ..
        } = &self.parts;
        let name = segment_name(last);
        let same = last < self.parts.wal.current_segment()
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

    /// Files that the records of all closed segments name; and others, which later ones may.
    fn archive_pending(&self, growing: &mut Growing) -> Result<()> {
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

    /// A copy of a file that grows is brought up to date in its place: whatever was written to the file, and so to the copy,
    /// never changes. Returns whether it is a second name, and what is known of a copy.
    fn put_pending(
        &self,
        from: &Path,
        name: &str,
        known: Option<Vec<u64>>,
    ) -> Result<(bool, Vec<u64>)> {
        let ArchiverParts { env, archive, .. } = &self.parts;
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
        let ArchiverParts {
            env, archive, dir, ..
        } = &self.parts;
        let name = segment_name(segment.id);
        let from = dir.join(&name);
        // A segment closed early is mostly room for nothing.
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

    /// Gives a file that `make` makes its place in the archive, whole or not at all; instead of what is there only if it
    /// `replaces` that.
    fn put(
        &self,
        name: &str,
        replaces: bool,
        make: &mut dyn FnMut(&Path) -> Result<()>,
    ) -> Result<()> {
        let ArchiverParts { env, archive, .. } = &self.parts;
        let to = archive.join(name);
        let aside = archive.join(format!("{name}.tmp"));
        self.begin_step()?;
        // What an attempt left that was cut short.
        self.remove(&aside)?;
        make(&aside).inspect_err(|_| {
            // It takes room, which may be what is missing.
            let _ = env.remove(&aside);
        })?;
        self.check_left()?;
        match replaces {
            true => env.rename(&aside, &to)?,
            false => self.rename_new(&aside, &to)?,
        }
        // Two names of one file: renaming one to the other does nothing.
        self.remove(&aside)
    }

    /// A second name replaces none. Where there are no second names, a look before has to do.
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

    /// Notes in the archive that everything committed until `until_ms` is there, if that is so: nothing waits, and
    /// `unused`: nothing was appended to the current segment at that time. At most once in so long.
    ///
    /// # Errors
    /// As of [`Self::archive`].
    pub fn note_coverage(&self, until_ms: u64, unused: bool, every_us: u64) -> Result<()> {
        let ArchiverParts {
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
        // A log that is closed has no current segment behind the archived ones. That of an epoch that just began does not
        // have the next number.
        let current = wal.current_segment();
        let all = current < next || unused;
        if soon || !all || !wal.closed_segments(next).is_empty() {
            return Ok(());
        }
        self.attempt(|archiving, _| {
            // It may be away, and nobody have asked for it since.
            self.look(archiving)?;
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
