//! Makes checkpoints of an open database, which backups copy.

use super::Db;
use crate::backup::{self, Checkpoint, CheckpointContext, RemoteInCheckpoint};
use crate::base::Result;
use crate::base::event_listener::Severity;
use std::path::Path;

impl Db {
    /// Makes a checkpoint of all commits so far in `target`, a directory that must not exist: a
    /// database that opens as this one would after a crash now. Commits continue meanwhile. With
    /// `flush`, memtables are flushed first, so that the copy has little log to replay. Files of
    /// the object store are copied.
    ///
    /// # Errors
    /// Those of [`backup::checkpoint`] and of [`Self::flush`].
    pub fn checkpoint(&self, target: &Path, flush: bool) -> Result<Checkpoint> {
        let mut each = |_, _| Ok(());
        self.checkpoint_with(target, flush, RemoteInCheckpoint::Copied(&mut each))
    }

    /// As [`Self::checkpoint`]; `remote` says what becomes of the files of the object store.
    ///
    /// # Errors
    /// As [`Self::checkpoint`].
    pub fn checkpoint_with(
        &self,
        target: &Path,
        flush: bool,
        remote: RemoteInCheckpoint<'_>,
    ) -> Result<Checkpoint> {
        let _one_at_a_time = self.checkpointing.lock();
        if flush {
            self.work.flush_all()?;
        }
        // Seal the active blob file, because a file that still grows would grow in the checkpoint,
        // too, and because each blob of the copied state must be in its file before the file is
        // linked.
        self.cx.blobs.seal_active();
        let held = self.cx.blobs.hold_links();
        let parts = CheckpointContext {
            env: &*self.env,
            dir: &self.dir,
            versions: &self.work.versions,
            wal: &self.work.wal,
            pipeline: &self.work.pipeline,
            installs: self.work.installs(),
        };
        let made = backup::checkpoint(parts, held, target, remote)?;
        let message = format!(
            "checkpoint {} in {} ms: up to commit {}, {} files of {} bytes, {} of them in the object store, {} log \
             segments, {} bytes copied; commits held up for {} us",
            target.display(),
            made.took_us / 1000,
            made.info.seqno,
            made.files,
            made.file_bytes,
            made.remote_files,
            made.segments,
            made.copied_bytes,
            made.held_us,
        );
        self.work.options.listener.log(Severity::Note, &message);
        Ok(made)
    }
}
