//! The private writes of a transaction, in memory and in spilled runs.

mod byte_arena;
mod frozen_memory;
mod iter;
mod key_order;
mod largest_keys;
mod memory;
mod rolled_back;
mod spill;
mod spill_merge;
mod spilled_runs;
mod stored_versions;

pub use iter::WriteSetIter;
pub use spill_merge::SealedWriteSet;

use crate::base::key::{SEQNO_MAX, UNCOMMITTED_BIT, index_prefix};
use crate::base::memory_tracker::{MemoryCharge, MemoryTracker};
use crate::base::value::{ENTRY_BYTES_MAX, check_entry};
use crate::base::{ErrorKind, IndexId, InternalKey, Kind, Result, Seqno, Value};
use crate::ingest::{NewFiles, RunFactory};
use frozen_memory::FrozenMemory;
use largest_keys::LargestKeys;
use memory::{InMemoryWrites, version_bytes};
use parking_lot::{Mutex, MutexGuard};
use spill::{heed, write_newest};
use spilled_runs::{Bounds, SpilledRun, SpilledRuns};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Upper bound of the memory limit, bytes: a commit of a set that has not spilled must fit into one
/// log record.
const MEMORY_MAX: u64 = 512 << 20;

/// The position that the last write of a set had at some time; [`WriteSet::rollback_to`] forgets
/// all writes after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Savepoint(u64);

impl Savepoint {
    /// This savepoint as an upper bound of seqnos: a reader with this bound sees the transaction's
    /// own writes up to the savepoint.
    pub fn own_bound(self) -> Seqno {
        UNCOMMITTED_BIT | self.0
    }
}

/// An ordered map of the writes of one transaction, its *own* writes. Each write gets the next
/// *position*. Statement rollback and rollback to a savepoint forget all writes after a position.
///
/// Invariants:
/// - Positions rise and are never used twice, not even after a rollback. So a position that a
///   reader or a spilled run has stored never denotes another write.
/// - A failed write leaves no trace.
///
/// The set keeps all versions of a key: a rollback brings an older one back, and a statement reads
/// as of its start ([`Savepoint::own_bound`]), since an UPDATE must not see its own changes.
///
/// **Spilled runs.** When a write exceeds the memory limit, the set first writes its memory to an
/// immutable sorted run of files, with seqnos `UNCOMMITTED_BIT | position`. So the positions of two
/// runs do not interleave, and the writes in memory are newer than those of every run. A read
/// searches the memory first, then the runs, from the newest to the oldest. From the second spill
/// on, a background thread writes the run: at half the limit the memory is *frozen* for it, and a
/// new memory takes the writes. Reads search the frozen memory after the memory and before the
/// runs. If the frozen memory cannot be written, its writes are put back into the memory.
///
/// A rollback to a mark below the last position of the runs adds the interval (mark, last] to the
/// *dead* positions, which reads and merges skip; a run with dead positions only is removed at
/// once. Example: after spills of the positions 1 to 100 and 101 to 200, a rollback to 150 makes
/// (150, 200] dead; one to 80 removes the second run and makes (80, 100] dead.
///
/// Sixteen runs of a tier are merged into one run of the next tier. Files that overlap no file of
/// the other runs become files of that run unchanged. Before the commit, one merge
/// ([`WriteSet::seal`]) leaves one version of each key.
///
/// Rejected:
/// - undo records that restore the older value in place: reads as of a statement's start would need
///   them too;
/// - spilling only the key range with the most data: positions in memory and in runs would
///   interleave, so a read could not stop at the first version found;
/// - rewriting runs at a rollback: too slow.
pub struct WriteSet {
    /// Shared only while a commit writes it to files ([`SharedWriteSet::write_if_large`]).
    memory: Arc<InMemoryWrites>,
    /// Writes that were in memory and are now being written as a run. They are older than `memory`
    /// and newer than `runs`.
    frozen: Option<FrozenMemory>,
    runs: SpilledRuns,
    /// The largest keys of memory, frozen memory and runs.
    tops: LargestKeys,
    /// Creates spilled files. If it is `None`, all writes stay in memory.
    ingest: Option<Arc<RunFactory>>,
    /// Interrupts merges of runs.
    interrupted: Arc<AtomicBool>,
    /// Position of the last write.
    position: u64,
    charge: MemoryCharge,
    limit: u64,
    entry_bytes_max: u64,
    /// Changes whenever the memory changes.
    generation: u64,
    /// Changes whenever the frozen memory, the spilled runs or the positions of rolled back writes
    /// in them change, so that iterators open their sources again. Read without the set's mutex.
    source_generation: Arc<AtomicU64>,
    /// Whether the log owns the spilled files: once the commit is visible, compactions may remove
    /// them.
    released: bool,
}

