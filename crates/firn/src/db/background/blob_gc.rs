//! Garbage collection of blob files: finds the live blobs and gives back the room of the others.
//!
//! A blob is live as long as an entry refers to it. One scan over one super version (its memtables,
//! and the SSTs that name a chosen file) finds the live blobs of many files at once:
//!
//! 1. Choose sealed files that no transaction holds and of which enough bytes are garbage. *Then*
//!    pin a super version, the view. After that, a new reference to a chosen file can only be a
//!    copy of one in an existing row, and the view has that row: either the writer has locked the
//!    row, or, in an optimistic table, the writer's snapshot still sees it. New blobs go to other
//!    files.
//! 2. Collect the references of the view's tables and memtables, of every version of every key.
//! 3. Wait until all older views are gone: they may show versions that this view lacks.
//! 4. Remove the files without a reference. Punch holes between the live blobs of the others; where
//!    that is impossible, or leaves too much garbage, move the live blobs to a new file.
//!
//! Commits that are only in the log need no scan of their own: the memtables have them. A prepared
//! transaction that was rolled back holds its files until the rollback is durable, since a crash
//! before that brings the transaction back.
//!
//! A search for files with garbage looks at all blob files, so it is not repeated before something
//! has changed: the super version, a file was sealed, or a transaction has released one. With very
//! many files it is also repeated less often.
//!
//! Locks: `step` is held for a whole step, outside all others; `quarantined` only for moments.
//!
//! Rejected: counting garbage as compactions drop references (the count must survive crashes and
//! stay exact for ever); moving blobs together with the tree (rewrites unchanged bytes); rewriting
//! as the only means (under updates all over the data it writes about 2.4 bytes per byte to stay at
//! 1.3 times the space, where holes write none).

use super::BackgroundWork;
use super::damage::examine;
use crate::base::blob_ref::{self, BlobRef, BlobUse, BlobUses};
use crate::base::event_listener::Severity;
use crate::base::work_count::blob_files_seen;
use crate::base::{Error, InternalIterator, Kind, Result, check_stopping};
use crate::blob::{BlobFile, BlobSpan};
use crate::db::recovery::Replayed;
use crate::env::ReadClass;
use crate::read::SuperVersion;
use crate::version::{Edit, FileHandle, Version};
use crate::write::Changes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A file is a candidate if at least this share of its bytes is garbage, percent. If the SSTs that
/// name the candidates have more bytes than the candidates have garbage, only candidates with the
/// larger share [`GARBAGE_SHARE_AT_ANY_COST`] are collected.
const GARBAGE_SHARE: u64 = 8;
/// If at least this share of a file is garbage, in percent, it is collected however many bytes of
/// SSTs must be read.
const GARBAGE_SHARE_AT_ANY_COST: u64 = 30;

/// One scan collects as many files as have at most this many references together, because it keeps
/// the references in memory. A file with more references is collected in a scan of its own.
const REFS_MAX: u64 = 1 << 20;

/// A file is rewritten if holes would leave more garbage than this share of it, percent.
const REWRITE_SHARE: u64 = 30;

/// The active memtable is frozen when it refers to this share of the live blob bytes, percent.
const FREEZE_SHARE: u64 = 5;

/// State of the garbage collection of blobs.
#[derive(Default)]
pub(in crate::db) struct BlobGc {
    step: Mutex<GcStep>,
    /// Files that are not collected until the next open or the end of a quarantine, because they or
    /// an SST that names them are damaged.
    quarantined: Mutex<HashSet<u64>>,
}

/// A search for files with garbage looks at all blob files. After a search over n blob files, the
/// next n / `FILES_FOR_A_STEP` steps of the garbage collection do not search.
const FILES_FOR_A_STEP: usize = 1 << 12;

/// The work of garbage collection between two steps.
#[derive(Default)]
struct GcStep {
    waiting: Option<GcPlan>,
    /// The last search, if it has chosen no file.
    fruitless: Option<FruitlessSearch>,
    /// Number of steps before the next search.
    pause: usize,
}

/// A search for blob files with garbage that has chosen no file. As long as the state recorded here
/// is the same, another search would choose none either.
struct FruitlessSearch {
    generation: u64,
    sealed: u64,
    /// Sealed files that transactions held.
    held: Vec<Arc<BlobFile>>,
    /// A file was left out because it has a second hard link. Nothing tells the blob gc when the
    /// link is removed, so it must search again.
    linked: bool,
}

