//! Moves files of the last level between the data directory and the object store: those that nobody
//! has read for a while, and the coldest ones while the disk runs full ([`super::coldest_files`]).
//!
//! One file at a time: its copy is made and verified first, then the manifest says where the file
//! is, and the old copy goes when nobody reads it any more. A crash at any point leaves the file
//! where the manifest says, and at most one copy too much, which the next open or a sweep removes.
//!
//! Locks: no lock is held while bytes are copied. `install` is held around the edit.

use super::BackgroundWork;
use super::coldest_files::{ColdestFiles, LocalBytes};
use crate::base::event_listener::Severity;
use crate::base::key::CATALOG_INDEX;
use crate::base::options::Tier;
use crate::base::{Error, ErrorKind, Result, check_stopping};
use crate::env::ReadClass;
use crate::store::{FileKind, RemoteFiles, file_name};
use crate::version::{FileHandle, FileLocation, LAST_LEVEL, Version};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A search for a file to move looks at this many files at most; the next one goes on behind them.
const SEARCHED_MAX: usize = 4096;

/// A step deletes at most this many objects. Each takes several requests, so there are few while
/// files move: a disk may run full meanwhile.
const DELETED_MAX: u64 = 256;
const DELETED_BETWEEN_MOVES: u64 = 8;

/// A file that leaves waits for the limit of reads and writes in pieces of this size, bytes, so
/// that the owner of the store shows in between that it lives.
const LIMITED_BYTES: u64 = 1 << 20;

/// Time between two sweeps of strays, and before the first one, microseconds.
const SWEEP_US: u64 = 24 * 3_600_000_000;
const FIRST_SWEEP_US: u64 = 600_000_000;

/// The memory of the mover between its steps.
#[derive(Debug, Default)]
pub(super) struct TierMover {
    /// Position in the last level at which the next search begins.
    next: usize,
    /// Files that cannot be moved because their bytes are damaged.
    skipped: HashSet<u64>,
    /// Files that leave a disk that runs full.
    coldest: ColdestFiles,
    /// When strays are swept next, microseconds.
    sweep_us: Option<u64>,
    /// The kind of the failure that the last steps had, and that is reported: the store does not
    /// answer, or there is no room for files that come back.
    reported: Option<ErrorKind>,
}

/// The next file of the last level that `moves` accepts, and the position behind it. Looks at
/// [`SEARCHED_MAX`] files from position `from` on, round the end of the level.
fn search(
    version: &Version,
    from: usize,
    moves: impl Fn(&FileHandle) -> bool,
) -> (usize, Option<Arc<FileHandle>>) {
    let files = &version.levels[LAST_LEVEL - 1].files;
    let count = files.len();
    let from = if from < count { from } else { 0 };
    let end = count.min(from + SEARCHED_MAX);
    let around = from.min(SEARCHED_MAX - (end - from));
    for range in [from..end, 0..around] {
        let mut found = files.range(range.clone()).iter().enumerate();
        if let Some((at, file)) = found.find(|(_, file)| moves(file)) {
            return (range.start + at + 1, Some(Arc::clone(file)));
        }
    }
    (if end < count { end } else { around }, None)
}

impl BackgroundWork {
    /// Moves one file if one is to move, deletes objects that nobody needs, and sweeps strays if
    /// that is due. Returns whether a file has moved.
    ///
    /// # Errors
    /// `Unreachable` if the store does not answer; `InvalidArgument` if it belongs to another
    /// database; those of edits.
    pub(in crate::db) fn tier_step(&self) -> Result<bool> {
        let store = self.versions.source().store();
        let Some(remote) = store.remote().cloned() else {
            return Ok(false);
        };
        self.health.check()?;
        let mut mover = self.tier_mover.lock();
        let now_us = self.env.monotonic_micros();
        store.set_read_clock(now_us / 1_000_000);
        remote.beat();
        // The close may have left this thread to itself, in any call of the store.
        check_stopping(&self.stopping)?;
        // A store that refuses deletions must not keep files from moving: so these come behind, and
        // their failure is that of a step that has moved nothing.
        let moved = self.move_one_file(&mut mover, &*remote);
        let is_out = |error: &Error| *error.kind() == ErrorKind::Unreachable;
        let tidied = match moved.as_ref().is_err_and(is_out) {
            true => Ok(()),
            false => self.tidy_up(&mut mover, &*remote, now_us, matches!(moved, Ok(true))),
        };
        let moved = moved?;
        if moved {
            return Ok(true);
        }
        tidied?;
        check_stopping(&self.stopping)?;
        if mover.reported.take().is_some() {
            let message = format!(
                "files move to or from the object store {} again",
                remote.name()
            );
            self.options.listener.log(Severity::Note, &message);
        }
        Ok(false)
    }