impl WriteSet {
    /// An empty set that spills to files of `ingest` when it exceeds `limit` bytes of memory.
    pub fn new(limit: u64, ingest: Option<Arc<RunFactory>>) -> Self {
        Self {
            memory: Arc::default(),
            frozen: None,
            runs: SpilledRuns::default(),
            tops: LargestKeys::default(),
            ingest,
            interrupted: Arc::default(),
            position: 0,
            charge: MemoryCharge::default(),
            limit,
            entry_bytes_max: ENTRY_BYTES_MAX,
            generation: 0,
            source_generation: Arc::default(),
            released: false,
        }
    }

    /// Makes `flag` the interrupt flag. Once it is true, merges of spilled runs, in a write or in
    /// [`Self::seal`], end with `Interrupted`, and so does [`SharedWriteSet::write_if_large`].
    pub fn heed(&mut self, flag: Arc<AtomicBool>) {
        self.interrupted = flag;
    }

    /// Counts the set's memory in `gauge` from now on.
    pub fn count_in(&mut self, gauge: &Arc<MemoryTracker>) {
        self.charge = MemoryCharge::new(Arc::clone(gauge));
        self.charge.set(self.bytes());
    }

    /// Sets the memory limit and the longest entry, in bytes, for later writes.
    pub fn set_limits(&mut self, limit: u64, entry_bytes_max: u64) {
        self.limit = limit;
        self.entry_bytes_max = entry_bytes_max;
    }

    /// Writes a value.
    ///
    /// # Errors
    /// `TooLarge` for an entry over the limit. `NoSpace` and `Io` of spilling; `ShutDown` if the
    /// spill panics; `Interrupted` while runs are merged. Nothing is written then.
    pub fn put(&mut self, user_key: &[u8], value: Value<'_>) -> Result<()> {
        self.write(user_key, Kind::Put, value)
    }