/// Files to collect once all super versions older than the one that was scanned are gone.
struct GcPlan {
    generation: u64,
    /// The files, each with its live spans, ascending.
    files: Vec<(Arc<BlobFile>, Vec<BlobSpan>)>,
}

/// A file with garbage.
struct GcCandidate {
    file: Arc<BlobFile>,
    /// Live bytes, as the SSTs and memtables count them.
    live: u64,
    /// Bytes of garbage that came into the file since its last collection. The garbage that the
    /// last collection had to leave does not count.
    garbage: u64,
    refs: u64,
}

/// All blob references of a super version's SSTs and memtables.
///
/// Every part of a super version that has entries must be counted here *and* scanned in
/// [`BackgroundWork::collect`], including the files of ingested runs, which are not in the version
/// yet. A blob whose reference is overlooked would be punched. When a database is opened,
/// [`uses_recovered`] does the same.
pub(in crate::db) fn uses_of(super_version: &SuperVersion) -> BlobUses {
    let SuperVersion {
        active: _,
        frozen: _,
        version: _,
        // `rows`, the row cache, has copies of rows of the files, so its blob references are
        // counted with the files. `sealed`, `blobs` and `generation` have no blob references.
        sealed: _,
        rows: _,
        blobs: _,
        generation: _,
    } = super_version;
    let mut all = super_version.version.blob_uses().to_uses();
    let queued = super_version.frozen.iter().map(|queued| queued.blob_uses());
    for uses in queued.chain([super_version.active.blob_uses()]) {
        uses.iter().for_each(|used| all.add(used));
    }
    all
}

/// The blob references of a transaction's changes.
pub(in crate::db) fn uses_in(changes: &Changes) -> Result<BlobUses> {
    let mut uses = BlobUses::default();
    let batch = match changes {
        Changes::Batch(batch) => batch,
        Changes::Run(files) => {
            let all = files.iter().flat_map(|file| &file.blobs);
            all.for_each(|&used| uses.add(used));
            return Ok(uses);
        }
    };
    let mut counted = Ok(());
    batch.for_each(|entry| {
        if entry.kind == Kind::PutBlobs && counted.is_ok() {
            counted = uses.add_tail(entry.value.tail);
        }
    })?;
    counted.map(|()| uses)
}

/// The blob references of the tree, of the memtables and runs that recovery has made, and of
/// prepared transactions. Whatever else recovery fills with entries must be counted here, too.
pub(in crate::db) fn uses_recovered(version: &Version, replayed: &Replayed) -> Result<BlobUses> {
    let mut all = version.blob_uses().to_uses();
    for queued in &replayed.queue {
        queued.blob_uses().iter().for_each(|used| all.add(used));
    }
    for changes in replayed.prepared.values() {
        uses_in(changes)?.iter().for_each(|used| all.add(used));
    }
    Ok(all)
}

impl BlobGc {
    /// Collects the files again that were set aside. Those that are still damaged, or named by a
    /// damaged SST, are set aside again.
    pub(super) fn try_all_again(&self) {
        self.quarantined.lock().clear();
    }

    #[cfg(test)]
    pub(super) fn set_aside(&self, id: u64) {
        self.quarantined.lock().insert(id);
    }

    #[cfg(test)]
    pub(super) fn has_set_aside(&self) -> bool {
        !self.quarantined.lock().is_empty()
    }
}

impl BackgroundWork {
    /// Does one step of garbage collection. Returns whether it gave room back.
    pub(in crate::db) fn collect_blobs(&self) -> Result<bool> {
        self.health.check()?;
        let step = &mut *self.blob_gc.step.lock();
        self.blobs.log_durable(self.wal.durable_lsn());
        self.blobs.trim_sealed();
        if step.waiting.is_none() {
            if self.is_search_futile(step) {
                return Ok(false);
            }
            step.fruitless = None;
            step.waiting = self.plan(step)?;
        }
        let Some(plan) = &step.waiting else {
            return Ok(false);
        };
        // Do not wait here until nobody uses older super versions or links files, but try in the
        // next step: each step also cuts zeros off sealed files and releases the files of ended
        // transactions.
        if self.super_versions.oldest_generation() < plan.generation || self.blobs.links_held() {
            return Ok(false);
        }
        let plan = step.waiting.take().expect("looked at above");
        self.carry_out(plan).map(|()| true)
    }

