//! Ephemeral databases: each stands beside another database, its host database, and exists only as
//! long as that is open.
//!
//! An ephemeral database has no log, syncs nothing and is never recovered. Everything else is as in
//! every database: memtables are flushed to files, compactions drop garbage, large values lie in
//! blob files. It uses the block cache, the memory limit and the I/O rate of its host database.
//!
//! The block cache, which a host database shares with its ephemeral databases, identifies blocks by
//! file ids. So each ephemeral database takes its file ids from an epoch of its own: the first from
//! the last epoch, the next from the one before, and so on.

use super::{Db, OpenedOn};
use crate::base::epoch::EPOCH_MAX;
use crate::base::options::{MutableOptions, Options};
use crate::base::{Error, Result};
use crate::version::VersionSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Db {
    /// Opens an ephemeral database in `dir`. Removes everything that the directory contained.
    ///
    /// # Errors
    /// `Busy`, `NoSpace`, `Io`; `Unsupported` if the host database has opened too many ephemeral
    /// databases.
    pub fn open_ephemeral(&self, dir: &Path) -> Result<Arc<Self>> {
        self.remove_ephemeral(dir)?;
        let host = self.options();
        let mutable = MutableOptions::of_guest(&host.mutable);
        // Only the host database warns of old snapshots.
        mutable.snapshot_age_warning_s.store(0, Ordering::Relaxed);
        let options = Options {
            mutable: Arc::new(mutable),
            row_cache_size: 0,
            background_jobs: host.background_jobs.min(1),
            ephemeral: true,
            log_archive_dir: None,
            allocator: None,
            ..host.clone()
        };
        Self::open_at(OpenedOn::Host(self), dir, options, None, None)
    }

    /// Removes the directory of an ephemeral database that was closed, or that an earlier process
    /// has left behind. Does nothing if the directory is missing.
    ///
    /// # Errors
    /// `Io`.
    pub fn remove_ephemeral(&self, dir: &Path) -> Result<()> {
        if !self.env.exists(dir)? {
            return Ok(());
        }
        for name in self.env.list_dir(dir)? {
            self.env.remove(&dir.join(name))?;
        }
        self.env.remove_dir(dir)
    }

    /// As [`Self::remove_ephemeral`], for each directory in `parent`.
    ///
    /// # Errors
    /// `Io`.
    pub fn remove_ephemeral_in(&self, parent: &Path) -> Result<()> {
        if !self.env.exists(parent)? {
            return Ok(());
        }
        for name in self.env.list_dir(parent)? {
            self.remove_ephemeral(&parent.join(name))?;
        }
        Ok(())
    }
}

/// Gives a new ephemeral database its epoch.
pub(super) fn begin(host: &Db, versions: &VersionSet) -> Result<()> {
    let number = host.ephemeral_opened.fetch_add(1, Ordering::Relaxed);
    let epoch = EPOCH_MAX.saturating_sub(number);
    if epoch <= host.work.versions.identity().epoch {
        return Err(Error::unsupported("epochs of temporary files are used up"));
    }
    versions.begin_epoch(epoch, 0)
}
