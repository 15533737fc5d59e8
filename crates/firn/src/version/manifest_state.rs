//! The logical content of a manifest: the sum of its edits.

use super::{DatabaseIdentity, DeferredDeletion, Edit, FileLocation, FileMeta, LEVELS};
use crate::base::epoch::{EPOCH_MAX, end_of_ids, first_id};
use crate::base::key::SEQNO_COMMITTED_MAX;
use crate::base::{CounterValue, Seqno};
use crate::store::FileKind;
use crate::wal::Gtid;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// The state keeps this many pairs of seqno and wall clock time; older pairs are dropped.
const TIME_PAIRS_MAX: usize = 4096;

/// Run numbers are below this limit, and so are the ids of all epochs. Additions to such numbers
/// cannot overflow 64 bits.
pub(super) const NUMBER_MAX: u64 = 1 << 62;

/// A file and its position in the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedFile {
    /// Level, 0 for L0.
    pub level: u8,
    /// Number of the L0 run that the file belongs to; 0 in other levels.
    pub run: u64,
    /// Metadata of the file.
    pub meta: Arc<FileMeta>,
}

/// The sum of the edits of a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestState {
    /// Live files by file id.
    pub files: BTreeMap<u64, PlacedFile>,
    /// No recovery needs log segments with numbers below this one.
    pub log_number: u64,
    /// File ids below this one may be in use and must not be allocated.
    pub next_file_id: u64,
    /// Run numbers below this one may be in use and must not be allocated.
    pub next_run_number: u64,
    /// All commits up to this seqno are in SSTs of the tree.
    pub last_seqno: Seqno,
    /// Persisted counters (auto-increment values, row ids), by counter id.
    pub counters: BTreeMap<u64, CounterValue>,
    /// Pairs of a seqno and the wall-clock time, in microseconds since 1970, at which this seqno
    /// was the newest. The oldest pair comes first.
    pub time_pairs: VecDeque<(Seqno, u64)>,
    /// The blob files whose blobs were moved: maps the file id that blob references contain to the
    /// id of the file that holds the blobs now.
    pub blobs_moved: BTreeMap<u64, u64>,
    /// The database id and the epoch of its writer. `None`, which means epoch 0, until an engine
    /// that supports identities has opened the database.
    pub identity: Option<DatabaseIdentity>,
    /// Deferred deletions, by file id.
    pub deferred: BTreeMap<u64, DeferredDeletion>,
    /// The last global transaction id of each replication domain in the log segments below
    /// `log_number`, which may be deleted.
    pub gtids: BTreeMap<u32, Gtid>,
}

impl Default for ManifestState {
    fn default() -> Self {
        Self {
            files: BTreeMap::new(),
            log_number: 0,
            next_file_id: 1,
            next_run_number: 1,
            last_seqno: 0,
            counters: BTreeMap::new(),
            time_pairs: VecDeque::new(),
            blobs_moved: BTreeMap::new(),
            identity: None,
            deferred: BTreeMap::new(),
            gtids: BTreeMap::new(),
        }
    }
}

impl ManifestState {
    /// The writer's epoch.
    pub fn epoch(&self) -> u64 {
        self.identity.map_or(0, |identity| identity.epoch)
    }

    /// Says why `edit` must not be applied to this state, in words that complete "the edit …";
    /// `None` if it may be applied.
    pub fn check_edit(&self, edit: &Edit) -> Option<String> {
        let trouble = self.identity_trouble(edit).or_else(|| {
            let identity = edit.identity.or(self.identity);
            number_trouble(edit, identity.map_or(0, |identity| identity.epoch))
        });
        if trouble.is_some() {
            return trouble;
        }
        let mut removed = BTreeMap::new();
        for &(level, id) in &edit.removed {
            match self.files.get(&id) {
                Some(placed) if placed.level == level => {}
                _ => return Some(format!("removes file {id}, which is not in L{level}")),
            }
            if removed.insert(id, level).is_some() {
                return Some(format!("removes file {id} twice"));
            }
        }
        let mut added = BTreeMap::new();
        for (level, run, meta) in &edit.added {
            let id = meta.file_id;
            if usize::from(*level) >= LEVELS {
                return Some(format!("adds file {id} to L{level}"));
            }
            if (*run == 0) != (*level != 0) {
                return Some(format!("adds file {id} to L{level} as run {run}"));
            }
            if added.insert(id, meta).is_some() {
                return Some(format!("adds file {id} twice"));
            }
            match (self.files.get(&id), removed.contains_key(&id)) {
                (None, _) => {}
                (Some(old), true) if old.meta.is_same_file(meta) => {}
                (Some(_), true) => return Some(format!("moves file {id} and changes it")),
                (Some(_), false) => return Some(format!("adds file {id} again")),
            }
        }
        // A file that the edit brings back from the object store is live in the data directory,
        // and its object is to be deleted.
        let live = |id| match added.get(id) {
            Some(meta) => meta.location == FileLocation::ObjectStore,
            None => self.files.contains_key(id) && !removed.contains_key(id),
        };
        let deferred = edit.deferred.iter().find_map(|d| match d.slot {
            0 if !self.deferred.contains_key(&d.file) => {
                Some(format!("has deleted file {}, which was not to be", d.file))
            }
            0 => None,
            _ => live(&d.file).then(|| format!("is to delete file {}, which is live", d.file)),
        });
        deferred.or_else(|| self.needed_trouble(edit, &removed))
    }

