//! Begins the next manifest and puts it in force, and keeps space for edits on a full disk.

use super::apply::{FILE_BYTES, LEFT_BY_ADDITIONS};
use super::{Inner, VersionSet, VersionSetContext};
use crate::base::epoch::end_of_ids;
use crate::base::{Error, ErrorKind, FailureClass, Result};
use crate::store::ReservePart;
use crate::version::manifest::{
    ManifestWriter, NextCurrent, ROOM, clear_away, manifest_name, read_current,
};
use crate::version::{Edit, ManifestState};
use std::sync::atomic::{AtomicU64, Ordering};

/// A background thread rewrites the manifest as one record once the manifest is longer than this
/// many bytes and longer than [`ROTATE_FACTOR`] times its first record.
pub(super) const ROTATE_SIZE_MIN: u64 = 1 << 20;

const ROTATE_FACTOR: u64 = 3;

impl VersionSet {
    /// Starts a new manifest and puts it in force. A manifest that is being written beside the one
    /// in force is given up. After an error, `inner.broken` says whether the old manifest may still
    /// be appended to.
    pub(super) fn rotate(&self, inner: &mut Inner) -> Result<()> {
        inner.rewriting = None;
        match rotate(&self.ctx, &self.next_file_id, &mut inner.state) {
            Ok(writer) => {
                let old = self.put_in_force(inner, writer);
                self.clear_manifest_away(old);
                self.fill_reserve()
            }
            Err(e) => Err(self.rotation_failed(inner, e)),
        }
    }

    /// Notes that `CURRENT` names the manifest of `writer` now. Returns the id of the manifest that
    /// it named before.
    pub(super) fn put_in_force(&self, inner: &mut Inner, writer: ManifestWriter) -> u64 {
        let old = std::mem::replace(&mut inner.manifest_id, writer.id());
        inner.rotate_at = rotate_at(&writer);
        inner.writer = Some(writer);
        inner.broken = false;
        inner.rewrite_failed = false;
        inner
            .limbo
            .drain(..)
            .for_each(|id| self.ctx.source.put_obsolete(id, 0));
        old
    }

    /// Notes that a new manifest could not be put in force, for the reason `error`.
    pub(super) fn rotation_failed(&self, inner: &mut Inner, error: Error) -> Error {
        let (env, dir) = (&*self.ctx.env, &self.ctx.dir);
        let old = Some(inner.manifest_id);
        let is_old = || read_current(env, dir).is_ok_and(|id| id == old);
        // If a rotation fails, `CURRENT` may name either manifest after a restart, so nothing may
        // be appended to the old one. The only exception: the disk was full or a file could not be
        // opened, and `CURRENT` still names the old one. If `CURRENT` cannot be read, the next edit
        // begins a new manifest.
        inner.broken |= error.class() == FailureClass::Poison || !is_old();
        self.fail(error)
    }

    /// Removes a manifest that is not in force; its room may go to the reserve. If this fails, the
    /// next open tries again.
    pub(super) fn clear_manifest_away(&self, id: u64) {
        let path = self.ctx.dir.join(manifest_name(id));
        let reserve = self.ctx.source.store().reserve();
        let _ = clear_away(&*self.ctx.env, &path, ReservePart::Manifest, reserve);
    }

    /// Makes sure that `edit` fits into the space set aside behind the manifest, and that `left`
    /// bytes remain behind it. If it does not fit, starts a new manifest, whose space is in the
    /// disk reserve.
    pub(super) fn find_room(&self, inner: &mut Inner, edit: &Edit, left: u64) -> Result<()> {
        let find = |inner: &mut Inner| match inner.writer.as_mut() {
            Some(writer) => writer.find_room(edit, left),
            None => Err(Error::new(ErrorKind::NoSpace, "there is no manifest")),
        };
        let mut found = find(inner);
        if is_full(&found) {
            self.rotate(inner)?;
            found = find(inner);
        }
        found.map_err(|e| self.fail(e))
    }

    /// Makes sure that the manifest has space for `edit` and one more added file, even if the disk
    /// is full.
    ///
    /// # Errors
    /// `NoSpace` if there is no such space; those of [`Self::apply`].
    pub fn find_room_for_file(&self, edit: &Edit) -> Result<()> {
        let mut inner = self.inner.lock();
        self.ctx.health.check()?;
        if inner.broken {
            self.rotate(&mut inner)?;
        }
        self.find_room(&mut inner, edit, LEFT_BY_ADDITIONS + FILE_BYTES)
    }