    /// Sets how many bytes of blobs a memtable may refer to before it is frozen: [`FREEZE_SHARE`]
    /// of `live`, the live bytes of all blobs.
    pub(in crate::db) fn tune_blobs(&self, live: u64) {
        let share = live / 100 * FREEZE_SHARE;
        let at = share.max(self.options.blob_garbage_min);
        let slot = &self.options.mutable.blob_freeze_at;
        slot.store(at, Ordering::Relaxed);
    }

    /// Whether a search for files with garbage would find none, or has to wait.
    fn is_search_futile(&self, step: &mut GcStep) -> bool {
        if let Some(pause) = step.pause.checked_sub(1) {
            step.pause = pause;
            return true;
        }
        let generation = self
            .super_versions
            .with_current(|current| current.generation);
        step.fruitless.as_ref().is_some_and(|last| {
            last.generation == generation
                && last.sealed == self.blobs.sealed_files()
                && !last.linked
                && last.held.iter().all(|file| file.is_held())
        })
    }

    fn plan(&self, step: &mut GcStep) -> Result<Option<GcPlan>> {
        let sealed = self.blobs.sealed_files();
        let files = self.blobs.all();
        step.pause = files.len() / FILES_FOR_A_STEP;
        blob_files_seen(files.len());
        let aside = self.blob_gc.quarantined.lock().clone();
        // Choose files before pinning the super version. A transaction makes its references visible
        // before it releases a file, so the super version has every reference to a file that nobody
        // holds.
        let sealed_files = files
            .into_iter()
            .filter(|f| !f.grows() && !aside.contains(&f.id()));
        let (held, idle): (Vec<_>, Vec<_>) = sealed_files.partition(|file| file.is_held());
        let super_version = self.super_versions.pin();
        let uses = uses_of(&super_version);
        self.tune_blobs(uses.bytes());
        let (chosen, linked) = self.choose(idle, &uses, &super_version)?;
        if chosen.is_empty() {
            step.fruitless = Some(FruitlessSearch {
                generation: super_version.generation,
                sealed,
                held,
                linked,
            });
            return Ok(None);
        }
        let mut spans: BTreeMap<u64, Vec<BlobSpan>> = BTreeMap::new();
        for candidate in &chosen {
            spans.insert(candidate.file.id(), Vec::new());
        }
        if chosen.iter().any(|c| c.live > 0) {
            self.collect(&super_version, &mut spans)?;
        }
        let generation = super_version.generation;
        let files = chosen.into_iter().filter_map(|candidate| {
            let mut live = spans.remove(&candidate.file.id())?;
            live.sort_unstable();
            live.dedup();
            Some((candidate.file, live))
        });
        Ok(Some(GcPlan {
            generation,
            files: files.collect(),
        }))
    }

    /// Chooses files with garbage. Also returns whether a second link of a file has prevented that.
    fn choose(
        &self,
        idle: Vec<Arc<BlobFile>>,
        uses: &BlobUses,
        super_version: &SuperVersion,
    ) -> Result<(Vec<GcCandidate>, bool)> {
        let mut candidates = Vec::new();
        let mut linked = false;
        for file in idle {
            let BlobUse {
                bytes: live, refs, ..
            } = uses.of(file.id());
            let held = match file.bytes_after_gc() {
                Some(bytes) => bytes,
                None => match file.usage() {
                    Ok(usage) => {
                        file.set_bytes_after_gc(usage.allocated);
                        usage.allocated
                    }
                    // A missing file is left alone here; its readers report that it is missing.
                    Err(_) if live > 0 => continue,
                    Err(_) => 0,
                },
            };
            let garbage = held.saturating_sub(live);
            let enough = garbage * 100 >= held * GARBAGE_SHARE;
            // A collection frees no space while a checkpoint has a link to the file, so choose the
            // file only after the checkpoint is gone. But with a log archive a file may be linked
            // for ever, so choose it anyway: it is then rewritten.
            let stays =
                || !self.blobs.files().is_archived() && self.blobs.is_linked(&file).unwrap_or(true);
            let stays = live > 0 && enough && stays();
            linked |= stays;
            if live == 0 || enough && !stays {
                candidates.push(GcCandidate {
                    file,
                    live,
                    garbage,
                    refs,
                });
            }
        }
        // Collect files without a live blob first, since they need no scan.
        let share = |c: &GcCandidate| c.garbage as f64 / (c.garbage + c.live).max(1) as f64;
        candidates.sort_by(|a, b| share(b).total_cmp(&share(a)));
        let (mut refs, mut garbage) = (0, 0);
        candidates.retain(|c| {
            let fits = refs == 0 || refs + c.refs <= REFS_MAX;
            if fits {
                refs += c.refs;
                garbage += c.garbage;
            }
            fits
        });
        let ids = candidates.iter().map(|c| c.file.id());
        let naming = super_version.version.blob_uses().naming_bytes(ids);
        // If rows have random keys, each SST refers to all candidates, and the sum counts the SST
        // once for each of them. So limit the sum to the size of the tree.
        let to_read = naming.min(super_version.version.size());
        if to_read > garbage {
            candidates
                .retain(|c| c.live == 0 || share(c) * 100.0 >= GARBAGE_SHARE_AT_ANY_COST as f64);
        }
        Ok((candidates, linked))
    }