    /// Checks that no file with a deferred deletion is in use. Returns a description of a
    /// violation, if there is one: an SST with a deferred deletion is in the tree; or a live SST
    /// refers to a blob file with one, by the file's own id or because blobs were moved into that
    /// file.
    fn needed_trouble(&self, edit: &Edit, removed: &BTreeMap<u64, u8>) -> Option<String> {
        let begins: BTreeMap<u64, u64> = { edit.deferred.iter() }
            .map(|deferred| (deferred.file, deferred.slot))
            .collect();
        let waits = |id: &u64| match begins.get(id) {
            Some(slot) => *slot != 0,
            None => self.deferred.contains_key(id),
        };
        // Of a file that was brought back, only the object is to be deleted.
        let is_back = |meta: &FileMeta| {
            meta.location == FileLocation::Local
                && (begins.contains_key(&meta.file_id) || self.files.contains_key(&meta.file_id))
        };
        let mut added = edit.added.iter().map(|(.., meta)| meta);
        if let Some(meta) = added.find(|meta| waits(&meta.file_id) && !is_back(meta)) {
            return Some(format!(
                "adds file {}, which is to be deleted",
                meta.file_id
            ));
        }
        let of_blobs = |deferred: &&DeferredDeletion| deferred.kind == FileKind::Blob;
        let all = self.deferred.values().chain(&edit.deferred);
        let blobs = all.filter(of_blobs).map(|deferred| deferred.file);
        let waiting: BTreeSet<u64> = blobs.filter(waits).collect();
        if waiting.is_empty() {
            return None;
        }
        let moved: BTreeMap<u64, u64> = edit.blobs_moved.iter().copied().collect();
        let lies_in = |logical: u64| {
            let moved = moved.get(&logical).or(self.blobs_moved.get(&logical));
            moved.copied().filter(|file| *file != 0).unwrap_or(logical)
        };
        let stays = self
            .files
            .iter()
            .filter(|(id, _)| !removed.contains_key(id));
        let live = stays.map(|(_, placed)| &*placed.meta);
        let live = live.chain(edit.added.iter().map(|(.., meta)| meta));
        for meta in live {
            let mut files = meta.blobs.iter().map(|used| lies_in(used.file));
            if let Some(file) = files.find(|file| waiting.contains(file)) {
                let id = meta.file_id;
                return Some(format!(
                    "is to delete blob file {file}, which file {id} needs"
                ));
            }
        }
        None
    }

    fn identity_trouble(&self, edit: &Edit) -> Option<String> {
        let new = edit.identity?;
        if new.epoch > EPOCH_MAX || new.after > SEQNO_COMMITTED_MAX {
            return Some(format!("begins the impossible epoch {}", new.epoch));
        }
        let old = self.identity?;
        if old.database != new.database {
            let (old, new) = (old.database, new.database);
            return Some(format!("is of database {new}, not of {old}"));
        }
        let back = (new.epoch, new.after) < (old.epoch, old.after) || new.after < old.after;
        back.then(|| format!("goes from epoch {} back to {}", old.epoch, new.epoch))
    }

    /// Keeps `meta`, the metadata that a version has of a file, instead of an equal copy: three
    /// hundred thousand files have some hundred megabytes of it.
    pub(super) fn share(&mut self, meta: &Arc<FileMeta>) {
        if let Some(placed) = self.files.get_mut(&meta.file_id)
            && *placed.meta == **meta
        {
            placed.meta = Arc::clone(meta);
        }
    }

