//! Moves files between the data directory and the object store, in the manifest.

use super::VersionSet;
use super::apply::ApplyFailure;
use crate::base::{Error, Result};
use crate::version::{
    DeferredDeletion, Edit, FileLocation, FileMeta, ManifestState, PlacedFile, Version,
};
use std::sync::Arc;

/// Checks that all files are in the data directory.
///
/// # Errors
/// `Unsupported`, which names a file that is not.
pub(super) fn check_all_local(state: &ManifestState) -> Result<()> {
    let is_remote = |placed: &&PlacedFile| placed.meta.location == FileLocation::ObjectStore;
    let remote = state.files.values().filter(is_remote).count();
    let Some(first) = state.files.values().find(is_remote) else {
        return Ok(());
    };
    Err(Error::unsupported(format!(
        "SST {} lies in an object store, one of {remote}, and none is configured: set firn_storage_url",
        first.meta.file_id
    )))
}

impl VersionSet {
    /// Says in the manifest that the SST of `meta` is at `to` now, where a durable and verified
    /// copy of it is. The copy that it had before becomes obsolete with the last version that has
    /// it there. Returns `None`, without effect, if the file has left the tree or may not move.
    ///
    /// A copy in the data directory must have been begun with [`Self::begin_local_copy`]. If nobody
    /// needs it after this call, the version set removes it once that is safe.
    ///
    /// # Errors
    /// As [`Self::apply`].
    pub fn relocate(&self, meta: &FileMeta, to: FileLocation) -> Result<Option<Arc<Version>>> {
        let (id, source) = (meta.file_id, &self.ctx.source);
        let mut inner = self.inner.lock();
        let placed = inner.state.files.get(&id).cloned();
        let placed = placed.filter(|placed| placed.meta.location != to);
        let waits = to == FileLocation::ObjectStore && inner.state.deferred.contains_key(&id);
        let Some(placed) = placed.filter(|_| !waits) else {
            let is_local = { inner.state.files.get(&id) }
                .is_some_and(|placed| placed.meta.location == FileLocation::Local);
            drop(inner);
            if to == FileLocation::Local && !is_local {
                self.give_up_local_copy(id);
            }
            return Ok(None);
        };
        let moved = FileMeta {
            location: to,
            ..FileMeta::clone(&placed.meta)
        };
        let deletion = DeferredDeletion::of_object(id, inner.state.epoch());
        let mut edit = Edit {
            added: vec![(placed.level, placed.run, moved)],
            removed: vec![(placed.level, id)],
            deferred: match to {
                FileLocation::Local => vec![deletion],
                FileLocation::ObjectStore => Vec::new(),
            },
            ..Edit::default()
        };
        if to == FileLocation::ObjectStore {
            // Noted before the version with the local file may be gone.
            source.add_local_copy(id);
        }
        match self.commit(&mut inner, &mut edit, &[]) {
            Ok(version) => {
                if to == FileLocation::Local {
                    source.forget_local_copy(id);
                }
                Ok(Some(version))
            }
            Err(failure) => {
                let (error, settled) = match failure {
                    ApplyFailure::NoEffect(error) => (error, true),
                    ApplyFailure::Unknown(error) => (error, false),
                };
                match to {
                    FileLocation::Local if settled => {
                        drop(inner);
                        self.give_up_local_copy(id);
                    }
                    // A restart may find the file in the data directory, so it stays until the next
                    // manifest says where it is.
                    FileLocation::Local => inner.limbo.push(id),
                    // The file in the data directory is the one of the tree.
                    FileLocation::ObjectStore => source.forget_local_copy(id),
                }
                Err(error)
            }
        }
    }

    /// Call this before the file of an SST of the object store is written into the data directory.
    /// Returns false if a file of this name may be there, which must not be touched.
    pub fn begin_local_copy(&self, file_id: u64) -> bool {
        let inner = self.inner.lock();
        let placed = inner.state.files.get(&file_id);
        placed.is_some_and(|placed| placed.meta.location == FileLocation::ObjectStore)
            && self.ctx.source.add_local_copy(file_id)
    }

    /// Removes a copy in the data directory that was begun and is not needed.
    pub fn give_up_local_copy(&self, file_id: u64) {
        self.discard(&[file_id]);
    }
}