    /// Adds to `spans`, for each blob file that it has as a key, the spans of the blobs to which
    /// entries of `super_version` refer.
    fn collect(
        &self,
        super_version: &SuperVersion,
        spans: &mut BTreeMap<u64, Vec<BlobSpan>>,
    ) -> Result<()> {
        for memtable in super_version.memtables() {
            let named = memtable.blob_uses();
            if named.iter().any(|used| spans.contains_key(&used.file)) {
                add_spans(&mut memtable.iter(), spans, &self.stopping)?;
            }
        }
        for file in super_version.files() {
            check_stopping(&self.stopping)?;
            if !file.blobs.iter().any(|b| spans.contains_key(&b.file)) {
                continue;
            }
            self.limiter.take(file.size, &self.stopping)?;
            let read = file.reader().and_then(|reader| {
                add_spans(
                    &mut reader.iter(ReadClass::Compaction, false),
                    spans,
                    &self.stopping,
                )
            });
            let Err(error) = read else { continue };
            let quarantined = || self.versions.current().in_quarantine(file.file_id);
            if !is_permanent(&error) && !quarantined() {
                // If the device cannot read the file, either, when asked again, the next step does
                // without the file.
                self.quarantine_unreadable(super_version, file);
                return Err(error);
            }
            // Some references of a damaged SST are unknown. Do not collect the blob files that it
            // names.
            let mut aside = self.blob_gc.quarantined.lock();
            for used in &file.blobs {
                if spans.remove(&used.file).is_some() {
                    aside.insert(used.file);
                }
            }
            let message =
                format!("blob files that an unreadable table names keep their garbage: {error}");
            self.options.listener.log(Severity::Error, &message);
        }
        Ok(())
    }

    /// Puts a file of the tree into quarantine if it cannot be read.
    fn quarantine_unreadable(&self, super_version: &SuperVersion, file: &FileHandle) {
        let mut files = super_version.version.files();
        let found = files.find(|(_, other)| other.file_id == file.file_id);
        let damaged = found.and_then(|(level, file)| examine(level, file));
        if let Some(damaged) = damaged {
            self.quarantine(damaged);
        }
    }

    fn carry_out(&self, plan: GcPlan) -> Result<()> {
        // Collect nothing after a failed log write. A commit with unknown outcome has released its
        // blob files. If the log has the commit after all, the next open needs its blobs.
        self.health.check()?;
        let mut first = Ok(());
        for (file, live) in plan.files {
            check_stopping(&self.stopping)?;
            let done = match live.is_empty() {
                true => self.remove_blobs(&file).map(|()| 0),
                false => self.shrink(&file, &live),
            };
            match done {
                Ok(held) => file.set_bytes_after_gc(held),
                Err(error) if is_permanent(&error) => {
                    self.blob_gc.quarantined.lock().insert(file.id());
                    let message = format!("a blob file keeps its garbage: {error}");
                    self.options.listener.log(Severity::Error, &message);
                }
                Err(error) => first = first.and(Err(error)),
            }
        }
        first
    }

    fn remove_blobs(&self, file: &BlobFile) -> Result<()> {
        if file.physical_id() != file.id() {
            self.versions.apply(Edit {
                blobs_moved: vec![(file.id(), 0)],
                ..Edit::default()
            })?;
        }
        self.blobs.remove(file)
    }