    /// Applies an edit that [`Self::check_edit`] has accepted.
    pub fn apply(&mut self, edit: &Edit) {
        for (_, id) in &edit.removed {
            self.files.remove(id);
        }
        for (level, run, meta) in &edit.added {
            let placed = PlacedFile {
                level: *level,
                run: *run,
                meta: Arc::new(meta.clone()),
            };
            self.next_file_id = self.next_file_id.max(meta.file_id + 1);
            self.next_run_number = self.next_run_number.max(run + 1);
            let blobs = meta.blobs.iter().map(|blobs| blobs.file + 1).max();
            self.next_file_id = self.next_file_id.max(blobs.unwrap_or(0));
            self.files.insert(meta.file_id, placed);
        }
        let raise = |slot: &mut u64, to: Option<u64>| *slot = (*slot).max(to.unwrap_or(0));
        if let Some(identity) = edit.identity {
            self.identity = Some(identity);
            raise(&mut self.next_file_id, Some(first_id(identity.epoch)));
        }
        for deferred in &edit.deferred {
            raise(&mut self.next_file_id, Some(deferred.file + 1));
            match deferred.slot {
                0 => self.deferred.remove(&deferred.file),
                _ => self.deferred.insert(deferred.file, *deferred),
            };
        }
        raise(&mut self.log_number, edit.log_number);
        raise(&mut self.next_file_id, edit.next_file_id);
        raise(&mut self.next_run_number, edit.next_run_number);
        raise(&mut self.last_seqno, edit.last_seqno);
        for &(name, value) in &edit.counters {
            let slot = self.counters.entry(name).or_insert(value);
            *slot = (*slot).max(value);
        }
        for &(logical, physical) in &edit.blobs_moved {
            self.next_file_id = self.next_file_id.max(physical + 1);
            match physical {
                0 => self.blobs_moved.remove(&logical),
                _ => self.blobs_moved.insert(logical, physical),
            };
        }
        let gtids = edit.gtids.iter().map(|gtid| (gtid.domain, *gtid));
        self.gtids.extend(gtids);
        for &pair in &edit.time_pairs {
            if self
                .time_pairs
                .back()
                .is_none_or(|&(last, _)| last < pair.0)
            {
                self.time_pairs.push_back(pair);
            }
            if self.time_pairs.len() > TIME_PAIRS_MAX {
                self.time_pairs.pop_front();
            }
        }
    }

    /// The edit that turns an empty state into this one.
    pub fn snapshot(&self) -> Edit {
        let place = |p: &PlacedFile| (p.level, p.run, FileMeta::clone(&p.meta));
        Edit {
            added: self.files.values().map(place).collect(),
            removed: Vec::new(),
            log_number: Some(self.log_number),
            next_file_id: Some(self.next_file_id),
            next_run_number: Some(self.next_run_number),
            last_seqno: Some(self.last_seqno),
            counters: self.counters.iter().map(|(&k, &v)| (k, v)).collect(),
            time_pairs: self.time_pairs.iter().copied().collect(),
            blobs_moved: self.blobs_moved.iter().map(|(&k, &v)| (k, v)).collect(),
            identity: self.identity,
            deferred: self.deferred.values().copied().collect(),
            gtids: self.gtids.values().copied().collect(),
        }
    }
}

/// Checks that file ids, segment numbers and slots of `edit` belong to `epoch` or an earlier one,
/// and that its run numbers are possible. Returns a description of the first violation, if there is
/// one.
fn number_trouble(edit: &Edit, epoch: u64) -> Option<String> {
    let end = end_of_ids(epoch);
    let added = edit.added.iter().flat_map(|(.., meta)| {
        let blobs = meta.blobs.iter().map(|blobs| blobs.file);
        blobs.chain([meta.file_id])
    });
    let moved = edit.blobs_moved.iter().flat_map(|&(a, b)| [a, b]);
    let deferred = edit.deferred.iter().map(|deferred| deferred.file);
    let numbers = [edit.log_number, edit.next_file_id];
    let ids = numbers.into_iter().flatten().chain(added).chain(moved);
    if let Some(id) = ids.chain(deferred).find(|id| *id >= end) {
        return Some(format!("has number {id}, which is beyond epoch {epoch}"));
    }
    let runs = edit.added.iter().map(|(_, run, _)| *run);
    let mut runs = runs.chain(edit.next_run_number);
    let slots = edit.deferred.iter().any(|d| d.epoch > epoch);
    (runs.any(|run| run >= NUMBER_MAX) || slots).then(|| "has an impossible number".to_owned())
}
