//! Makes checkpoints of an open database, which backups copy.

use super::Db;
use crate::backup::{self, Checkpoint, CheckpointContext, CheckpointHold, RemoteInCheckpoint};
use crate::base::event_listener::Severity;
use crate::base::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// The checkpoints under way.
#[derive(Default)]
pub(super) struct Checkpoints {
    /// Held until a checkpoint has linked all files. The copies from the object store come later:
    /// they may take hours, and commits may wait for another checkpoint.
    linking: Mutex<()>,
    /// The last names of their directories: one path may be written in several ways.
    names: Mutex<BTreeSet<OsString>>,
}

/// A checkpoint under way.
struct UnderWay<'a> {
    checkpoints: &'a Checkpoints,
    name: &'a OsStr,
}

impl Checkpoints {
    /// Refuses a second checkpoint of the same name: it would take the files of the first one for
    /// leftovers.
    fn begin<'a>(&'a self, target: &'a Path) -> Result<UnderWay<'a>> {
        let name = target.file_name().unwrap_or_default();
        if !self.names.lock().insert(name.to_owned()) {
            let message = format!("a checkpoint {} is being made", target.display());
            return Err(Error::new(ErrorKind::AlreadyExists, message));
        }
        Ok(UnderWay {
            checkpoints: self,
            name,
        })
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.checkpoints.names.lock().remove(self.name);
    }
}

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

    /// As [`Self::checkpoint`]; `remote` says what becomes of the files of the object store. Other
    /// checkpoints are made meanwhile, unless they have the same last name.
    ///
    /// # Errors
    /// As [`Self::checkpoint`].
    pub fn checkpoint_with(
        &self,
        target: &Path,
        flush: bool,
        remote: RemoteInCheckpoint<'_>,
    ) -> Result<Checkpoint> {
        let _under_way = self.checkpoints.begin(target)?;
        let turn = self.checkpoints.linking.lock();
        if flush {
            self.work.flush_all()?;
        }
        // Seal the active blob file, because a file that still grows would grow in the checkpoint,
        // too, and because each blob of the copied state must be in its file before the file is
        // linked.
        self.cx.blobs.seal_active();
        let held = CheckpointHold {
            blobs: self.cx.blobs.hold_links(),
            turn,
        };
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