    /// Writes a delete.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub fn delete(&mut self, user_key: &[u8]) -> Result<()> {
        self.write(user_key, Kind::Delete, Value::EMPTY)
    }

    /// Writes a version of any kind.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub fn write(&mut self, user_key: &[u8], kind: Kind, value: Value<'_>) -> Result<()> {
        // Refuse an entry that no file can hold: once committed, it would keep the database from
        // flushing and from opening.
        check_entry(user_key.len() + value.len(), self.entry_bytes_max)?;
        let bytes = version_bytes(user_key.len(), value.len());
        if self.memory.bytes() + bytes > self.room() {
            self.finish_spill()?;
            self.freeze();
            let done = self.frozen.as_ref().is_some_and(FrozenMemory::is_done);
            if done || self.bytes() + bytes > self.limit() {
                self.finish_spill()?;
            }
            self.merge_if_many()?;
        }
        self.position += 1;
        self.generation += 1;
        let position = self.position;
        self.memory_mut().write(position, user_key, kind, value);
        self.tops.note(user_key);
        self.charge.set(self.bytes());
        Ok(())
    }

    fn memory_mut(&mut self) -> &mut InMemoryWrites {
        Arc::get_mut(&mut self.memory).expect("no write during a commit")
    }

    fn limit(&self) -> u64 {
        self.limit.min(MEMORY_MAX)
    }

    /// Bytes that `memory` may take. Before the first spill this is the whole limit. After that it
    /// is half the limit if a background thread writes spills, because the frozen memory takes the
    /// other half.
    fn room(&self) -> u64 {
        let threads = self.ingest.as_ref().is_some_and(|i| i.has_threads());
        match threads && self.has_spilled() {
            true => self.limit() / 2,
            false => self.limit(),
        }
    }

    /// Freezes the memory and begins to write it as a run. Does nothing if it is empty.
    fn freeze(&mut self) {
        debug_assert!(self.frozen.is_none());
        let (Some(ingest), false) = (&self.ingest, self.memory.is_empty()) else {
            return;
        };
        let memory = std::mem::take(&mut self.memory);
        self.frozen = Some(FrozenMemory::begin(ingest, memory, &self.runs));
        self.changed();
    }

    /// Waits until the frozen memory is written, and adds its run. After an error its writes are
    /// put back into the memory.
    fn finish_spill(&mut self) -> Result<()> {
        let (Some(ingest), Some(frozen)) = (&self.ingest, self.frozen.take()) else {
            return Ok(());
        };
        let added = match frozen.finish() {
            Ok(files) => {
                self.runs.list.push(SpilledRun::new(ingest, files, 0));
                Ok(())
            }
            Err((error, older)) => {
                let newer = std::mem::take(&mut self.memory);
                let memory = self.memory_mut();
                memory.absorb(&older);
                memory.absorb(&newer);
                Err(error)
            }
        };
        self.charge.set(self.bytes());
        self.changed();
        added
    }

    /// Writes all memory to runs, and waits until they are written.
    fn spill_all(&mut self) -> Result<()> {
        self.finish_spill()?;
        self.freeze();
        self.finish_spill()
    }

    /// Merges runs if there are many. Errors other than `Interrupted` are ignored, a full disk for
    /// example: the merge only makes later reads and the commit cheaper.
    fn merge_if_many(&mut self) -> Result<()> {
        let Some(ingest) = &self.ingest else {
            return Ok(());
        };
        let before = self.runs.list.len();
        let merged = self.runs.merge_if_many(ingest, &self.interrupted);
        if self.runs.list.len() != before {
            self.changed();
        }
        match merged {
            Err(error) if *error.kind() == ErrorKind::Interrupted => Err(error),
            _ => Ok(()),
        }
    }

    fn changed(&mut self) {
        self.generation += 1;
        self.source_generation.fetch_add(1, Ordering::Relaxed);
    }

    /// The position of the last write, for [`Self::rollback_to`].
    pub fn mark(&self) -> Savepoint {
        Savepoint(self.position)
    }

    /// Forgets every write after `mark`, frees its memory, and removes the files that hold no other
    /// writes.
    pub fn rollback_to(&mut self, mark: Savepoint) {
        if self
            .frozen
            .as_ref()
            .is_some_and(|f| mark.0 < f.memory().last())
        {
            // Wait for the background thread that writes the frozen memory. If it fails, ignore the
            // error: the frozen writes are then in `memory` again, and the rollback below forgets
            // them there.
            let _ = self.finish_spill();
        }
        let mut forgot = self.memory_mut().rollback_to(mark.0);
        self.charge.set(self.bytes());
        if mark.0 < self.runs.last() {
            self.runs.forget_after(mark.0);
            forgot = true;
        }
        if forgot {
            // Count this as a change also if only memory changed: a cursor that merges memory and
            // runs may have read ahead to an entry that is gone.
            self.changed();
        }
    }

    /// Forgets all writes, frees the memory and removes the files.
    pub fn clear(&mut self) {
        self.memory_mut().clear();
        self.frozen = None;
        if !self.runs.is_new() {
            self.runs = SpilledRuns::default();
        }
        self.tops.clear();
        self.released = false;
        self.charge.set(0);
        self.changed();
    }

    fn memories(&self) -> impl Iterator<Item = &InMemoryWrites> {
        let frozen = self.frozen.as_ref().map(|frozen| &**frozen.memory());
        std::iter::once(&*self.memory).chain(frozen)
    }

    /// Calls `f` with the newest own version of `user_key`, which may be a delete. The key's seqno
    /// is `UNCOMMITTED_BIT | position`.
    ///
    /// # Errors
    /// Those of reading spilled files: `Corruption`, `Unsupported`, `Io`.
    pub fn get<R>(
        &self,
        user_key: &[u8],
        f: impl FnOnce(InternalKey<'_>, Value<'_>) -> R,
    ) -> Result<Option<R>> {
        self.get_at(user_key, SEQNO_MAX, f)
    }

    /// As [`WriteSet::get`], for the newest own version at or below `own_bound`.
    ///
    /// # Errors
    /// As [`WriteSet::get`].
    pub fn get_at<R>(
        &self,
        user_key: &[u8],
        own_bound: Seqno,
        f: impl FnOnce(InternalKey<'_>, Value<'_>) -> R,
    ) -> Result<Option<R>> {
        if !self.tops.may_have(user_key) {
            return Ok(None);
        }
        for memory in self.memories() {
            if let Some(version) = memory.get(user_key, own_bound) {
                let key = InternalKey::new(version.key, version.seqno(), version.kind);
                return Ok(Some(f(key, version.value)));
            }
        }
        match self.runs.is_empty() {
            true => Ok(None),
            false => self.runs.get(user_key, own_bound, f),
        }
    }

    /// Whether a part of the set is on disk or being written. The commit of such a set needs
    /// [`Self::seal`].
    pub fn has_spilled(&self) -> bool {
        self.frozen.is_some() || !self.runs.is_empty()
    }

    /// An upper bound of the bytes of a batch with the entries of [`Self::for_each_final`].
    pub fn batch_bytes(&self) -> usize {
        self.memory.batch_bytes()
    }

    /// Calls `f` with the newest version of each key, in key order, for the commit of a set that
    /// has not spilled.
    pub fn for_each_final(&self, mut f: impl FnMut(&[u8], Kind, Value<'_>)) {
        debug_assert!(!self.has_spilled());
        for versions in self.memory.iter() {
            let newest = versions.newest();
            f(newest.key, newest.kind, newest.value);
        }
    }

    /// Writes the newest version of each key to durable files, for the commit of a set that has
    /// spilled. The set keeps all writes, so the caller may try again after an error.
    ///
    /// # Errors
    /// Those of the files: `NoSpace`, `Io`, `Corruption`, `Unsupported`. `Interrupted` if the flag
    /// of [`Self::heed`] is set. `ShutDown` after a panic of the spill.
    ///
    /// # Panics
    /// If the set has no [`RunFactory`], since then it has not spilled.
    pub fn seal(&mut self) -> Result<SealedWriteSet> {
        self.spill_all()?;
        let ingest = self.ingest.as_ref().expect("a set that has spilled");
        self.runs.seal(ingest, &self.interrupted)
    }

    /// Gives up the ownership of the files of `sealed`, since a log record names them: dropping the
    /// set does not remove them any more.
    pub fn release(&mut self, sealed: SealedWriteSet) {
        self.released = true;
        self.runs.release(sealed);
    }

    /// Ids of the spilled files, without those of a spill that is being written.
    pub fn spilled_files(&self) -> Vec<u64> {
        let files = self.runs.list.iter().flat_map(|run| run.files.files());
        files.map(|file| file.file_id).collect()
    }

    /// Approximate memory in bytes.
    pub fn bytes(&self) -> u64 {
        self.memories().map(InMemoryWrites::bytes).sum()
    }

    /// Whether the set has no writes. Spilled writes count even if they were rolled back, until
    /// their files are removed.
    pub fn is_empty(&self) -> bool {
        self.memory.is_empty() && !self.has_spilled()
    }

    /// Whether a key of the index is written. May be true for an untouched index after a rollback
    /// of spilled writes.
    pub fn touches(&self, index: IndexId) -> bool {
        let prefix = index_prefix(index);
        let begins = |memory: &InMemoryWrites| {
            let first = memory.from(&prefix).next();
            first.is_some_and(|first| first.key().starts_with(&prefix))
        };
        let mut memories = self.memories();
        memories.any(begins) || self.runs.may_touch(index)
    }

    /// Whether a user key `k` with `lower ≤ k < upper` is written. For spilled writes it compares
    /// only the bounds of their files, so it may be wrongly true.
    pub fn touches_range(&self, lower: &[u8], upper: Option<&[u8]>) -> bool {
        let mut memories = self.memories();
        memories.any(|memory| memory.touches_range(lower, upper))
            || self.runs.may_touch_range(lower, upper)
    }
}

