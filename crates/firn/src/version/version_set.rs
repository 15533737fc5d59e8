//! The version set: makes edits durable, then installs them.

mod database_identity;
mod rewrite;

use super::delete_pacer::DeletePacer;
use super::file_handle::FileFate;
use super::load_manifest::load;
use super::manifest::{
    ManifestWriter, NextCurrent, ROOM, clear_away, clear_unfinished, manifest_name,
    parse_manifest_name, read_current, remove_unfinished, unfinished_name,
};
use super::{DamagedFile, Edit, FileHandle, FileSource, ManifestState, Version};
use crate::base::epoch::{end_of_ids, end_of_names};
use crate::base::event_listener::{Listener, Severity};
use crate::base::health::Health;
use crate::base::pause_points::{self, PausePoint};
use crate::base::work_count;
use crate::base::{CounterChanges, CounterValue, Error, ErrorKind, FailureClass, Result, Seqno};
use crate::env::Env;
use crate::store::{FileKind, ReservePart, parse_file_name};
use crate::wal::Gtid;
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// A background thread rewrites the manifest as one record once the manifest is longer than this
/// many bytes and longer than [`ROTATE_FACTOR`] times its first record.
const ROTATE_SIZE_MIN: u64 = 1 << 20;
const ROTATE_FACTOR: u64 = 3;

/// If the background thread does not come to rewrite the manifest, it must not grow without bound:
/// once the manifest is this many times as long as when the background thread should have rewritten
/// it, the next edit rewrites it before it returns.
const ROTATE_BY_EDIT: u64 = 2;

/// Data files that are given up together are removed at once if they have at most this many bytes
/// in total. Otherwise the delete pacer spreads their removal.
const DISCARD_MAX: u64 = 4 << 20;

/// An open or a close of the database deletes at most this many obsolete files. The others are left
/// to the delete pacer, or to the next open.
const DELETED_AT_ONCE: usize = 128;

/// Assumed size in bytes of a file that nothing names. Asking for the sizes of hundreds of
/// thousands of files would take seconds, and only the pacer needs them.
const STRAY_BYTES: u64 = 32 << 20;

/// A message names at most this many files.
const NAMED_FILES_MAX: usize = 10;

/// An edit that only adds files must leave this many bytes of the space that is set aside behind
/// the manifest. Edits that remove files may use them, so that a full disk can still be emptied.
const LEFT_BY_ADDITIONS: u64 = ROOM / 4;

/// Assumed size in bytes of an edit's field for one added file: two keys and some numbers.
const FILE_BYTES: u64 = ROOM / 4;

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
    /// The files that were in the directory when it was opened, as far as nobody has taken them.
    found: Mutex<DirectoryFiles>,
    /// Number of [`FileDeletionHold`] guards that exist now.
    held: Arc<AtomicUsize>,
}

/// Ids of files in the directory.
#[derive(Default)]
struct DirectoryFiles {
    ssts: Vec<u64>,
    blobs: Vec<u64>,
    sorts: Vec<u64>,
    manifests: Vec<u64>,
}

impl DirectoryFiles {
    fn of(names: &[String]) -> Self {
        let mut found = Self::default();
        for name in names {
            match parse_file_name(name) {
                Some((FileKind::Sst, id)) => found.ssts.push(id),
                Some((FileKind::Blob, id)) => found.blobs.push(id),
                Some((FileKind::Sort, id)) => found.sorts.push(id),
                None => found.manifests.extend(parse_manifest_name(name)),
            }
        }
        found.ssts.sort_unstable();
        found
    }

    /// An id above those of all SSTs, manifests and blob files here whose ids are below `limit`.
    fn end_of_ids_below(&self, limit: u64) -> u64 {
        let ids = self.ssts.iter().chain(&self.manifests).chain(&self.blobs);
        ids.filter(|id| **id < limit).max().map_or(0, |id| id + 1)
    }
}

/// While a guard of this type exists, the version set deletes no data file.
pub struct FileDeletionHold {
    held: Arc<AtomicUsize>,
    obsolete: HashSet<u64>,
}

impl FileDeletionHold {
    /// Whether the SST waited for its deletion when the hold began. Neither a state nor a log
    /// record that is read during the hold needs it.
    pub fn was_obsolete(&self, file_id: u64) -> bool {
        self.obsolete.contains(&file_id)
    }
}

