//! Deletes data files that no version holds and no manifest names.

use super::VersionSet;
use crate::base::event_listener::Severity;
use crate::base::pause_points::{self, PausePoint};
use crate::base::{ErrorKind, Result};
use crate::store::{FileKind, parse_file_name};
use crate::version::manifest::parse_manifest_name;
use crate::version::{FileLocation, PlacedFile};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Data files that are given up together are removed at once if they have at most this many bytes
/// in total. Otherwise the delete pacer spreads their removal.
const DISCARD_MAX: u64 = 4 << 20;

/// An open or a close of the database deletes at most this many obsolete files. The others are left
/// to the delete pacer, or to the next open.
const DELETED_AT_ONCE: usize = 128;

/// Assumed size in bytes of a file that nothing names. Asking for the sizes of hundreds of
/// thousands of files would take seconds, and only the pacer needs them.
const STRAY_BYTES: u64 = 32 << 20;

/// A message names at most this many files.
const NAMED_FILES_MAX: usize = 10;

/// Ids of files in the directory.
#[derive(Default)]
pub(super) struct DirectoryFiles {
    pub(super) ssts: Vec<u64>,
    pub(super) blobs: Vec<u64>,
    pub(super) sorts: Vec<u64>,
    pub(super) manifests: Vec<u64>,
}

impl DirectoryFiles {
    pub(super) fn of(names: &[String]) -> Self {
        let mut found = Self::default();
        for name in names {
            match parse_file_name(name) {
                Some((FileKind::Sst, id)) => found.ssts.push(id),
                Some((FileKind::Blob, id)) => found.blobs.push(id),
                Some((FileKind::Sort, id)) => found.sorts.push(id),
                None => found.manifests.extend(parse_manifest_name(name)),
            }
        }
        found.ssts.sort_unstable();
        found
    }

    /// An id above those of all SSTs, manifests and blob files here whose ids are below `limit`.
    pub(super) fn end_of_ids_below(&self, limit: u64) -> u64 {
        let ids = self.ssts.iter().chain(&self.manifests).chain(&self.blobs);
        ids.filter(|id| **id < limit).max().map_or(0, |id| id + 1)
    }
}

/// While a guard of this type exists, the version set deletes no data file.
pub struct FileDeletionHold {
    held: Arc<AtomicUsize>,
    obsolete: HashSet<u64>,
}

impl FileDeletionHold {
    /// Whether the SST waited for its deletion when the hold began. Neither a state nor a log
    /// record that is read during the hold needs it.
    pub fn was_obsolete(&self, file_id: u64) -> bool {
        self.obsolete.contains(&file_id)
    }
}

impl Drop for FileDeletionHold {
    fn drop(&mut self) {
        self.held.fetch_sub(1, Ordering::SeqCst);
    }
}

impl VersionSet {
    /// Gives up data files that no edit has named; each pair is the id and the size in bytes. Up to
    /// 4 MiB in total are removed at once. If there is more, the delete pacer spreads the removal,
    /// because a client waits for the caller.
    pub fn give_up(&self, files: &[(u64, u64)]) {
        let ids: Vec<u64> = files.iter().map(|(id, _)| *id).collect();
        if files.iter().map(|(_, size)| size).sum::<u64>() <= DISCARD_MAX {
            return self.discard(&ids);
        }
        for &(id, size) in files {
            self.ctx.source.put_obsolete(id, size);
        }
    }

    /// Removes at once the data files with these ids, which no edit has named. While a
    /// [`FileDeletionHold`] exists, or if a removal fails, the file becomes obsolete instead, and
    /// [`Self::delete_obsolete`] removes it later.
    pub fn discard(&self, ids: &[u64]) {
        let source = &self.ctx.source;
        for &id in ids {
            if source.between_deletions(|_| self.held.load(Ordering::SeqCst)) > 0 {
                source.put_obsolete(id, 0);
                continue;
            }
            match source.store().remove(id) {
                Err(e) if *e.kind() != ErrorKind::NotFound => source.put_obsolete(id, 0),
                _ => source.forget_local_copy(id),
            }
        }
    }

    /// Until the guard is dropped, no file is deleted: neither one that is in a state returned by
    /// [`Self::state`] during the hold, nor one that later log records name.
    pub fn hold_files(&self) -> FileDeletionHold {
        // Increment the number of holds under the lock of the list of obsolete files. A thread that
        // deletes files holds this lock while it checks that the number is 0 and takes a file from
        // the list. Without the lock, it might find 0 and then take a file that has become obsolete
        // only after this hold began.
        let obsolete = self.ctx.source.between_deletions(|waiting| {
            self.held.fetch_add(1, Ordering::SeqCst);
            Vec::from_iter(waiting)
        });
        FileDeletionHold {
            held: Arc::clone(&self.held),
            obsolete: HashSet::from_iter(obsolete),
        }
    }

    /// Deletes all obsolete files, which no version holds and no manifest names. Deletes none once
    /// writes are poisoned. The next call retries a failed deletion. Returns the number of deleted
    /// files.
    ///
    /// # Errors
    /// `Io`: the first error; the other files are deleted nevertheless.
    pub fn delete_obsolete(&self) -> Result<usize> {
        self.delete_while(|_| true)
    }

    /// As [`Self::delete_obsolete`], but deletes at most [`DELETED_AT_ONCE`] files, so that it
    /// never takes long.
    ///
    /// # Errors
    /// As [`Self::delete_obsolete`].
    pub fn delete_few(&self) -> Result<usize> {
        let mut left = DELETED_AT_ONCE;
        self.delete_while(|_| {
            let may = left > 0;
            left = left.saturating_sub(1);
            may
        })
    }

