//! The version set: makes edits durable, then installs them.

mod apply;
mod database_identity;
mod deletion;
mod relocation;
mod remote_deletion;
mod rewrite;
mod rotation;

pub use deletion::FileDeletionHold;
pub use remote_deletion::RemoteDeletions;

use super::delete_pacer::DeletePacer;
use super::load_manifest::load;
use super::manifest::{ManifestWriter, clear_unfinished, read_current, remove_unfinished};
use super::{DamagedFile, Edit, FileHandle, FileSource, ManifestState, Version};
use crate::base::epoch::end_of_names;
use crate::base::event_listener::{Listener, Severity};
use crate::base::health::Health;
use crate::base::work_count;
use crate::base::{CounterChanges, CounterValue, Error, ErrorKind, FailureClass, Result, Seqno};
use crate::env::Env;
use crate::store::FileKind;
use crate::wal::Gtid;
use arc_swap::ArcSwap;
use deletion::DirectoryFiles;
use parking_lot::Mutex;
use remote_deletion::{ObjectDeletions, ObjectHold};
use rotation::{is_full, rotate, rotate_at};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The parts of the engine that a version set uses.
#[derive(Clone)]
pub struct VersionSetContext {
    /// Accesses `CURRENT` and the manifests in the file system.
    pub env: Arc<dyn Env>,
    /// The data directory, which holds `CURRENT` and the manifests.
    pub dir: PathBuf,
    /// Opens the SSTs and collects obsolete ones.
    pub source: Arc<FileSource>,
    /// The version set poisons it when the outcome of an edit is unknown.
    pub health: Arc<Health>,
    /// Receives the log messages.
    pub listener: Listener,
}

/// Holds the current version and writes the manifest that makes it durable.
///
/// Invariants: the current version equals the content of the manifest, and every file it names is
/// durable. A file id or run number is never allocated twice, across restarts too. An L0 run is
/// installed with a higher number than every run before it. A file is deleted only after the edit
/// that removed it is durable, and never once writes are poisoned.
///
/// Steps of an edit: check it against the current state → sync the directory of the SSTs (their
/// writers have synced the files) → append the edit's record, sync → append the sync marker, sync →
/// install the new version.
///
/// Failures: if a step before the record fails, the edit has no effect and the files it adds become
/// obsolete. If appending or syncing the record fails, the outcome is unknown: a restart may find
/// the edit or not. If the cause is a full disk, the next edit first writes a new manifest without
/// the failed edit, which settles the outcome; until then the files that the failed edit adds are
/// kept. Any other cause poisons the engine: a second sync after a failed one proves nothing.
///
/// A long manifest is rewritten beside the one in force, without the mutex `inner`, because it
/// names all files; see [`Self::rewrite_manifest`].
///
/// Locks: `inner` is held over a whole edit, syncs included. The mutex `pacer` and the mutex
/// `inner` are never held together. A thread that holds either of them may lock the list of
/// obsolete files. Readers of the current version take no lock.
///
/// Rejected: appending to a manifest after a failed append, because half a record would stand in
/// its middle; and a lock-free list of edits, because an edit costs two syncs, beside which the
/// mutex costs nothing.
pub struct VersionSet {
    ctx: VersionSetContext,
    current: ArcSwap<Version>,
    next_file_id: AtomicU64,
    next_run_number: AtomicU64,
    inner: Mutex<Inner>,
    /// The last global transaction id of each replication domain.
    gtids: Mutex<BTreeMap<u32, Gtid>>,
    pacer: Mutex<DeletePacer>,
    /// The objects that no version needs any more.
    object_deletions: Mutex<ObjectDeletions>,
    /// While one of the directories of a hold exists, no object is deleted. The mutex is held for
    /// a look at a few paths at most, and no other is taken meanwhile.
    object_holds: Mutex<Vec<Arc<ObjectHold>>>,
    /// The files that were in the directory when it was opened, as far as nobody has taken them.
    found: Mutex<DirectoryFiles>,
    /// Number of [`FileDeletionHold`] guards that exist now.
    held: Arc<AtomicUsize>,
}

struct Inner {
    state: ManifestState,
    /// `None` if no new manifest could be written since the directory was opened, because the disk
    /// was full. The tree is read-only then.
    writer: Option<ManifestWriter>,
    /// Id of the manifest that `CURRENT` names.
    manifest_id: u64,
    /// Length in bytes from which on the manifest is rewritten.
    rotate_at: u64,
    /// Nothing more may be appended to the current manifest, because an append or a rotation
    /// failed.
    broken: bool,
    /// Ids of files added by failed edits that a restart may still find in the manifest. The files
    /// must be kept until a new manifest is written.
    limbo: Vec<u64>,
    /// The highest run number ever installed.
    installed_run: u64,
    /// Changed counters that no edit may have stored yet.
    unsaved: BTreeMap<u64, CounterValue>,
    /// The edits since the state that [`VersionSet::rewrite_manifest`] is writing to the manifest
    /// with this id. `None` if it writes none, or if what it writes is given up.
    rewriting: Option<(u64, Vec<Edit>)>,
    /// The last try to write a manifest beside the one in force has failed. The next manifest is
    /// written by an edit, which may use the disk reserve.
    rewrite_failed: bool,
}