    /// Deletes objects that nobody needs, and sweeps strays if that is due. With `moves`, the next
    /// file may be about to move, and waits.
    fn tidy_up(
        &self,
        mover: &mut TierMover,
        remote: &dyn RemoteFiles,
        now_us: u64,
        moves: bool,
    ) -> Result<()> {
        let most = match moves {
            true => DELETED_BETWEEN_MOVES,
            false => DELETED_MAX,
        };
        let deleted = self.versions.delete_objects(now_us, most, &self.stopping);
        let sweep_us = *mover.sweep_us.get_or_insert(now_us + FIRST_SWEEP_US);
        if now_us >= sweep_us && !moves {
            mover.sweep_us = Some(now_us + SWEEP_US);
            remote.sweep(&|id, checksum| self.versions.names_bytes(id, checksum))?;
        }
        deleted.map(|_| ())
    }

    /// The step of [`Self::tier_step`] that failed with `error`: reports it, once if the store is
    /// out or there is no room.
    pub(super) fn tier_step_failed(&self, error: &Error) {
        let kind = error.kind();
        let lasts = matches!(kind, ErrorKind::Unreachable | ErrorKind::NoSpace);
        let reported = lasts.then(|| kind.clone());
        let before = std::mem::replace(&mut self.tier_mover.lock().reported, reported);
        if self.stopping.load(Ordering::Acquire) || (lasts && before.as_ref() == Some(kind)) {
            return;
        }
        if !matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::Poisoned) {
            let message = format!("moving files to or from the object store: {error}");
            self.options.listener.log(Severity::Error, &message);
        }
    }

    fn move_one_file(&self, mover: &mut TierMover, remote: &dyn RemoteFiles) -> Result<bool> {
        let mutable = &self.options.mutable;
        let tier = mutable.tier();
        let cold_after_s = mutable.cold_after_s.load(Ordering::Relaxed);
        let now_s = self.versions.source().store().read_clock_s();
        let version = self.versions.current();
        // The catalog is read at each start, which must not need the store.
        let has_catalog = |file: &FileHandle| {
            let first = file.per_index.first();
            first.is_some_and(|held| held.index == CATALOG_INDEX)
        };
        if tier == Tier::Cold && self.is_disk_short(mover, remote) {
            let TierMover {
                coldest, skipped, ..
            } = mover;
            let may_leave = |file: &FileHandle| {
                file.location == FileLocation::Local
                    && !has_catalog(file)
                    && !skipped.contains(&file.file_id)
            };
            // With a second name, as of a checkpoint, a file that leaves frees no room.
            let path = |id| self.versions.source().store().path(FileKind::Sst, id);
            let has_one_name = |id| self.env.links(&path(id)).is_ok_and(|names| names == 1);
            let waits = |file: &FileHandle| {
                self.versions.awaits_deletion(file.file_id) || !has_one_name(file.file_id)
            };
            let now_us = self.env.monotonic_micros();
            if let Some(file) = coldest.next(&version, now_us, may_leave, waits) {
                drop(version);
                return self.move_file(mover, &file, remote, true);
            }
        }
        let moves = |file: &FileHandle| {
            let has_catalog = has_catalog(file);
            let wanted = match (tier, file.location) {
                (_, FileLocation::ObjectStore) if has_catalog => true,
                (Tier::Local, FileLocation::ObjectStore) => true,
                (Tier::Cold, FileLocation::Local) if !has_catalog => {
                    now_s.saturating_sub(file.last_read_s()) >= cold_after_s
                        && !self.versions.awaits_deletion(file.file_id)
                }
                _ => false,
            };
            wanted && !mover.skipped.contains(&file.file_id)
        };
        let (next, file) = search(&version, mover.next, moves);
        mover.next = next;
        drop(version);
        match file {
            Some(file) => self.move_file(mover, &file, remote, false),
            None => Ok(false),
        }
    }

    /// Whether files leave because the disk runs full, although they were read. Reports once that
    /// this begins, and that it stops because it frees no room.
    fn is_disk_short(&self, mover: &mut TierMover, remote: &dyn RemoteFiles) -> bool {
        let source = self.versions.source();
        // Without an answer, the disk may have room.
        let Ok(Some(room)) = self.env.disk_room(source.store().dir()) else {
            return false;
        };
        let was_short = mover.coldest.was_short();
        let version = self.versions.current();
        let local = LocalBytes {
            tables: version.size().saturating_sub(version.remote().bytes),
            obsolete: self.versions.obsolete().1,
        };
        let now_us = self.env.monotonic_micros();
        let coldest = &mut mover.coldest;
        let (is_short, freed_nothing) = source.with_local_copies(|has_local_copy| {
            coldest.is_short(now_us, room, local, has_local_copy)
        });
        if !is_short {
            return false;
        }
        drop(version);
        let shares_disk = remote.shares_disk_with(source.store().dir());
        if !was_short {
            let free = room.free >> 20;
            let message = match shares_disk {
                false => format!(
                    "{free} MiB are free on the disk: files move to the object store although they were read"
                ),
                true => format!(
                    "{free} MiB are free on the disk, and the object store is on the same one: files that were read stay"
                ),
            };
            self.options.listener.log(Severity::Note, &message);
        }
        if let Some(nothing) = freed_nothing
            && !shares_disk
        {
            let message = format!(
                "{} files of {} MiB have moved to the object store, and the disk has not more room (does a snapshot \
                 keep their blocks?): for {} minutes, no more move that were read",
                nothing.files,
                nothing.bytes >> 20,
                nothing.stop_us / 60_000_000
            );
            self.options.listener.log(Severity::Warning, &message);
        }
        !shares_disk && mover.coldest.may_leave(now_us)
    }

    /// `by_room`: because the disk runs full.
    fn move_file(
        &self,
        mover: &mut TierMover,
        file: &FileHandle,
        remote: &dyn RemoteFiles,
        by_room: bool,
    ) -> Result<bool> {
        let _doing = self.activities.begin(format!(
            "moving {} {} the object store",
            file_name(FileKind::Sst, file.file_id),
            match file.location {
                FileLocation::ObjectStore => "out of",
                FileLocation::Local => "into",
            }
        ));
        let moved = match file.location {
            FileLocation::ObjectStore => self.bring_back(file, remote),
            FileLocation::Local => self.send_away(file, remote),
        };
        if moved.as_ref().is_err_and(Error::is_corruption) {
            mover.skipped.insert(file.file_id);
        }
        if matches!(moved, Ok(true)) && file.location == FileLocation::Local {
            mover.coldest.has_left(file, by_room);
        }
        moved
    }

    fn send_away(&self, file: &FileHandle, remote: &dyn RemoteFiles) -> Result<bool> {
        let (id, object) = (file.file_id, file.meta().as_remote());
        let path = self.versions.source().store().path(FileKind::Sst, id);
        let mut pieces = (0..file.size).step_by(LIMITED_BYTES as usize);
        let admitted = pieces.try_for_each(|offset| {
            remote.beat();
            let piece = LIMITED_BYTES.min(file.size - offset);
            self.limiter.take(piece, &self.stopping)
        });
        let sent = admitted
            .and_then(|()| remote.upload(&object, &path, &self.stopping))
            .and_then(|()| self.relocate(file, FileLocation::ObjectStore));
        remote.release(&object);
        if matches!(sent, Ok(false)) && !self.versions.names_object(id) {
            // A compaction has replaced the file meanwhile. If this fails, a sweep does it.
            let _ = remote.delete(id);
        }
        sent
    }

    fn bring_back(&self, file: &FileHandle, remote: &dyn RemoteFiles) -> Result<bool> {
        let store = self.versions.source().store();
        store.check_room(store.dir(), file.size, "files stay in the object store")?;
        check_stopping(&self.stopping)?;
        if !self.versions.begin_local_copy(file.file_id) {
            return Ok(false);
        }
        let copied = store.copy_remote(
            &file.meta().as_remote(),
            ReadClass::Compaction,
            || {
                check_stopping(&self.stopping)?;
                store.create(file.file_id)
            },
            |bytes| {
                check_stopping(&self.stopping)?;
                remote.beat();
                self.limiter.take(bytes, &self.stopping)
            },
        );
        if let Err(error) = copied {
            // After a close, the next open removes the copy.
            check_stopping(&self.stopping)?;
            self.versions.give_up_local_copy(file.file_id);
            return Err(error);
        }
        self.relocate(file, FileLocation::Local)
    }

    /// Says in the manifest that a file is at `to`. Returns false if it has left the tree.
    fn relocate(&self, file: &FileHandle, to: FileLocation) -> Result<bool> {
        let _in_order = self.install.lock();
        // The close may have left this thread to itself.
        check_stopping(&self.stopping)?;
        let version = self.versions.relocate(file.meta(), to)?;
        Ok(version.map(|version| self.publish(version, &[])).is_some())
    }
}

#[cfg(test)]
mod tests;
