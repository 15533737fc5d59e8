//! Writes the next manifest beside the one in force, while edits go on.
//!
//! The first record of a manifest names all files, so it takes long to write in a large database.
//! Steps: note the state under the mutex, and from then on collect the edits; write the state to a
//! new manifest without the mutex; with the mutex held again, append the collected edits, sync, and
//! let `CURRENT` name the new manifest.
//!
//! If the manifest in force breaks meanwhile, or the disk is full, an edit writes a new manifest by
//! itself, and the one that was written beside it is given up. This one uses no part of the disk
//! reserve before `CURRENT` is replaced, so the edit has the whole reserve.
//!
//! Rejected: the mutex held while the manifest is written, because flushes and compactions wait for
//! it: a quarter of a second with three hundred thousand files on a fast disk.

use super::rotation::check_ids;
use super::{Inner, VersionSet};
use crate::base::event_listener::Severity;
use crate::base::{Error, FailureClass, Result};
use crate::store::ReservePart;
use crate::version::manifest::{
    ManifestWriter, NextCurrent, ROOM, manifest_name, read_current, unfinished_name,
};
use crate::version::{Edit, FileMeta, LEVELS, ManifestState, Version};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The state of a manifest, to be written as its first record.
pub(super) struct Snapshot {
    /// The files.
    version: Arc<Version>,
    /// All but the files.
    rest: ManifestState,
}

impl Snapshot {
    /// The edit that leads from an empty state to this one.
    fn edit(&self) -> Edit {
        let mut added = Vec::new();
        for level in 0..LEVELS as u8 {
            for run in self.version.runs(level) {
                let file = |file: &Arc<crate::version::FileHandle>| {
                    (level, run.number, FileMeta::clone(file.meta()))
                };
                added.extend(run.files.iter().map(file));
            }
        }
        Edit {
            added,
            ..self.rest.snapshot()
        }
    }
}

impl VersionSet {
    /// Writes a new manifest and puts it in force, if the one in force is long. Edits go on
    /// meanwhile. Returns whether it did so. A background thread calls this again and again.
    ///
    /// # Errors
    /// `Io` if nobody knows which manifest is in force. If the new manifest could not be
    /// written, for example because the disk is full, it is removed, and a later edit writes one:
    /// that is no error.
    pub fn rewrite_manifest(&self) -> Result<bool> {
        match self.begin_rewrite()? {
            Some((id, snapshot)) => self.finish_rewrite(id, snapshot),
            None => Ok(false),
        }
    }

    /// Writes `snapshot` to manifest `id`, which [`Self::begin_rewrite`] has returned, and puts it
    /// in force.
    pub(super) fn finish_rewrite(&self, id: u64, snapshot: Snapshot) -> Result<bool> {
        let (env, dir) = (&*self.ctx.env, &self.ctx.dir);
        let written = ManifestWriter::create_unfinished(env, dir, id, &snapshot.edit());
        // The old version must not keep its files on the disk.
        drop(snapshot);
        let mut inner = self.inner.lock();
        let ours = |rewriting: &mut (u64, Vec<Edit>)| rewriting.0 == id;
        let since = inner.rewriting.take_if(ours).map(|(_, since)| since);
        let healthy = self.ctx.health.check().is_ok();
        let written = written.and_then(|mut writer| {
            let Some(since) = since.filter(|_| healthy) else {
                return Ok(None);
            };
            writer.add_all(&since)?;
            Ok(Some(writer))
        });
        match written {
            Ok(Some(writer)) => self.switch_to(inner, writer),
            Ok(None) => {
                drop(inner);
                self.remove_unfinished(id);
                Ok(false)
            }
            // Nothing names the new manifest, so the failure has no effect.
            Err(error) => {
                inner.rewrite_failed = true;
                drop(inner);
                self.remove_unfinished(id);
                Ok(self.stays_long(&error))
            }
        }
    }

    /// Logs that the manifest was not rewritten because of `error` and stays in force, long as it
    /// is. Returns false, which the callers return to say that they have not rewritten the
    /// manifest.
    fn stays_long(&self, error: &Error) -> bool {
        let what = format!("the manifest stays long, since no new one was written: {error}");
        self.ctx.listener.log(Severity::Warning, &what);
        false
    }

    /// Notes the state that is to be written, and the id of the new manifest. `None` if the
    /// manifest in force is short, or cannot be appended to, or if another thread writes one.
    pub(super) fn begin_rewrite(&self) -> Result<Option<(u64, Snapshot)>> {
        let mut inner = self.inner.lock();
        if self.ctx.health.check().is_err() {
            return Ok(None);
        }
        let long = |writer: &ManifestWriter| writer.len() >= inner.rotate_at;
        let due = inner.writer.as_ref().is_some_and(long);
        if !due || inner.broken || inner.rewrite_failed || inner.rewriting.is_some() {
            return Ok(None);
        }
        let id = self.next_file_id.fetch_add(1, Ordering::Relaxed);
        check_ids(&inner.state, id)?;
        inner.state.next_file_id = inner.state.next_file_id.max(id + 1);
        let rest = without_files(&inner.state);
        inner.rewriting = Some((id, Vec::new()));
        let version = self.current();
        Ok(Some((id, Snapshot { version, rest })))
    }

    /// Puts the manifest of `writer` in force. It has the whole state, and is synced.
    fn switch_to(
        &self,
        mut inner: parking_lot::MutexGuard<'_, Inner>,
        writer: ManifestWriter,
    ) -> Result<bool> {
        let (env, dir, id) = (&*self.ctx.env, &self.ctx.dir, writer.id());
        let reserve = self.ctx.source.store().reserve();
        let named = env.rename(&dir.join(unfinished_name(id)), &dir.join(manifest_name(id)));
        let switched = named
            .and_then(|()| NextCurrent::create(env, dir, id, reserve))
            .and_then(|current| current.switch(env, dir, reserve));
        if let Err(error) = switched {
            // As after a failed rotation by an edit.
            let poisons = error.class() == FailureClass::Poison;
            inner.rewrite_failed = true;
            let error = self.rotation_failed(&mut inner, error);
            drop(inner);
            if poisons {
                return Err(error);
            }
            if read_current(env, dir).is_ok_and(|current| current != Some(id)) {
                let _ = env.remove(&dir.join(manifest_name(id)));
                self.remove_unfinished(id);
            }
            return Ok(self.stays_long(&error));
        }
        if let Some(reserve) = reserve {
            reserve.raise_target(ReservePart::Manifest, 2 * writer.len() + ROOM);
        }
        let old = self.put_in_force(&mut inner, writer);
        drop(inner);
        self.clear_manifest_away(old);
        self.fill_reserve().map(|()| true)
    }

    /// Removes a manifest that was never in force. If this fails, the next open tries again.
    fn remove_unfinished(&self, id: u64) {
        let _ = self.ctx.env.remove(&self.ctx.dir.join(unfinished_name(id)));
    }
}

/// A copy of `state` without the files, which the version has.
fn without_files(state: &ManifestState) -> ManifestState {
    ManifestState {
        files: BTreeMap::new(),
        log_number: state.log_number,
        next_file_id: state.next_file_id,
        next_run_number: state.next_run_number,
        last_seqno: state.last_seqno,
        counters: state.counters.clone(),
        time_pairs: state.time_pairs.clone(),
        blobs_moved: state.blobs_moved.clone(),
        identity: state.identity,
        deferred: state.deferred.clone(),
        gtids: state.gtids.clone(),
    }
}