impl VersionSet {
    /// Opens the tree of a data directory, or creates an empty one. The open starts a new manifest,
    /// so nothing is ever appended behind a torn tail. If the disk is full, the old manifest stays
    /// in force and the tree is read-only until there is room. SSTs that the manifest does not
    /// name, and old manifests, stay until [`Self::remove_strays`].
    ///
    /// # Errors
    /// `Corruption` if the manifest is damaged, or describes an impossible tree, or is missing
    /// while SSTs exist. `Unsupported` for a later format, or a file in an object store if the
    /// source has none. `NoSpace` if a new database finds no room. `Io`.
    pub fn open(ctx: VersionSetContext) -> Result<Self> {
        let loaded = load(&*ctx.env, &ctx.dir)?;
        // List the directory once: it may have hundreds of thousands of files.
        let names = ctx.env.list_dir(&ctx.dir)?;
        remove_unfinished(&*ctx.env, &ctx.dir, &names)?;
        let mut found = DirectoryFiles::of(&names);
        drop(names);
        if loaded.is_none() && !found.ssts.is_empty() {
            let what = format!("missing, but there are {} SSTs", found.ssts.len());
            return Err(Error::corruption("CURRENT", 0, what));
        }
        let mut state = ManifestState::default();
        let in_force = loaded.as_ref().map(|loaded| loaded.manifest_id);
        if let Some(loaded) = loaded {
            if loaded.torn > 0 {
                let what = format!("{}: dropped a torn edit", loaded.reader.name());
                ctx.listener.log(Severity::Note, &what);
            }
            state = loaded.state;
        }
        if ctx.source.store().remote().is_none() {
            relocation::check_all_local(&state)?;
        }
        let version = Version::of_state(&state, &ctx.source);
        if let Some(what) = version.check_all() {
            return Err(Error::corruption("MANIFEST", 0, what));
        }
        // File names with ids beyond this epoch come from another writer. Ignore them, or
        // `next_file_id` would leave the range of the epoch.
        let seen = found.end_of_ids_below(end_of_names(state.epoch()));
        state.next_file_id = state.next_file_id.max(seen);
        let next_file_id = AtomicU64::new(state.next_file_id);
        database_identity::identify(&mut state, &*ctx.env)?;
        let mut rotated = rotate(&ctx, &next_file_id, &mut state);
        if is_full(&rotated) && in_force.is_some() {
            let reserve = ctx.source.store().reserve();
            clear_unfinished(&*ctx.env, &ctx.dir, &found.manifests, reserve)?;
            rotated = rotate(&ctx, &next_file_id, &mut state);
        }
        let (writer, manifest_id) = match (rotated, in_force) {
            (Ok(writer), _) => {
                let id = writer.id();
                (Some(writer), id)
            }
            (Err(e), Some(in_force)) if *e.kind() == ErrorKind::NoSpace => {
                let what = format!("{e}; the manifest is as it was, until there is room");
                ctx.listener.log(Severity::Warning, &what);
                (None, read_current(&*ctx.env, &ctx.dir)?.unwrap_or(in_force))
            }
            (Err(e), _) => return Err(e),
        };
        // If no new manifest could be written, keep all old ones: `CURRENT` may have been renamed
        // without being durable, so after a power cut it may name any of them.
        if writer.is_none() {
            found.manifests.clear();
        }
        // No version of an earlier run needs these objects any more.
        let waiting = state.deferred.values().filter(|d| d.kind == FileKind::Sst);
        ctx.source.put_obsolete_objects(waiting.map(|d| d.file));
        let state_gtids = state.gtids.clone();
        let set = Self {
            current: ArcSwap::from_pointee(version),
            next_file_id,
            next_run_number: AtomicU64::new(state.next_run_number),
            inner: Mutex::new(Inner {
                installed_run: state.next_run_number - 1,
                rotate_at: writer.as_ref().map_or(0, rotate_at),
                broken: writer.is_none(),
                writer,
                manifest_id,
                limbo: Vec::new(),
                unsaved: BTreeMap::new(),
                rewriting: None,
                rewrite_failed: false,
                state,
            }),
            gtids: Mutex::new(state_gtids),
            pacer: Mutex::default(),
            object_deletions: Mutex::default(),
            object_holds: Mutex::default(),
            found: Mutex::new(found),
            held: Arc::default(),
            ctx,
        };
        Ok(set)
    }

    /// The current version.
    pub fn current(&self) -> Arc<Version> {
        self.current.load_full()
    }

    /// Installs a version that differs from the current one only in that `files` have
    /// fresh, unopened handles. The memory of the old handles is freed with the last older
    /// version.
    pub fn close_files(&self, files: &[Arc<FileHandle>]) -> Arc<Version> {
        // The mutex `inner` serializes all changes of the current version.
        let _inner = self.inner.lock();
        let next = Arc::new(self.current.load().with_fresh(files));
        self.current.store(Arc::clone(&next));
        next
    }