impl Drop for FileDeletionHold {
    fn drop(&mut self) {
        self.held.fetch_sub(1, Ordering::SeqCst);
    }
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

/// The version that an edit leads to, and the handles of the files that the edit removes or moves.
struct NextVersion {
    version: Version,
    gone: Vec<(u8, Arc<FileHandle>)>,
}

/// Why an edit failed, and whether it may still take effect at a restart.
enum ApplyFailure {
    NoEffect(Error),
    Unknown(Error),
}

impl VersionSet {
    /// Opens the tree of a data directory, or creates an empty one. The open starts a new manifest,
    /// so nothing is ever appended behind a torn tail. If the disk is full, the old manifest stays
    /// in force and the tree is read-only until there is room. SSTs that the manifest does not
    /// name, and old manifests, stay until [`Self::remove_strays`].
    ///
    /// # Errors
    /// `Corruption` if the manifest is damaged, or describes an impossible tree, or is missing
    /// while SSTs exist. `Unsupported` for a later format, or a file outside the data directory.
    /// `NoSpace` if a new database finds no room. `Io`.
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
        for placed in state.files.values() {
            placed.meta.check_local()?;
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

    /// Gives up data files that no edit has named; each pair is the id and the size in bytes. Up to
    /// 4 MiB in total are removed at once. If there is more, the delete pacer spreads the removal,
    /// because a client waits for the caller.
    pub fn give_up(&self, files: &[(u64, u64)]) {
        let ids: Vec<u64> = files.iter().map(|(id, _)| *id).collect();
        if files.iter().map(|(_, size)| size).sum::<u64>() <= DISCARD_MAX {
            return self.discard(&ids);
        }
        for &(id, size) in files {
            self.ctx.source.put_obsolete(id, size);
        }
    }

    /// Removes at once the data files with these ids, which no edit has named. While a
    /// [`FileDeletionHold`] exists, or if a removal fails, the file becomes obsolete instead, and
    /// [`Self::delete_obsolete`] removes it later.
    pub fn discard(&self, ids: &[u64]) {
        let source = &self.ctx.source;
        for &id in ids {
            if source.between_deletions(|_| self.held.load(Ordering::SeqCst)) > 0 {
                source.put_obsolete(id, 0);
                continue;
            }
            match source.store().remove(id) {
                Ok(()) => {}
                Err(e) if *e.kind() == ErrorKind::NotFound => {}
                Err(_) => source.put_obsolete(id, 0),
            }
        }
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

    /// Until the guard is dropped, no file is deleted: neither one that is in a state returned by
    /// [`Self::state`] during the hold, nor one that later log records name.
    pub fn hold_files(&self) -> FileDeletionHold {
        // Increment the number of holds under the lock of the list of obsolete files. A thread that
        // deletes files holds this lock while it checks that the number is 0 and takes a file from
        // the list. Without the lock, it might find 0 and then take a file that has become obsolete
        // only after this hold began.
        let obsolete = self.ctx.source.between_deletions(|waiting| {
            self.held.fetch_add(1, Ordering::SeqCst);
            Vec::from_iter(waiting)
        });
        FileDeletionHold {
            held: Arc::clone(&self.held),
            obsolete: HashSet::from_iter(obsolete),
        }
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

    fn commit(
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
        let (version, gone) = current.with_open(edit, &removed, &self.ctx.source, open)?;
        match version.check(edit) {
            Some(what) => Err(Error::invalid(format!("edit refused: {what}"))),
            None => Ok(Some(NextVersion { version, gone })),
        }
    }

    fn install(&self, inner: &mut Inner, edit: &Edit, next: Option<NextVersion>) -> Arc<Version> {
        inner.state.apply(edit);
        let runs = edit.added.iter().map(|(_, run, _)| *run);
        inner.installed_run = runs.chain([inner.installed_run]).max().unwrap_or(0);
        let Some(next) = next else {
            return self.current();
        };
        self.current.store(Arc::new(next.version));
        let end = match edit.added.is_empty() {
            true => FileFate::Dropped,
            false => FileFate::Replaced,
        };
        // Mark the removed files as obsolete: when the last handle of such a file is dropped, the
        // file is put on the list of files to delete. `gone` holds a handle of each, so none is
        // dropped before it is marked, even if no version has it any more.
        let gone = next.gone.iter().map(|(_, file)| file);
        gone.filter(|file| !inner.state.files.contains_key(&file.file_id))
            .for_each(|file| file.mark_obsolete(end));
        self.current()
    }

    /// Makes sure that `edit` fits into the space set aside behind the manifest, and that `left`
    /// bytes remain behind it. If it does not fit, starts a new manifest, whose space is in the
    /// disk reserve.
    fn find_room(&self, inner: &mut Inner, edit: &Edit, left: u64) -> Result<()> {
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

    /// Starts a new manifest and puts it in force. A manifest that is being written beside the one
    /// in force is given up. After an error, `inner.broken` says whether the old manifest may still
    /// be appended to.
    fn rotate(&self, inner: &mut Inner) -> Result<()> {
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
    fn put_in_force(&self, inner: &mut Inner, writer: ManifestWriter) -> u64 {
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
    fn rotation_failed(&self, inner: &mut Inner, error: Error) -> Error {
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
    fn clear_manifest_away(&self, id: u64) {
        let path = self.ctx.dir.join(manifest_name(id));
        let reserve = self.ctx.source.store().reserve();
        let _ = clear_away(&*self.ctx.env, &path, ReservePart::Manifest, reserve);
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

    /// Poisons the engine, if nobody knows what the failed call has done. Returns the error.
    fn fail(&self, error: Error) -> Error {
        if error.class() == FailureClass::Poison && self.ctx.health.poison(error.clone()) {
            let what = format!("the manifest cannot be written: {error}; writes stop");
            self.ctx.listener.log(Severity::Error, &what);
        }
        error
    }

    /// Deletes all obsolete files, which no version holds and no manifest names. Deletes none once
    /// writes are poisoned. The next call retries a failed deletion. Returns the number of deleted
    /// files.
    ///
    /// # Errors
    /// `Io`: the first error; the other files are deleted nevertheless.
    pub fn delete_obsolete(&self) -> Result<usize> {
        self.delete_while(|_| true)
    }

    /// As [`Self::delete_obsolete`], but deletes at most [`DELETED_AT_ONCE`] files, so that it
    /// never takes long.
    ///
    /// # Errors
    /// As [`Self::delete_obsolete`].
    pub fn delete_few(&self) -> Result<usize> {
        let mut left = DELETED_AT_ONCE;
        self.delete_while(|_| {
            let may = left > 0;
            left = left.saturating_sub(1);
            may
        })
    }

    /// As [`Self::delete_obsolete`], but no faster than the pacer allows at `now_us`, microseconds
    /// of the monotonic clock. The caller repeats it as long as there are obsolete files. Ends
    /// before the next file once `stopping` is set.
    ///
    /// # Errors
    /// As [`Self::delete_obsolete`].
    pub fn delete_paced(&self, now_us: u64, stopping: &AtomicBool) -> Result<usize> {
        let mut pacer = self.pacer.lock();
        match self.ctx.source.newly_obsolete() {
            0 => {}
            bytes => pacer.obsolete(now_us, bytes),
        }
        pacer.earn(now_us, self.ctx.source.obsolete().1);
        self.delete_while(|size| !stopping.load(Ordering::Relaxed) && pacer.take(size))
    }

    /// Number of obsolete files that wait for deletion, and the sum of their stored bytes.
    pub fn obsolete(&self) -> (u64, u64) {
        self.ctx.source.obsolete()
    }

    fn delete_while(&self, mut may: impl FnMut(u64) -> bool) -> Result<usize> {
        if self.ctx.health.check().is_err() {
            return Ok(0);
        }
        let source = &self.ctx.source;
        let mut deleted = 0;
        let mut failed = Vec::new();
        let mut first = None;
        let next = || pause_points::at(PausePoint::ObsoleteWanted);
        // Check before each file whether a [`FileDeletionHold`] exists, under the lock under which
        // the file is taken from the list of obsolete files. A file that became obsolete before the
        // hold began is safe to delete: no state read during the hold contains it.
        let mut unheld = |size| self.held.load(Ordering::SeqCst) == 0 && may(size);
        while let Some((id, size)) = {
            next();
            source.take_obsolete(&mut unheld)
        } {
            match source.store().remove(id) {
                Ok(()) => deleted += 1,
                Err(e) if *e.kind() == ErrorKind::NotFound => {}
                Err(e) => {
                    failed.push((id, size));
                    first.get_or_insert(e);
                }
            }
        }
        failed
            .into_iter()
            .for_each(|(id, size)| source.put_obsolete(id, size));
        first.map_or(Ok(deleted), Err)
    }

    /// Ids of the data files of this kind that were in the directory when it was opened. Later
    /// calls return none.
    pub fn take_found(&self, kind: FileKind) -> Vec<u64> {
        let mut found = self.found.lock();
        std::mem::take(match kind {
            FileKind::Sst => &mut found.ssts,
            FileKind::Blob => &mut found.blobs,
            FileKind::Sort => &mut found.sorts,
        })
    }

    /// Removes the data files and manifests that were in the directory at the open, except for
    /// those that the manifest names and those whose ids are in `keep`, which are named by the log.
    /// If there are many, only some are removed at once, and the others become obsolete files that
    /// the delete pacer removes later: after the drop of a large table, a stop leaves most of its
    /// files. A file that is removed later must have an id that no new file gets, so those that the
    /// epoch may still allocate are removed at once. Must be called after the log is replayed and
    /// its epoch is taken over. A second call has no effect.
    pub fn remove_strays(&self, keep: &HashSet<u64>) {
        let on_disk = self.take_found(FileKind::Sst);
        let old_manifests = std::mem::take(&mut self.found.lock().manifests);
        let inner = self.inner.lock();
        let live = &inner.state.files;
        let present: HashSet<u64> = on_disk.iter().copied().collect();
        let missing: Vec<_> = live.keys().filter(|id| !present.contains(id)).collect();
        if !missing.is_empty() {
            // Files of the tree are missing, and nobody knows why. Remove no stray files: a repair
            // may need them.
            let what = format!(
                "{} SSTs are missing; no stray file is removed: {}",
                missing.len(),
                some_of(missing.iter().copied())
            );
            self.ctx.listener.log(Severity::Error, &what);
            return;
        }
        let strays: Vec<u64> = on_disk
            .iter()
            .copied()
            .filter(|id| !live.contains_key(id) && !keep.contains(id))
            .collect();
        if !strays.is_empty() {
            let what = format!(
                "removing {} SSTs that neither manifest nor log names: {}",
                strays.len(),
                some_of(strays.iter())
            );
            self.ctx.listener.log(Severity::Note, &what);
        }
        drop(inner);
        let next = self.next_file_id.load(Ordering::Relaxed);
        let (used, unused): (Vec<u64>, Vec<u64>) = strays.into_iter().partition(|id| *id < next);
        self.discard(&unused);
        used.into_iter()
            .for_each(|id| self.ctx.source.put_obsolete(id, STRAY_BYTES));
        for id in old_manifests {
            self.clear_manifest_away(id);
        }
        if let Err(e) = self.delete_few() {
            let what = format!("a stray SST cannot be removed: {e}");
            self.ctx.listener.log(Severity::Warning, &what);
        }
    }
}

/// The first few of `ids`, for a message.
fn some_of<'a>(ids: impl ExactSizeIterator<Item = &'a u64>) -> String {
    let more = match ids.len() > NAMED_FILES_MAX {
        true => ", …",
        false => "",
    };
    let ids: Vec<String> = ids.take(NAMED_FILES_MAX).map(u64::to_string).collect();
    format!("{}{more}", ids.join(", "))
}

fn is_full<T>(tried: &Result<T>) -> bool {
    matches!(tried, Err(e) if *e.kind() == ErrorKind::NoSpace)
}

fn rotate_at(writer: &ManifestWriter) -> u64 {
    ROTATE_SIZE_MIN.max(ROTATE_FACTOR * writer.len())
}

/// Refuses the id of a new manifest beyond the epoch, because the next open would report it as
/// corruption.
fn check_ids(state: &ManifestState, id: u64) -> Result<()> {
    match id + 1 >= end_of_ids(state.epoch()) {
        true => Err(Error::unsupported(format!(
            "the ids of epoch {} are used up",
            state.epoch()
        ))),
        false => Ok(()),
    }
}

/// Writes `state` as a new manifest and puts it in force.
fn rotate(
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

#[cfg(test)]
mod tests;
