//! Makes an edit durable and installs the version that it leads to.

use super::{Inner, VersionSet};
use crate::base::{Error, Result};
use crate::version::file_handle::FileFate;
use crate::version::manifest::{ManifestWriter, ROOM};
use crate::version::tree::NextVersion;
use crate::version::{DeferredDeletion, Edit, FileHandle, FileLocation, PlacedFile, Version};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// If the background thread does not come to rewrite the manifest, it must not grow without bound:
/// once the manifest is this many times as long as when the background thread should have rewritten
/// it, the next edit rewrites it before it returns.
pub(super) const ROTATE_BY_EDIT: u64 = 2;

/// An edit that only adds files must leave this many bytes of the space that is set aside behind
/// the manifest. Edits that remove files may use them, so that a full disk can still be emptied.
pub(super) const LEFT_BY_ADDITIONS: u64 = ROOM / 4;

/// Assumed size in bytes of an edit's field for one added file: two keys and some numbers.
pub(super) const FILE_BYTES: u64 = ROOM / 4;

/// Why an edit failed, and whether it may still take effect at a restart.
pub(super) enum ApplyFailure {
    NoEffect(Error),
    Unknown(Error),
}

impl VersionSet {
    /// Makes `edit` durable and installs it. The files that `edit` adds must be synced. From here
    /// on the version set owns these files, also if the edit fails: it deletes them once that is
    /// safe.
    ///
    /// # Errors
    /// `InvalidArgument` if the edit does not fit the current version. `NoSpace`: the edit has no
    /// effect so far, and a later edit may succeed. `Poisoned`, `Io`: no further edit succeeds
    /// until a restart.
    pub fn apply(&self, edit: Edit) -> Result<Arc<Version>> {
        self.apply_open(edit, &[])
    }

    /// As [`Self::apply`]. `open` contains handles, which readers already use, of files that the
    /// edit adds. The new version shares these handles, so the files exist until the last reader
    /// has dropped its handle. If the edit fails, the files of these handles are not deleted
    /// either, because the owner of the handles retries and the log names the files.
    ///
    /// # Errors
    /// As [`Self::apply`].
    pub fn apply_open(&self, mut edit: Edit, open: &[Arc<FileHandle>]) -> Result<Arc<Version>> {
        let mut inner = self.inner.lock();
        keep_places(&inner, &mut edit);
        match self.commit(&mut inner, &mut edit, open) {
            Ok(version) => Ok(version),
            Err(failure) => {
                let new_files = edit.added.iter().map(|(.., meta)| meta.file_id);
                let held = |id: &u64| open.iter().any(|file| file.file_id == *id);
                let new_files =
                    new_files.filter(|id| !inner.state.files.contains_key(id) && !held(id));
                let new_files: Vec<u64> = new_files.collect();
                match failure {
                    ApplyFailure::NoEffect(error) => {
                        new_files
                            .into_iter()
                            .for_each(|id| self.ctx.source.put_obsolete(id, 0));
                        Err(error)
                    }
                    ApplyFailure::Unknown(error) => {
                        inner.limbo.extend(new_files);
                        Err(error)
                    }
                }
            }
        }
    }

    pub(super) fn commit(
        &self,
        inner: &mut Inner,
        edit: &mut Edit,
        open: &[Arc<FileHandle>],
    ) -> Result<Arc<Version>, ApplyFailure> {
        use ApplyFailure::{NoEffect, Unknown};
        self.ctx.health.check().map_err(NoEffect)?;
        // Set these numbers before `check`, which verifies them too.
        edit.next_file_id = Some(self.next_file_id.load(Ordering::Relaxed));
        edit.next_run_number = Some(self.next_run_number.load(Ordering::Relaxed));
        if edit.log_number.is_some() {
            let known = &inner.state.gtids;
            let gtids = self.gtids.lock();
            let new = gtids.values().filter(|g| known.get(&g.domain) != Some(g));
            edit.gtids = new.copied().collect();
        }
        let next = self.check(inner, edit, open).map_err(NoEffect)?;
        let synced = self.ctx.source.store().sync_dir();
        synced.map_err(|e| NoEffect(self.fail(e)))?;
        let is_long = |writer: &ManifestWriter| {
            let limit = match inner.rewrite_failed {
                true => inner.rotate_at,
                false => inner.rotate_at.saturating_mul(ROTATE_BY_EDIT),
            };
            inner.rewriting.is_none() && writer.len() >= limit
        };
        if inner.broken || inner.writer.as_ref().is_none_or(is_long) {
            let rotated = self.rotate(inner);
            // If the disk has no room for the next manifest, append to the current one beyond
            // `rotate_at`, unless that manifest is broken.
            if inner.broken {
                rotated.map_err(NoEffect)?;
            }
        }
        // An edit that only adds files must leave space behind the manifest. Then edits that remove
        // files still fit when the disk is full.
        let left = match edit.removed.is_empty() && !edit.added.is_empty() {
            true => LEFT_BY_ADDITIONS,
            false => 0,
        };
        self.find_room(inner, edit, left).map_err(NoEffect)?;
        let Some(writer) = inner.writer.as_mut() else {
            return Err(NoEffect(Error::invalid("there is no manifest")));
        };
        if let Err(e) = writer.add(edit) {
            inner.broken = true;
            return Err(Unknown(self.fail(e)));
        }
        if let Some((_, since)) = &mut inner.rewriting {
            since.push(edit.clone());
        }
        // The record is durable, so the edit is in effect even if its sync marker cannot be
        // written. Without the marker, a later bit error in the record would pass for a torn write,
        // until the next manifest is written.
        if let Err(e) = writer.write_sync_marker() {
            inner.broken = true;
            self.fail(e);
        }
        Ok(self.install(inner, edit, next))
    }