    /// As [`Self::delete_obsolete`], but no faster than the pacer allows at `now_us`, microseconds
    /// of the monotonic clock. The caller repeats it as long as there are obsolete files. Ends
    /// before the next file once `stopping` is set.
    ///
    /// # Errors
    /// As [`Self::delete_obsolete`].
    pub fn delete_paced(&self, now_us: u64, stopping: &AtomicBool) -> Result<usize> {
        let mut pacer = self.pacer.lock();
        match self.ctx.source.newly_obsolete() {
            0 => {}
            bytes => pacer.obsolete(now_us, bytes),
        }
        pacer.earn(now_us, self.ctx.source.obsolete().1);
        self.delete_while(|size| !stopping.load(Ordering::Relaxed) && pacer.take(size))
    }

    /// Number of obsolete files that wait for deletion, and the sum of their stored bytes.
    pub fn obsolete(&self) -> (u64, u64) {
        self.ctx.source.obsolete()
    }

    fn delete_while(&self, mut may: impl FnMut(u64) -> bool) -> Result<usize> {
        if self.ctx.health.check().is_err() {
            return Ok(0);
        }
        let source = &self.ctx.source;
        let mut deleted = 0;
        let mut failed = Vec::new();
        let mut first = None;
        let next = || pause_points::at(PausePoint::ObsoleteWanted);
        // Check before each file whether a [`FileDeletionHold`] exists, under the lock under which
        // the file is taken from the list of obsolete files. A file that became obsolete before the
        // hold began is safe to delete: no state read during the hold contains it.
        let mut unheld = |size| self.held.load(Ordering::SeqCst) == 0 && may(size);
        while let Some((id, size)) = {
            next();
            source.take_obsolete(&mut unheld)
        } {
            match source.store().remove(id) {
                Err(e) if *e.kind() != ErrorKind::NotFound => {
                    failed.push((id, size));
                    first.get_or_insert(e);
                }
                removed => {
                    deleted += usize::from(removed.is_ok());
                    source.forget_local_copy(id);
                }
            }
        }
        failed
            .into_iter()
            .for_each(|(id, size)| source.put_obsolete(id, size));
        first.map_or(Ok(deleted), Err)
    }

    /// Ids of the data files of this kind that were in the directory when it was opened. Later
    /// calls return none.
    pub fn take_found(&self, kind: FileKind) -> Vec<u64> {
        let mut found = self.found.lock();
        std::mem::take(match kind {
            FileKind::Sst => &mut found.ssts,
            FileKind::Blob => &mut found.blobs,
            FileKind::Sort => &mut found.sorts,
        })
    }

    /// Removes the data files and manifests that were in the directory at the open, except for
    /// those that the manifest names and those whose ids are in `keep`, which are named by the log.
    /// If there are many, only some are removed at once, and the others become obsolete files that
    /// the delete pacer removes later: after the drop of a large table, a stop leaves most of its
    /// files. A file that is removed later must have an id that no new file gets, so those that the
    /// epoch may still allocate are removed at once. Must be called after the log is replayed and
    /// its epoch is taken over. A second call has no effect.
    pub fn remove_strays(&self, keep: &HashSet<u64>) {
        let on_disk = self.take_found(FileKind::Sst);
        let old_manifests = std::mem::take(&mut self.found.lock().manifests);
        let inner = self.inner.lock();
        let live = &inner.state.files;
        let is_local = |placed: &PlacedFile| placed.meta.location == FileLocation::Local;
        // Even if they stay: a new file of such a name would change what others may have linked.
        let is_remote = |id: &&u64| live.get(*id).is_some_and(|placed| !is_local(placed));
        for id in on_disk.iter().filter(is_remote) {
            self.ctx.source.add_local_copy(*id);
        }
        let present: HashSet<u64> = on_disk.iter().copied().collect();
        let local = live.iter().filter(|(_, placed)| is_local(placed));
        let missing: Vec<_> = local
            .map(|(id, _)| id)
            .filter(|id| !present.contains(id))
            .collect();
        if !missing.is_empty() {
            // Files of the tree are missing, and nobody knows why. Remove no stray files: a repair
            // may need them.
            let what = format!(
                "{} SSTs are missing; no stray file is removed: {}",
                missing.len(),
                some_of(missing.iter().copied())
            );
            self.ctx.listener.log(Severity::Error, &what);
            return;
        }
        let strays: Vec<u64> = on_disk
            .iter()
            .copied()
            .filter(|id| !live.get(id).is_some_and(is_local) && !keep.contains(id))
            .collect();
        if !strays.is_empty() {
            let what = format!(
                "removing {} SSTs that neither manifest nor log names: {}",
                strays.len(),
                some_of(strays.iter())
            );
            self.ctx.listener.log(Severity::Note, &what);
        }
        drop(inner);
        let next = self.next_file_id.load(Ordering::Relaxed);
        let (used, unused): (Vec<u64>, Vec<u64>) = strays.into_iter().partition(|id| *id < next);
        self.discard(&unused);
        used.into_iter()
            .for_each(|id| self.ctx.source.put_obsolete(id, STRAY_BYTES));
        for id in old_manifests {
            self.clear_manifest_away(id);
        }
        if let Err(e) = self.delete_few() {
            let what = format!("a stray SST cannot be removed: {e}");
            self.ctx.listener.log(Severity::Warning, &what);
        }
    }
}

/// The first few of `ids`, for a message.
fn some_of<'a>(ids: impl ExactSizeIterator<Item = &'a u64>) -> String {
    let more = match ids.len() > NAMED_FILES_MAX {
        true => ", …",
        false => "",
    };
    let ids: Vec<String> = ids.take(NAMED_FILES_MAX).map(u64::to_string).collect();
    format!("{}{more}", ids.join(", "))
}
