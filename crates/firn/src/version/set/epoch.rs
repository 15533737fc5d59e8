//! Which database this is, and which numbers its writer may give out.

use super::VersionSet;
use crate::base::epoch::{DatabaseId, end_of_ids, first_id};
use crate::base::{Result, Seqno};
use crate::env::Env;
use crate::version::{Edit, Identity, State};
use std::sync::atomic::Ordering;

/// Draws the identity of a database that has none: a new one, or one of a version that knew of none. The first
/// record of the manifest that is about to begin makes it durable.
pub(super) fn identify(state: &mut State, env: &dyn Env) -> Result<()> {
    if state.identity.is_none() {
        let mut database = [0; 16];
        env.random(&mut database)?;
        state.identity = Some(Identity {
            epoch: 0,
            after: 0,
            database: DatabaseId(database),
        });
    }
    Ok(())
}

impl VersionSet {
    /// The database and the epoch of its writer.
    pub fn identity(&self) -> Identity {
        let identity = self.inner.lock().state.identity;
        identity.expect("drawn when the database was opened, at the latest")
    }

    /// Begins an epoch, whose commits lie above `after`: ids of files and log segments are its own from now on.
    /// Durable on return. Does nothing if that epoch is in force.
    ///
    /// # Errors
    /// `InvalidArgument` for an earlier epoch, or one beyond the last; those of [`Self::apply`].
    pub fn begin_epoch(&self, epoch: u64, after: Seqno) -> Result<()> {
        let identity = self.identity();
        if epoch == identity.epoch {
            return Ok(());
        }
        let identity = Some(Identity {
            epoch,
            after,
            ..identity
        });
        self.apply(Edit {
            identity,
            ..Edit::default()
        })?;
        self.next_file_id
            .fetch_max(first_id(epoch), Ordering::Relaxed);
        Ok(())
    }

    /// Ids below `next` are taken: the log names files with such ids, of which nothing may be left.
    pub fn reserve_file_ids(&self, next: u64) {
        let end = end_of_ids(self.identity().epoch);
        self.next_file_id
            .fetch_max(next.min(end - 1), Ordering::Relaxed);
    }
}