    /// Checks `edit` against the state and the current version. Returns the version that the edit
    /// leads to, or `None` if it neither adds nor removes a file.
    fn check(
        &self,
        inner: &Inner,
        edit: &Edit,
        open: &[Arc<FileHandle>],
    ) -> Result<Option<NextVersion>> {
        if let Some(what) = inner.state.check_edit(edit) {
            return Err(Error::invalid(format!("edit refused: it {what}")));
        }
        // A run may get new files for files that it loses; otherwise runs come in order.
        let loses = |run: u64| {
            let mut removed = edit.removed.iter();
            removed.any(|(_, id)| inner.state.files.get(id).is_some_and(|f| f.run == run))
        };
        let late = edit
            .added
            .iter()
            .find(|(_, run, _)| *run != 0 && *run <= inner.installed_run && !loses(*run));
        if let Some((_, run, _)) = late {
            let last = inner.installed_run;
            return Err(Error::invalid(format!(
                "edit refused: L0 run {run} after run {last}"
            )));
        }
        if edit.added.is_empty() && edit.removed.is_empty() {
            return Ok(None);
        }
        // `check_edit` has found them all.
        let removed = edit.removed.iter().filter_map(|(level, id)| {
            let placed = inner.state.files.get(id)?;
            Some((*level, placed.run, Arc::clone(&placed.meta)))
        });
        let removed: Vec<_> = removed.collect();
        let current = self.current.load();
        let next = current.with_open(edit, &removed, &self.ctx.source, open)?;
        match next.version.check(edit) {
            Some(what) => Err(Error::invalid(format!("edit refused: {what}"))),
            None => Ok(Some(next)),
        }
    }

    fn install(&self, inner: &mut Inner, edit: &Edit, next: Option<NextVersion>) -> Arc<Version> {
        inner.state.apply(edit);
        let runs = edit.added.iter().map(|(_, run, _)| *run);
        inner.installed_run = runs.chain([inner.installed_run]).max().unwrap_or(0);
        let Some(next) = next else {
            return self.current();
        };
        next.added
            .iter()
            .for_each(|(_, file)| inner.state.share(file.meta()));
        self.current.store(Arc::new(next.version));
        let end = match edit.added.is_empty() {
            true => FileFate::Dropped,
            false => FileFate::Replaced,
        };
        // Mark the removed files as obsolete: when the last handle of such a file is dropped, the
        // file is put on the list of files to delete. `gone` holds a handle of each, so none is
        // dropped before it is marked, even if no version has it any more.
        let gone = next.gone.iter().map(|(_, file)| file);
        let left = |file: &&Arc<FileHandle>| {
            let stays = inner.state.files.get(&file.file_id);
            stays.is_none_or(|placed| placed.meta.location != file.location)
        };
        gone.filter(left).for_each(|file| file.mark_obsolete(end));
        self.current()
    }
}

/// Lets the files of the state stay where they are, whatever place `edit` says: a job may have been
/// chosen before a file was relocated. The objects of remote files that leave the tree are to be
/// deleted.
fn keep_places(inner: &Inner, edit: &mut Edit) {
    let files = &inner.state.files;
    for (.., meta) in &mut edit.added {
        if let Some(placed) = files.get(&meta.file_id) {
            meta.location = placed.meta.location;
        }
    }
    let is_remote = |placed: &PlacedFile| placed.meta.location == FileLocation::ObjectStore;
    let mut removed = edit.removed.iter();
    if !removed.any(|(_, id)| files.get(id).is_some_and(is_remote)) {
        return;
    }
    let added: HashSet<u64> = edit.added.iter().map(|(.., meta)| meta.file_id).collect();
    for (_, id) in &edit.removed {
        if files.get(id).is_some_and(is_remote) && !added.contains(id) {
            let deletion = DeferredDeletion::of_object(*id, inner.state.epoch());
            edit.deferred.push(deletion);
        }
    }
}