/// A write set shared by a transaction and its open cursors.
#[derive(Clone)]
pub struct SharedWriteSet {
    set: Arc<Mutex<WriteSet>>,
    source_generation: Arc<AtomicU64>,
}

impl SharedWriteSet {
    /// An empty set, as [`WriteSet::new`].
    pub fn new(limit: u64, ingest: Option<Arc<RunFactory>>) -> Self {
        let set = WriteSet::new(limit, ingest);
        Self {
            source_generation: Arc::clone(&set.source_generation),
            set: Arc::new(Mutex::new(set)),
        }
    }

    /// Locks the set. Do not move one of its iterators while holding the guard: it locks the set,
    /// too.
    pub fn lock(&self) -> MutexGuard<'_, WriteSet> {
        self.set.lock()
    }

    /// A number that changes whenever spilled files are added to the set or removed from it. If
    /// another thread makes such a change now, waits for its end.
    pub(super) fn generation_after_change(&self) -> u64 {
        let _set = self.set.lock();
        self.source_generation()
    }

    /// Whether the log owns the spilled files of the set.
    pub(super) fn is_released(&self) -> bool {
        self.set.lock().released
    }

    fn source_generation(&self) -> u64 {
        self.source_generation.load(Ordering::Relaxed)
    }

    /// If the batch of a set in memory would have more than `batch_bytes_max` bytes, writes the
    /// newest version of each key to durable files, for the commit. Other sessions may read the set
    /// meanwhile. Returns `None` if the commit needs a batch: of a smaller set, of one that cannot
    /// write files, and if there is no room or no descriptor for files. A batch may find room where
    /// files do not: in the log's disk reserve, or in a log segment of this size that is ready.
    ///
    /// The set must not have spilled; [`WriteSet::seal`] is for sets that have.
    ///
    /// # Errors
    /// Those of the files, except `NoSpace` and `NoDescriptor`. `Interrupted` if the flag of
    /// [`WriteSet::heed`] is set.
    pub fn write_if_large(&self, batch_bytes_max: u64) -> Result<Option<NewFiles>> {
        let (ingest, memory, interrupted) = {
            let set = self.lock();
            debug_assert!(!set.has_spilled());
            match &set.ingest {
                Some(ingest) if set.batch_bytes() as u64 > batch_bytes_max => {
                    let interrupted = Arc::clone(&set.interrupted);
                    (Arc::clone(ingest), Arc::clone(&set.memory), interrupted)
                }
                _ => return Ok(None),
            }
        };
        // The first bound counts all versions of a key, but the batch has only one.
        if memory.newest_batch_bytes() <= batch_bytes_max {
            return Ok(None);
        }
        let written = write_newest(&ingest, &memory, &interrupted).and_then(|files| {
            heed(&interrupted)?;
            files.sync().map(|()| files)
        });
        match written {
            Err(error) if *error.kind() == ErrorKind::NoSpace => {
                // The files that were finished are obsolete now. Delete them at once, and all other
                // obsolete files: they take the room that the log needs for the batch.
                let _ = ingest.versions().delete_obsolete();
                Ok(None)
            }
            Err(error) if *error.kind() == ErrorKind::NoDescriptor => Ok(None),
            written => written.map(Some),
        }
    }

    /// An iterator that stays valid while the set changes. It is not positioned yet.
    pub fn iter(&self) -> WriteSetIter {
        WriteSetIter::within(self.clone(), Bounds::default())
    }

    /// As [`Self::iter`], for a caller that needs only user keys `k` with `lower ≤ k < upper`. The
    /// iterator may also return other keys. It does not open spilled files outside these bounds.
    pub fn iter_within(&self, lower: &[u8], upper: Option<&[u8]>) -> WriteSetIter {
        let bounds = Bounds {
            lower: lower.to_vec(),
            upper: upper.map(<[u8]>::to_vec),
        };
        WriteSetIter::within(self.clone(), bounds)
    }
}

#[cfg(test)]
mod tests;
