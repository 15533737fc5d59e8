//! The uncommitted writes of a transaction, which no other session sees.

mod iter;
mod largest_keys;
mod memory;
mod rolled_back;
mod spill;
mod spilled_runs;
mod spilling;

pub use iter::WriteSetIter;
pub use spill::SealedWriteSet;

use crate::base::key::{SEQNO_MAX, UNCOMMITTED_BIT, index_prefix};
use crate::base::memory_tracker::{MemoryCharge, MemoryTracker};
use crate::base::value::{ENTRY_BYTES_MAX, check_entry};
use crate::base::{ErrorKind, IndexId, InternalKey, Kind, Result, Seqno, Value};
use crate::ingest::Ingest;
use largest_keys::LargestKeys;
use memory::{InMemoryWrites, version_bytes};
use parking_lot::{Mutex, MutexGuard};
use spilled_runs::{Bounds, SpilledRun, SpilledRuns};
use spilling::SpillingMemory;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A larger write set spills whatever the limit: a log record cannot hold more.
const MEMORY_MAX: u64 = 512 << 20;

/// A place in the history of a write set, to come back to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Savepoint(u64);

impl Savepoint {
    /// As a bound on own writes: a reader with it sees what was written up to the mark.
    pub fn own_bound(self) -> Seqno {
        UNCOMMITTED_BIT | self.0
    }
}

/// An ordered map of own writes. Each write gets the next *position*; statement rollback and
/// savepoints are "forget everything after position n".
///
/// Invariants:
/// - Positions rise and are never used twice, not even after a rollback: a reader or a spilled run
///   that names a position never means another write by it.
/// - A failed write leaves no trace.
///
/// All versions of a key are kept, not only the newest: a rollback brings the older one back, and
/// a statement reads as of its start (`own_bound`), else an UPDATE would meet its own rows again.
///
/// **Spilled runs.** A write that finds the memory over its limit first makes all of it an
/// immutable sorted run of files with seqnos `UNCOMMITTED_BIT | position`. So the positions of two
/// runs never interleave, and memory is newer than every run: a read asks memory, then the runs,
/// newest first. From the second spill on a run is written beside the statement: at half the limit
/// the memory is *frozen*, a thread writes it, and a new one takes the writes. Reads ask for the
/// frozen one between memory and runs. If it cannot be written, both become one memory again. A
/// rollback to a mark below the last position of a run adds the interval (mark, last] to the *dead*
/// positions, which reads and merges pass over; a run wholly dead is removed at once. Of sixteen
/// runs one is made, whose files that overlap nothing move over as they are. Before the commit one
/// merge ([`WriteSet::seal`]) leaves one version of each key.
///
/// Rejected: undo records that restore the older value in place (reads as of a statement's start
/// would need them too); spilling the largest part of the keys only (its reads would have to ask
/// two places for one range of positions); rewriting runs at a rollback (it must be fast).
pub struct WriteSet {
    memory: InMemoryWrites,
    /// Older than `memory`, newer than `runs`.
    frozen: Option<SpillingMemory>,
    runs: SpilledRuns,
    /// Of memory, frozen memory and runs.
    tops: LargestKeys,
    /// Where spilled files come from; without, everything stays in memory.
    ingest: Option<Arc<Ingest>>,
    /// Ends merges of runs.
    interrupted: Arc<AtomicBool>,
    position: u64,
    charge: MemoryCharge,
    limit: u64,
    entry_bytes_max: u64,
    /// Changes whenever the memory does.
    generation: u64,
    /// Changes whenever runs or dead positions do. Read without the set's lock.
    source_generation: Arc<AtomicU64>,
}

impl WriteSet {
    /// An empty set that spills to files of `ingest` what exceeds `limit` bytes of memory.
    pub fn new(limit: u64, ingest: Option<Arc<Ingest>>) -> Self {
        Self {
            memory: InMemoryWrites::default(),
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
        }
    }

    /// Once `flag` is set, merges of spilled runs end with `Interrupted`: in a write, or in
    /// [`Self::seal`].
    pub fn heed(&mut self, flag: Arc<AtomicBool>) {
        self.interrupted = flag;
    }

