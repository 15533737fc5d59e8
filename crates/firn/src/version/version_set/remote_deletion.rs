//! Deletes objects that no version needs and the manifest has listed for deletion.

use super::VersionSet;
use crate::base::event_listener::Severity;
use crate::base::{Result, check_stopping};
use crate::version::{DeferredDeletion, Edit, FileLocation};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How long an object stays after the last version that has it, microseconds.
const GRACE_US: u64 = 600_000_000;

/// How long a file that was brought back from the object store stays local after the deletion of
/// its object, microseconds: a deletion whose answer was lost may be executed late, and must not
/// hit the next upload of the file.
const LATE_US: u64 = 3_600_000_000;

/// Pause before a deletion that has failed is tried again, microseconds.
const RETRY_US: u64 = 60_000_000;

/// A hold that lasts for so long is reported, microseconds.
const LONG_HOLD_US: u64 = 3_600_000_000;

/// One edit says of at most this many files that they are deleted.
const DONE_MAX: usize = 1000;

/// The objects that no version needs any more.
#[derive(Default)]
pub(super) struct ObjectDeletions {
    /// Objects to delete, with the time from which on, microseconds of the monotonic clock.
    waiting: VecDeque<(u64, u64)>,
    /// No deletion before this time, microseconds, because one has failed.
    retry_us: u64,
    /// Objects that are deleted, with the time from which on the manifest may say so.
    deleted: VecDeque<(u64, u64)>,
}

/// Objects stay until none of these directories exists.
pub(super) struct ObjectHold {
    directories: Vec<PathBuf>,
    since_us: u64,
    is_reported: AtomicBool,
}

/// The work of a step of [`VersionSet::delete_objects`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RemoteDeletions {
    /// Objects deleted.
    pub deleted: u64,
    /// Deletions of which the manifest says now that they are done.
    pub done: u64,
    /// Objects that wait for their deletion, or for the manifest to say that it is done.
    pub left: u64,
}

impl VersionSet {
    /// Deletes objects that no version needs, 10 minutes after the last one has needed them, and
    /// then says so in the manifest. A call deletes at most `most` of them. `now_us` is the time of
    /// the monotonic clock. Ends before the next object once `stopping` is set. Deletes none while
    /// a [`super::FileDeletionHold`] exists, or a directory of [`Self::hold_objects_for`], or once
    /// writes are poisoned.
    ///
    /// # Errors
    /// `Unreachable`: the store has failed, and the objects stay listed. Those of [`Self::apply`].
    pub fn delete_objects(
        &self,
        now_us: u64,
        most: u64,
        stopping: &AtomicBool,
    ) -> Result<RemoteDeletions> {
        let mut objects = self.object_deletions.lock();
        let new = self.ctx.source.take_obsolete_objects();
        objects
            .waiting
            .extend(new.into_iter().map(|id| (now_us + GRACE_US, id)));
        let mut step = RemoteDeletions::default();
        let Some(remote) = self.ctx.source.store().remote() else {
            return Ok(step);
        };
        let mut failure = None;
        // A file that becomes obsolete after a hold has begun is not in this list yet.
        let are_held = self.objects_are_held();
        if objects
            .waiting
            .front()
            .is_some_and(|(due_us, _)| *due_us <= now_us)
        {
            self.report_long_hold(now_us);
        }
        while let Some(&(due_us, id)) = objects.waiting.front() {
            let is_due = due_us.max(objects.retry_us) <= now_us && !are_held;
            if !is_due || stopping.load(Ordering::Relaxed) {
                break;
            }
            if step.deleted == most {
                break;
            }
            self.ctx.health.check()?;
            if self.held.load(Ordering::SeqCst) > 0 {
                break;
            }
            objects.waiting.pop_front();
            if let Err(error) = remote.delete(id) {
                // The objects behind this one would fail, too.
                objects.waiting.push_back((now_us + RETRY_US, id));
                objects.retry_us = now_us + RETRY_US;
                failure = Some(error);
                break;
            }
            let is_back = self.inner.lock().state.files.contains_key(&id);
            let done_us = now_us + if is_back { LATE_US } else { 0 };
            objects.deleted.push_back((done_us, id));
            step.deleted += 1;
        }
        // The close may have left this thread to itself.
        check_stopping(stopping)?;
        step.done = self.say_deleted(&mut objects, now_us)?;
        step.left = (objects.waiting.len() + objects.deleted.len()) as u64;
        failure.map_or(Ok(step), Err)
    }