    /// Installs a version that differs from the current one only in that it has `damaged` in
    /// quarantine. Returns `None` if the current version does not have the file, or has it in
    /// quarantine already.
    pub fn quarantine(&self, damaged: DamagedFile) -> Option<Arc<Version>> {
        // The mutex `inner` serializes all changes of the current version.
        let _inner = self.inner.lock();
        let next = Arc::new(self.current.load().with_quarantine(damaged)?);
        self.current.store(Arc::clone(&next));
        Some(next)
    }

    /// Installs a version that differs from the current one only in that the file is not in
    /// quarantine.
    pub fn release(&self, file_id: u64) -> Arc<Version> {
        let _inner = self.inner.lock();
        let next = Arc::new(self.current.load().without_quarantine(file_id));
        self.current.store(Arc::clone(&next));
        next
    }

    /// Allocates a file id that was never used before.
    pub fn new_file_id(&self) -> u64 {
        self.next_file_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Allocates a run number, higher than all before. Flushes allocate theirs in the order of
    /// their memtables and install in that order. An install out of order is refused.
    pub fn new_run_number(&self) -> u64 {
        self.next_run_number.fetch_add(1, Ordering::Relaxed)
    }

    /// No recovery needs log segments with numbers below this one.
    pub fn log_number(&self) -> u64 {
        self.inner.lock().state.log_number
    }

    /// All commits up to this seqno are in SSTs of the tree.
    pub fn last_seqno(&self) -> Seqno {
        self.inner.lock().state.last_seqno
    }

    /// The persisted counters, by counter id.
    pub fn counters(&self) -> BTreeMap<u64, CounterValue> {
        self.inner.lock().state.counters.clone()
    }

    /// Returns the counters whose values the manifest does not have yet; the next edit stores them.
    /// `current` returns the changes since its last call. The version set keeps a change until an
    /// edit has stored it, so no change is lost with an edit that fails. A counter that the
    /// manifest does not have and whose value is zero is omitted. Counters that are gone are
    /// forgotten, because their tables are dropped. `current` is called under the mutex `inner`, so
    /// that concurrent calls take the changes in their order.
    pub fn changed_counters(
        &self,
        current: impl FnOnce() -> CounterChanges,
    ) -> Vec<(u64, CounterValue)> {
        let inner = &mut *self.inner.lock();
        let changes = current();
        work_count::tables_seen(inner.unsaved.len());
        inner.unsaved.extend(changes.values);
        let known = &mut inner.state.counters;
        for counter in &changes.dropped {
            known.remove(counter);
            inner.unsaved.remove(counter);
        }
        inner
            .unsaved
            .retain(|counter, value| *value > known.get(counter).copied().unwrap_or_default());
        inner.unsaved.iter().map(|(&c, &v)| (c, v)).collect()
    }

    /// The blob files whose blobs were moved: maps the file id that blob references contain to the
    /// id of the file that holds the blobs now.
    pub fn blobs_moved(&self) -> BTreeMap<u64, u64> {
        self.inner.lock().state.blobs_moved.clone()
    }

    /// The last global transaction id of each replication domain, by domain.
    pub fn gtids(&self) -> BTreeMap<u32, Gtid> {
        self.gtids.lock().clone()
    }

    /// Notes global transaction ids that are durable in the log and that follow those noted before.
    /// The next edit that raises the log number stores them, because the log segments they are in
    /// may then be deleted.
    pub fn note_gtids(&self, gtids: &BTreeMap<u32, Gtid>) {
        self.gtids.lock().extend(gtids);
    }

    /// Pairs of a seqno and the wall-clock time, in microseconds since 1970, at which this seqno
    /// was the newest. The oldest pair comes first.
    pub fn time_pairs(&self) -> Vec<(Seqno, u64)> {
        self.inner.lock().state.time_pairs.iter().copied().collect()
    }

    /// The state of the manifest, with the next file id and run number as allocated so far.
    pub fn state(&self) -> ManifestState {
        let inner = self.inner.lock();
        ManifestState {
            next_file_id: self.next_file_id.load(Ordering::Relaxed),
            next_run_number: self.next_run_number.load(Ordering::Relaxed),
            ..inner.state.clone()
        }
    }

    /// The source of the SSTs.
    pub fn source(&self) -> &Arc<FileSource> {
        &self.ctx.source
    }

    /// Id of the manifest in force.
    pub fn manifest_id(&self) -> u64 {
        self.inner.lock().manifest_id
    }

    /// Poisons the engine, if nobody knows what the failed call has done. Returns the error.
    fn fail(&self, error: Error) -> Error {
        if error.class() == FailureClass::Poison && self.ctx.health.poison(error.clone()) {
            let what = format!("the manifest cannot be written: {error}; writes stop");
            self.ctx.listener.log(Severity::Error, &what);
        }
        error
    }
}

#[cfg(test)]
mod tests;
