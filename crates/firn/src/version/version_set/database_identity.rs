//! Identity and epochs: which database this is, and which ids its writer may allocate.

use super::VersionSet;
use crate::base::epoch::{DatabaseId, end_of_ids, end_of_names, first_id};
use crate::base::{Result, Seqno};
use crate::env::Env;
use crate::version::{DatabaseIdentity, Edit, ManifestState};
use std::sync::atomic::Ordering;

/// Draws a random database id if the state has no identity, because the database is new or was
/// written before identities existed. The first record of the next manifest makes it durable.
pub(super) fn identify(state: &mut ManifestState, env: &dyn Env) -> Result<()> {
    if state.identity.is_none() {
        let mut database = [0; 16];
        env.random(&mut database)?;
        state.identity = Some(DatabaseIdentity {
            epoch: 0,
            after: 0,
            database: DatabaseId(database),
        });
    }
    Ok(())
}

impl VersionSet {
    /// The identity of the database and the epoch of its writer.
    #[allow(clippy::missing_panics_doc)] // No caller can cause it.
    pub fn identity(&self) -> DatabaseIdentity {
        let identity = self.inner.lock().state.identity;
        identity.expect("drawn when the database was opened, at the latest")
    }

    /// Begins an epoch. Its commits get seqnos above `after`, and from now on the ids of files and
    /// log segments come from the epoch's own range, above those of all files that the open found
    /// there: such a file may be deleted later, when its id must not be that of a live file. The
    /// epoch is durable on return. No effect if it is already in force.
    ///
    /// # Errors
    /// `InvalidArgument` for an earlier epoch, or one beyond the last; those of [`Self::apply`].
    pub fn begin_epoch(&self, epoch: u64, after: Seqno) -> Result<()> {
        let identity = self.identity();
        if epoch == identity.epoch {
            return Ok(());
        }
        let identity = Some(DatabaseIdentity {
            epoch,
            after,
            ..identity
        });
        self.apply(Edit {
            identity,
            ..Edit::default()
        })?;
        let found = self.found.lock().end_of_ids_below(end_of_names(epoch));
        self.next_file_id
            .fetch_max(found.max(first_id(epoch)), Ordering::Relaxed);
        Ok(())
    }

    /// Ensures that no file id below `next` is allocated later, because the log names files with
    /// such ids, even if none of these files exists.
    pub fn reserve_file_ids(&self, next: u64) {
        let end = end_of_ids(self.identity().epoch);
        self.next_file_id
            .fetch_max(next.min(end - 1), Ordering::Relaxed);
    }
}