    /// Counts its bytes in `gauge`, too.
    pub fn count_in(&mut self, gauge: &Arc<MemoryTracker>) {
        self.charge = MemoryCharge::new(Arc::clone(gauge));
        self.charge.set(self.bytes());
    }

    /// Changes for the writes that follow how much memory they take, and how long an entry may be.
    pub fn set_limits(&mut self, limit: u64, entry_bytes_max: u64) {
        self.limit = limit;
        self.entry_bytes_max = entry_bytes_max;
    }

    /// Writes a value.
    ///
    /// # Errors
    /// `TooLarge`, and those of spilling; nothing is written then.
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
        // Once committed, what no file can hold would keep the database from flushing and from
        // opening.
        check_entry(user_key.len() + value.len(), self.entry_bytes_max)?;
        let bytes = version_bytes(user_key.len(), value.len());
        if self.memory.bytes() + bytes > self.room() {
            self.settle()?;
            self.freeze();
            let done = self.frozen.as_ref().is_some_and(SpillingMemory::is_done);
            if done || self.bytes() + bytes > self.limit() {
                self.settle()?;
            }
            self.merge_if_many()?;
        }
        self.position += 1;
        self.generation += 1;
        self.memory.write(self.position, user_key, kind, value);
        self.tops.note(user_key);
        self.charge.set(self.bytes());
        Ok(())
    }

    fn limit(&self) -> u64 {
        self.limit.min(MEMORY_MAX)
    }

    /// Bytes that the memory may take: the limit, or half of it while the other half belongs to
    /// memory that is being written as a run.
    fn room(&self) -> u64 {
        let threads = self.ingest.as_ref().is_some_and(|i| i.has_threads());
        match threads && self.has_spilled() {
            true => self.limit() / 2,
            false => self.limit(),
        }
    }

    /// Begins to make a run of what is in memory.
    fn freeze(&mut self) {
        debug_assert!(self.frozen.is_none());
        let (Some(ingest), false) = (&self.ingest, self.memory.is_empty()) else {
            return;
        };
        let memory = std::mem::take(&mut self.memory);
        self.frozen = Some(SpillingMemory::begin(ingest, memory, &self.runs));
        self.changed();
    }

    /// The memory that is being written becomes a run. After an error it is memory again.
    fn settle(&mut self) -> Result<()> {
        let (Some(ingest), Some(frozen)) = (&self.ingest, self.frozen.take()) else {
            return Ok(());
        };
        let settled = match frozen.finish() {
            Ok(files) => {
                self.runs.list.push(SpilledRun::new(ingest, files, 0));
                Ok(())
            }
            Err((error, older)) => {
                let newer = std::mem::take(&mut self.memory);
                self.memory.absorb(&older);
                self.memory.absorb(&newer);
                Err(error)
            }
        };
        self.charge.set(self.bytes());
        self.changed();
        settled
    }

    /// Makes all that is in memory runs.
    fn spill_all(&mut self) -> Result<()> {
        self.settle()?;
        self.freeze();
        self.settle()
    }

    /// Makes one run of many, if it can. That is for later reads and the commit: the write goes on
    /// without it, when there is no room for instance.
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

    /// The place after the last write.
    pub fn mark(&self) -> Savepoint {
        Savepoint(self.position)
    }

    /// Forgets every write after `mark`: the memory it took, and the files that hold nothing else.
    pub fn rollback_to(&mut self, mark: Savepoint) {
        if self
            .frozen
            .as_ref()
            .is_some_and(|f| mark.0 < f.memory().last())
        {
            // After an error the writes are in memory again, and are forgotten there.
            let _ = self.settle();
        }
        let mut forgot = self.memory.rollback_to(mark.0);
        self.charge.set(self.bytes());
        if mark.0 < self.runs.last() {
            self.runs.forget_after(mark.0);
            forgot = true;
        }
        if forgot {
            // Also for what merges memory and runs, and may wait on an entry that is gone.
            self.changed();
        }
    }

    /// Forgets everything, and gives memory and files back.
    pub fn clear(&mut self) {
        self.memory = InMemoryWrites::default();
        self.frozen = None;
        self.runs = SpilledRuns::default();
        self.tops = LargestKeys::default();
        self.charge.set(0);
        self.changed();
    }

    fn memories(&self) -> impl Iterator<Item = &InMemoryWrites> {
        let frozen = self.frozen.as_ref().map(|frozen| &**frozen.memory());
        std::iter::once(&self.memory).chain(frozen)
    }

    /// Gives `f` the newest own version of `user_key`, a delete too. The key's seqno is
    /// `UNCOMMITTED_BIT | position`.
    ///
    /// # Errors
    /// Those of reading spilled files.
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
            if let Some((key, version)) = memory.get(user_key, own_bound) {
                let key = InternalKey::new(key, version.seqno(), version.kind);
                return Ok(Some(f(key, version.value())));
            }
        }
        match self.runs.is_empty() {
            true => Ok(None),
            false => self.runs.get(user_key, own_bound, f),
        }
    }

    /// Whether a part of it is on disk, or on its way there, and is committed by [`Self::seal`].
    pub fn has_spilled(&self) -> bool {
        self.frozen.is_some() || !self.runs.is_empty()
    }

    /// Calls `f` with the newest version of each key, in key order: what a commit writes of a set
    /// that has not spilled.
    pub fn for_each_final(&self, mut f: impl FnMut(&[u8], Kind, Value<'_>)) {
        debug_assert!(!self.has_spilled());
        for (key, versions) in self.memory.iter() {
            f(key, versions.newest.kind, versions.newest.value());
        }
    }

    /// The files that the commit of a spilled set installs: the newest version of each key,
    /// durable. The set stays as it is, so that the commit may be tried again.
    ///
    /// # Errors
    /// Those of the files; `Interrupted` after an interruption ([`Self::heed`]).
    ///
    /// # Panics
    /// If the set has not spilled.
    pub fn seal(&mut self) -> Result<SealedWriteSet> {
        self.spill_all()?;
        let ingest = self.ingest.as_ref().expect("a set that has spilled");
        self.runs.seal(ingest, &self.interrupted)
    }

    /// The log names the files of `sealed`: they are no longer the set's to remove.
    pub fn release(&mut self, sealed: SealedWriteSet) {
        self.runs.release(sealed);
    }

    /// Ids of the files that it has spilled to, those under way aside.
    pub fn spilled_files(&self) -> Vec<u64> {
        let files = self.runs.list.iter().flat_map(|run| run.files.files());
        files.map(|file| file.file_id).collect()
    }

    /// Memory taken, in bytes, about.
    pub fn bytes(&self) -> u64 {
        self.memories().map(InMemoryWrites::bytes).sum()
    }

    /// Whether nothing is written.
    pub fn is_empty(&self) -> bool {
        self.memory.is_empty() && !self.has_spilled()
    }

    /// Whether a key of the index is written. Of spilled writes some that were taken back count,
    /// too.
    pub fn touches(&self, index: IndexId) -> bool {
        let prefix = index_prefix(index);
        let begins = |(key, _): (&Arc<[u8]>, _)| key.starts_with(&prefix);
        let mut memories = self.memories();
        memories.any(|memory| memory.from(&prefix).next().is_some_and(begins))
            || self.runs.may_touch(index)
    }

    /// Whether a user key `k` with `lower ≤ k < upper` is written. Spilled writes count by the
    /// bounds of their files.
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
    pub fn new(limit: u64, ingest: Option<Arc<Ingest>>) -> Self {
        let set = WriteSet::new(limit, ingest);
        Self {
            source_generation: Arc::clone(&set.source_generation),
            set: Arc::new(Mutex::new(set)),
        }
    }

    /// The set. Not to be held across a move of one of its iterators.
    pub fn lock(&self) -> MutexGuard<'_, WriteSet> {
        self.set.lock()
    }

    fn source_generation(&self) -> u64 {
        self.source_generation.load(Ordering::Relaxed)
    }

    /// An iterator that stays valid while the set changes; not positioned.
    pub fn iter(&self) -> WriteSetIter {
        WriteSetIter::within(self.clone(), Bounds::default())
    }

    /// As [`Self::iter`], for whoever asks for user keys `k` with `lower ≤ k < upper` only; others
    /// may or may not appear. Spilled files outside are not opened.
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