    /// Writes a new manifest if none could be written since the directory was opened, because the
    /// disk was full. This ends the read-only state.
    ///
    /// # Errors
    /// `NoSpace` if the disk is still full; those of [`Self::apply`].
    pub fn refill_reserve(&self) -> Result<()> {
        let mut inner = self.inner.lock();
        self.ctx.health.check()?;
        match inner.writer {
            Some(_) => Ok(()),
            None => self.rotate(&mut inner),
        }
    }

    /// Whether the tree cannot change, because the disk has had no room for a new manifest since
    /// the directory was opened.
    pub fn is_read_only(&self) -> bool {
        self.inner.lock().writer.is_none()
    }

    /// Allocates again the parts of the disk reserve that were used, as far as the disk has room.
    ///
    /// # Errors
    /// `Io`. A full disk is no error here.
    pub fn fill_reserve(&self) -> Result<()> {
        self.ctx
            .source
            .store()
            .reserve()
            .map_or(Ok(()), |r| r.fill())
    }

    /// As [`Self::fill_reserve`]. If the disk lacks the room, deletes all obsolete files first.
    ///
    /// # Errors
    /// `Io`. A full disk is no error here.
    pub fn fill_reserve_at_open(&self) -> Result<()> {
        self.fill_reserve()?;
        let reserve = self.ctx.source.store().reserve();
        if reserve.is_none_or(|reserve| reserve.is_filled()) {
            return Ok(());
        }
        // A file that cannot be deleted stays in the list.
        let _ = self.delete_obsolete();
        self.fill_reserve()
    }
}

pub(super) fn is_full<T>(tried: &Result<T>) -> bool {
    matches!(tried, Err(e) if *e.kind() == ErrorKind::NoSpace)
}

pub(super) fn rotate_at(writer: &ManifestWriter) -> u64 {
    ROTATE_SIZE_MIN.max(ROTATE_FACTOR * writer.len())
}

/// Refuses the id of a new manifest beyond the epoch, because the next open would report it as
/// corruption.
pub(super) fn check_ids(state: &ManifestState, id: u64) -> Result<()> {
    match id + 1 >= end_of_ids(state.epoch()) {
        true => Err(Error::unsupported(format!(
            "the ids of epoch {} are used up",
            state.epoch()
        ))),
        false => Ok(()),
    }
}

/// Writes `state` as a new manifest and puts it in force.
pub(super) fn rotate(
    ctx: &VersionSetContext,
    next_file_id: &AtomicU64,
    state: &mut ManifestState,
) -> Result<ManifestWriter> {
    let id = next_file_id.fetch_add(1, Ordering::Relaxed);
    check_ids(state, id)?;
    state.next_file_id = state.next_file_id.max(id + 1);
    let env = &*ctx.env;
    let reserve = ctx.source.store().reserve();
    let first = state.snapshot();
    // Create both files, the manifest and the next `CURRENT`, with their space before anything is
    // written: only an empty file can be given back to the disk reserve.
    let current = NextCurrent::create(env, &ctx.dir, id, reserve)?;
    let written = match reserve {
        Some(reserve) => ManifestWriter::create_in(reserve, &ctx.dir, id, &first),
        None => ManifestWriter::create(env, &ctx.dir, id, &first),
    };
    if written
        .as_ref()
        .is_err_and(|e| e.class() != FailureClass::Poison)
    {
        current.give_back(env, &ctx.dir, reserve)?;
    }
    let written =
        written.and_then(|writer| current.switch(env, &ctx.dir, reserve).map(|()| writer));
    if let (Ok(writer), Some(reserve)) = (&written, reserve) {
        // The next manifest may be larger, so reserve twice the length of this one.
        reserve.raise_target(ReservePart::Manifest, 2 * writer.len() + ROOM);
    }
    written.inspect_err(|e| {
        // If the error does not poison the engine, the rotation will be tried again: remove the new
        // manifest, so that retries do not fill the disk. If the engine is poisoned, or if
        // `CURRENT` may name the new manifest, keep it; the next open removes it if `CURRENT` names
        // another one.
        let retried = e.class() != FailureClass::Poison;
        if retried && read_current(env, &ctx.dir).is_ok_and(|current| current != Some(id)) {
            let _ = env.remove(&ctx.dir.join(manifest_name(id)));
        }
    })
}