    /// Gives back the space of the garbage in `file`: punches holes, or rewrites the file if too
    /// much garbage is left. Returns the new value of [`BlobFile::bytes_after_gc`]: the next search
    /// takes what exceeds the live bytes for garbage. If holes were punched, the value is that of
    /// the live bytes alone: the garbage that is left shares file system blocks with live blobs,
    /// and must not make the file a candidate again.
    fn shrink(&self, file: &BlobFile, live: &[BlobSpan]) -> Result<u64> {
        let bytes: u64 = live.iter().map(|span| span.len).sum();
        // `None` means that `punch` could not give back anything, so the file still has all its
        // garbage.
        let punched = self.blobs.punch(file, live)?;
        let allocated = file.usage()?.allocated;
        let left = allocated.saturating_sub(bytes);
        if left * 100 < allocated * REWRITE_SHARE {
            return Ok(punched.map_or(allocated, |_| bytes));
        }
        self.limiter.take(2 * bytes, &self.stopping)?;
        let rewritten = self.blobs.rewrite(file, live)?;
        let edit = Edit {
            blobs_moved: vec![(rewritten.logical, rewritten.physical)],
            ..Edit::default()
        };
        if let Err(error) = self.versions.apply(edit) {
            // Discard the new file only if the manifest certainly has not recorded it. Otherwise
            // the next open may need it.
            if self.health.check().is_ok() && *error.kind() != crate::base::ErrorKind::NoSpace {
                self.blobs.discard(&rewritten);
            }
            return Err(error);
        }
        self.blobs.install(&rewritten)?;
        Ok(bytes)
    }
}

/// Whether the garbage collection would meet the same error again if it tried again.
fn is_permanent(error: &Error) -> bool {
    error.is_corruption() || error.is_unsupported()
}

fn add_spans(
    source: &mut dyn InternalIterator,
    spans: &mut BTreeMap<u64, Vec<BlobSpan>>,
    stopping: &AtomicBool,
) -> Result<()> {
    for_each_blob_until(source, stopping, |blob| {
        if let Some(of) = spans.get_mut(&blob.file) {
            of.push(BlobSpan {
                offset: blob.offset,
                len: blob.span(),
            });
        }
    })
}

/// Calls `f` with each blob reference of each entry.
///
/// # Errors
/// `Corruption` of an entry's list of blob references; those of reading `source`.
pub(in crate::db) fn for_each_blob(
    source: &mut dyn InternalIterator,
    f: impl FnMut(BlobRef),
) -> Result<()> {
    for_each_blob_until(source, &AtomicBool::new(false), f)
}

/// As [`for_each_blob`], but fails with `Interrupted` once `stopping` is set.
fn for_each_blob_until(
    source: &mut dyn InternalIterator,
    stopping: &AtomicBool,
    mut f: impl FnMut(BlobRef),
) -> Result<()> {
    let mut more = source.seek_to_first()?;
    while more {
        check_stopping(stopping)?;
        if source.key().kind == Kind::PutBlobs {
            blob_ref::for_each(source.value().tail, &mut f)?;
        }
        more = source.next()?;
    }
    Ok(())
}

/// Room taken by blobs, for reports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BlobReport {
    /// Number of files.
    pub files: u64,
    /// Bytes that the file system has allocated for the blob files.
    pub allocated: u64,
    /// Bytes of blobs that SSTs and memtables refer to, old versions included.
    pub live: u64,
    /// Number of the references to blobs.
    pub refs: u64,
}

impl crate::db::Db {
    /// The space that blobs take. Asks the file system about each blob file.
    pub fn blobs(&self) -> BlobReport {
        let uses = uses_of(&self.cx.super_versions.pin());
        let files = self.cx.blobs.all();
        let allocated = files.iter().filter_map(|file| file.usage().ok());
        BlobReport {
            files: files.len() as u64,
            allocated: allocated.map(|usage| usage.allocated).sum(),
            live: uses.bytes(),
            refs: uses.iter().map(|used| used.refs).sum(),
        }
    }

    /// Bytes of blobs that SSTs and memtables refer to, old versions included.
    pub fn blob_bytes_live(&self) -> u64 {
        uses_of(&self.cx.super_versions.pin()).bytes()
    }

    /// The store of out-of-line values.
    pub fn blob_store(&self) -> &Arc<crate::blob::BlobStore> {
        &self.cx.blobs
    }

    /// Does one step of garbage collection in blob files: finds garbage, or gives its room back
    /// once no reader can need it. Returns whether it gave room back.
    ///
    /// # Errors
    /// `Poisoned`; `NoSpace` or `Io` of rewriting a file; `Interrupted` if the database closes.
    /// Damaged files are left out and reported to the listener.
    pub fn collect_blobs(&self) -> Result<bool> {
        self.work.collect_blobs()
    }
}

#[cfg(test)]
mod tests;