    /// Until none of these directories exists, no object is deleted that a version has now or
    /// later. At least one of them exists already. Nothing remembers this over a restart.
    pub fn hold_objects_for(&self, directories: Vec<PathBuf>) {
        // Without a store, nobody would forget them.
        if self.ctx.source.store().remote().is_some() {
            self.object_holds.lock().push(Arc::new(ObjectHold {
                directories,
                since_us: self.ctx.env.monotonic_micros(),
                is_reported: AtomicBool::new(false),
            }));
        }
    }

    /// The directory of the oldest hold that is not known to be over: no object is deleted before
    /// it is removed. Asks no file system.
    pub fn objects_held_by(&self) -> Option<PathBuf> {
        let holds = self.object_holds.lock();
        holds.first()?.directories.last().cloned()
    }

    /// A directory may have been forgotten, and objects would stay for ever.
    fn report_long_hold(&self, now_us: u64) {
        let oldest = self.object_holds.lock().first().cloned();
        if let Some(hold) = oldest
            && now_us.saturating_sub(hold.since_us) >= LONG_HOLD_US
            && !hold.is_reported.swap(true, Ordering::Relaxed)
            && let Some(directory) = hold.directories.last()
        {
            let message = format!(
                "no object is deleted from the object store, because the checkpoint {} needs some: remove it if \
                 nobody makes or copies it any more",
                directory.display()
            );
            self.ctx.listener.log(Severity::Warning, &message);
        }
    }

    /// Looks without the mutex: a directory may be on a file system that does not answer, and
    /// commits may wait for a checkpoint that begins to hold objects.
    fn objects_are_held(&self) -> bool {
        let holds = self.object_holds.lock().clone();
        // A directory that may be there counts as there.
        let is_there = |dir: &PathBuf| self.ctx.env.exists(dir).unwrap_or(true);
        let is_over = |hold: &&Arc<ObjectHold>| !hold.directories.iter().any(is_there);
        let over: Vec<_> = holds.iter().filter(is_over).collect();
        let mut holds = self.object_holds.lock();
        holds.retain(|hold| !over.iter().any(|gone| Arc::ptr_eq(gone, hold)));
        !holds.is_empty()
    }

    /// Number of holds that are not known to be over.
    #[cfg(test)]
    pub(super) fn object_holds(&self) -> usize {
        self.object_holds.lock().len()
    }

    fn say_deleted(&self, objects: &mut ObjectDeletions, now_us: u64) -> Result<u64> {
        let is_due = |(due_us, _): &&(u64, u64)| *due_us <= now_us;
        let due = objects.deleted.iter().filter(is_due).take(DONE_MAX);
        let due: Vec<u64> = due.map(|(_, id)| *id).collect();
        if due.is_empty() {
            return Ok(0);
        }
        let done = due
            .iter()
            .map(|id| DeferredDeletion::of_object(*id, 0).done());
        self.apply(Edit {
            deferred: done.collect(),
            ..Edit::default()
        })?;
        let said: std::collections::HashSet<u64> = due.into_iter().collect();
        objects.deleted.retain(|(_, id)| !said.contains(id));
        Ok(said.len() as u64)
    }

    /// Whether any file of the tree is in the object store, or any object is to be deleted.
    pub fn names_objects(&self) -> bool {
        let inner = self.inner.lock();
        let mut files = inner.state.files.values();
        !inner.state.deferred.is_empty()
            || files.any(|placed| placed.meta.location == FileLocation::ObjectStore)
    }

    /// Whether a file of this id is in the tree, or in the list of objects to delete: then its
    /// object is no stray.
    pub fn names_object(&self, file_id: u64) -> bool {
        let inner = self.inner.lock();
        inner.state.files.contains_key(&file_id) || inner.state.deferred.contains_key(&file_id)
    }

    /// Whether an object of this id and checksum is of a file in the tree, or may be one of those
    /// to delete: then it is no stray. After a return to an older state of the directory, an object
    /// may have the id of a file, and other bytes.
    pub fn names_bytes(&self, file_id: u64, checksum: u64) -> bool {
        let inner = self.inner.lock();
        let placed = inner.state.files.get(&file_id);
        placed.is_some_and(|placed| placed.meta.checksum == checksum)
            || inner.state.deferred.contains_key(&file_id)
    }

    /// Number of files whose objects are to be deleted, or are deleted and not forgotten yet.
    pub fn objects_to_delete(&self) -> u64 {
        self.inner.lock().state.deferred.len() as u64
    }

    /// Whether the object of this file is to be deleted. Until that is done, the file stays local.
    pub fn awaits_deletion(&self, file_id: u64) -> bool {
        self.inner.lock().state.deferred.contains_key(&file_id)
    }
}
