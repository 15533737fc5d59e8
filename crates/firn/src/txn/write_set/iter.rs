//! Iterators over a write set that stay valid while the set changes.

use super::SharedWriteSet;
use super::memory::InMemoryWrites;
use super::spilled_runs::{Bounds, SpilledRunIter};
use super::stored_versions::OwnVersion;
use crate::base::key::SEQNO_MAX;
use crate::base::{InternalIterator, InternalKey, Kind, Result, Seqno, Value};
use crate::iter::{MergeIter, iterator_of_variants};
use std::sync::Arc;

/// Largest number of entries that a scan fetches at once.
const BATCH_MAX: usize = 64;

/// A batch is full once its entries have this many bytes, and a batch that was larger gives memory
/// back.
const BATCH_BYTES: usize = 32 << 10;

/// A cursor over the versions in memory that the transaction has written, with seqnos
/// `UNCOMMITTED_BIT | position`.
///
/// It keeps a copy of the entry under the cursor, and each move continues from the key and seqno of
/// that entry, whether or not the set still has it. It copies entries in batches, which grow during
/// a scan, and drops a batch once the set has changed. So a scan of an unchanged set costs one
/// search per batch, and a scan that writes while it reads one search per step.
struct MemoryIter {
    place: MemoryIterSource,
    batch: FetchedBatch,
    /// Position in `batch` of the entry under the cursor; its number of entries if there is none.
    at: usize,
    /// Whether the batch was fetched backwards, so that its entries descend.
    backward: bool,
    /// Generation of the set when the batch was fetched.
    generation: u64,
    /// Buffer of [`Self::leave`].
    left: Vec<u8>,
}

/// The memory that a [`MemoryIter`] reads.
enum MemoryIterSource {
    /// The memory of the set, which changes.
    Set(SharedWriteSet),
    /// Frozen memory, which does not change.
    Frozen(Arc<InMemoryWrites>),
}

impl MemoryIterSource {
    fn generation(&self) -> u64 {
        match self {
            Self::Set(set) => set.lock().generation,
            Self::Frozen(_) => 0,
        }
    }

    /// Calls `f` with the writes in memory. Locks the write set's mutex meanwhile, unless the
    /// memory is frozen. Returns the set's generation, a number that changes with each write to its
    /// memory; 0 for frozen memory, which never changes.
    fn show(&self, f: impl FnOnce(&InMemoryWrites)) -> u64 {
        match self {
            Self::Set(set) => {
                let set = set.lock();
                f(&set.memory);
                set.generation
            }
            Self::Frozen(memory) => {
                f(memory);
                0
            }
        }
    }
}

impl MemoryIter {
    fn new(place: MemoryIterSource) -> Self {
        Self {
            place,
            batch: FetchedBatch::default(),
            at: 0,
            backward: false,
            generation: 0,
            left: Vec::new(),
        }
    }

    /// Replaces the batch by a new one from `fill`. Returns whether it has an entry.
    fn fetch(
        &mut self,
        backward: bool,
        fill: impl FnOnce(&InMemoryWrites, &mut FetchedBatch),
    ) -> bool {
        let batch = &mut self.batch;
        batch.clear();
        self.generation = self.place.show(|memory| fill(memory, batch));
        self.at = 0;
        self.backward = backward;
        self.valid()
    }

    /// As [`Self::fetch`], for a seek. A seek begins with the smallest batch.
    fn seek_fetch(
        &mut self,
        backward: bool,
        fill: impl FnOnce(&InMemoryWrites, &mut FetchedBatch),
    ) -> bool {
        self.batch.want = 1;
        self.fetch(backward, fill)
    }

    /// Moves to the next entry of the batch, if the batch was fetched in this direction and has
    /// one, and the set has not changed since. Returns whether it moved.
    fn step(&mut self, backward: bool) -> bool {
        let fresh = self.generation == self.place.generation();
        if !fresh {
            // The set may change before the next step, too.
            self.batch.want = 0;
        }
        let more = self.backward == backward && self.at + 1 < self.batch.entries.len();
        self.at += usize::from(fresh && more);
        fresh && more
    }

    /// Called before the next batch of entries is copied from the write set. Returns key and seqno
    /// of the entry under the cursor, from which on the caller copies, and makes the next batch
    /// larger. The caller must put the buffer of the key back into `left`, so that the next call
    /// can use it.
    fn leave(&mut self) -> (Vec<u8>, Seqno) {
        self.batch.want = (self.batch.want * 4).clamp(1, BATCH_MAX);
        let mut key = std::mem::take(&mut self.left);
        let here = self.batch.get(self.at).0;
        key.clear();
        key.extend_from_slice(here.user_key);
        (key, here.seqno)
    }
}

/// Copies of entries, which stay readable after the set has forgotten them.
#[derive(Default)]
struct FetchedBatch {
    entries: Vec<FetchedEntry>,
    /// Key, head and tail of each entry.
    bytes: Vec<u8>,
    /// Number of entries that fill the batch.
    want: usize,
}

/// The lengths of an entry of a [`FetchedBatch`], and where it begins.
struct FetchedEntry {
    start: usize,
    key_len: usize,
    head_len: usize,
    tail_len: usize,
    seqno: Seqno,
    kind: Kind,
}

impl FetchedBatch {
    fn clear(&mut self) {
        self.entries.clear();
        self.bytes.clear();
        self.bytes.shrink_to(2 * BATCH_BYTES);
    }

    /// Adds an entry. Returns whether there is room for more.
    fn take(&mut self, version: OwnVersion<'_>) -> bool {
        let Value { head, tail } = version.value;
        self.entries.push(FetchedEntry {
            start: self.bytes.len(),
            key_len: version.key.len(),
            head_len: head.len(),
            tail_len: tail.len(),
            seqno: version.seqno(),
            kind: version.kind,
        });
        for part in [version.key, head, tail] {
            self.bytes.extend_from_slice(part);
        }
        self.entries.len() < self.want && self.bytes.len() < BATCH_BYTES
    }

    fn get(&self, at: usize) -> (InternalKey<'_>, Value<'_>) {
        let entry = &self.entries[at];
        let len = entry.key_len + entry.head_len + entry.tail_len;
        let (key, value) = self.bytes[entry.start..][..len].split_at(entry.key_len);
        let (head, tail) = value.split_at(entry.head_len);
        let key = InternalKey::new(key, entry.seqno, entry.kind);
        (key, Value { head, tail })
    }
}

impl InMemoryWrites {
    /// Fills `batch` with entries at or after (user key, seqno) in internal order.
    fn forward_from(&self, user_key: &[u8], seqno: Seqno, batch: &mut FetchedBatch) {
        for versions in self.from(user_key) {
            for version in versions.newest_first() {
                if version.key == user_key && version.seqno() > seqno {
                    continue;
                }
                if !batch.take(version) {
                    return;
                }
            }
        }
    }

    /// Fills `batch` with the entries before (`user_key`, `seqno`) in internal order, descending.
    /// Without a `user_key`, begins with the last entry.
    fn backward_from(&self, user_key: Option<&[u8]>, seqno: Seqno, batch: &mut FetchedBatch) {
        let mut older = Vec::new();
        for versions in self.until(user_key) {
            older.clear();
            older.extend(versions.newest_first().skip(1));
            let newest = std::iter::once(versions.newest());
            for version in older.iter().rev().copied().chain(newest) {
                if Some(version.key) == user_key && version.seqno() <= seqno {
                    continue;
                }
                if !batch.take(version) {
                    return;
                }
            }
        }
    }
}

impl InternalIterator for MemoryIter {
    fn seek_to_first(&mut self) -> Result<bool> {
        self.seek(&[], SEQNO_MAX)
    }

    fn seek_to_last(&mut self) -> Result<bool> {
        Ok(self.seek_fetch(true, |memory, batch| {
            memory.backward_from(None, SEQNO_MAX, batch);
        }))
    }

    fn seek(&mut self, user_key: &[u8], seqno: Seqno) -> Result<bool> {
        Ok(self.seek_fetch(false, |memory, batch| {
            memory.forward_from(user_key, seqno, batch);
        }))
    }

    fn seek_before(&mut self, user_key: &[u8]) -> Result<bool> {
        Ok(self.seek_fetch(true, |memory, batch| {
            memory.backward_from(Some(user_key), SEQNO_MAX, batch);
        }))
    }

    fn next(&mut self) -> Result<bool> {
        if self.step(false) {
            return Ok(true);
        }
        let (key, seqno) = self.leave();
        let on = self.fetch(false, |memory, batch| {
            memory.forward_from(&key, seqno - 1, batch);
        });
        self.left = key;
        Ok(on)
    }

    fn prev(&mut self) -> Result<bool> {
        if self.step(true) {
            return Ok(true);
        }
        let (key, seqno) = self.leave();
        let on = self.fetch(true, |memory, batch| {
            memory.backward_from(Some(&key), seqno, batch);
        });
        self.left = key;
        Ok(on)
    }

    fn valid(&self) -> bool {
        self.at < self.batch.entries.len()
    }

    fn key(&self) -> InternalKey<'_> {
        self.batch.get(self.at).0
    }

    fn value(&self) -> Value<'_> {
        self.batch.get(self.at).1
    }
}

/// A source of the merge over a set that has spilled.
enum Child {
    Memory(MemoryIter),
    Run(Box<SpilledRunIter>),
}

iterator_of_variants!(Child: Memory, Run);

/// The sources of a [`WriteSetIter`].
enum IterSources {
    /// The set has not spilled.
    Memory(MemoryIter),
    Merged(Box<MergeIter<Child>>),
}

macro_rules! on_sources {
    ($self:expr, $iter:ident => $call:expr) => {
        match $self {
            IterSources::Memory($iter) => $call,
            IterSources::Merged($iter) => $call,
        }
    };
}

/// A cursor over all versions that the transaction has written, with seqnos `UNCOMMITTED_BIT |
/// position`.
///
/// It merges the versions in memory, frozen memory and spilled runs. After a spill, a merge or a
/// rollback the next move creates new sources and continues from the key and seqno of the entry
/// under the cursor, whether or not the set still has it. Until then the entry stays readable, even
/// if its file is removed, because the cursor holds its block. In a set that has spilled, the
/// cursor may skip writes since the last seek, because the merge has read ahead.
///
/// A move locks the set's mutex if it needs entries of the memory or new sources, so the caller
/// must not hold this mutex.
pub struct WriteSetIter {
    set: SharedWriteSet,
    bounds: Bounds,
    sources: IterSources,
    /// The set's `source_generation` when the sources were created.
    source_generation: u64,
}

impl WriteSetIter {
    pub(super) fn within(set: SharedWriteSet, bounds: Bounds) -> Self {
        let (sources, source_generation) = sources(&set, &bounds);
        Self {
            set,
            bounds,
            sources,
            source_generation,
        }
    }

    fn is_fresh(&self) -> bool {
        self.source_generation == self.set.source_generation()
    }

    /// Replaces the sources by new ones, which are not positioned.
    fn renew(&mut self) {
        (self.sources, self.source_generation) = sources(&self.set, &self.bounds);
    }

    fn renew_if_stale(&mut self) {
        if !self.is_fresh() {
            self.renew();
        }
    }

    /// Replaces the sources by new ones, which are not positioned. Returns key and seqno of the
    /// entry that was under the cursor, so that the caller can go on from there.
    fn renewed(&mut self) -> (Vec<u8>, Seqno) {
        let key = self.key();
        let place = (key.user_key.to_vec(), key.seqno);
        self.renew();
        place
    }
}

/// Creates unpositioned sources for the current state of the write set. Also returns the set's
/// source generation, a number by which the iterator later sees whether it needs new sources.
fn sources(set: &SharedWriteSet, bounds: &Bounds) -> (IterSources, u64) {
    let locked = set.lock();
    let source_generation = set.source_generation();
    let memory = MemoryIter::new(MemoryIterSource::Set(set.clone()));
    let sources = match locked.has_spilled() {
        false => IterSources::Memory(memory),
        true => {
            let frozen = locked.frozen.as_ref().map(|frozen| frozen.memory());
            let frozen =
                frozen.map(|memory| MemoryIter::new(MemoryIterSource::Frozen(Arc::clone(memory))));
            let memories = std::iter::once(memory).chain(frozen).map(Child::Memory);
            let runs = locked.runs.cursors(bounds);
            let all = memories.chain(runs.map(|run| Child::Run(Box::new(run))));
            IterSources::Merged(Box::new(MergeIter::new(all.collect())))
        }
    };
    (sources, source_generation)
}

impl InternalIterator for WriteSetIter {
    fn seek_to_first(&mut self) -> Result<bool> {
        self.renew_if_stale();
        on_sources!(&mut self.sources, iter => iter.seek_to_first())
    }

    fn seek_to_last(&mut self) -> Result<bool> {
        self.renew_if_stale();
        on_sources!(&mut self.sources, iter => iter.seek_to_last())
    }

    fn seek(&mut self, user_key: &[u8], seqno: Seqno) -> Result<bool> {
        self.renew_if_stale();
        on_sources!(&mut self.sources, iter => iter.seek(user_key, seqno))
    }

    fn seek_before(&mut self, user_key: &[u8]) -> Result<bool> {
        self.renew_if_stale();
        on_sources!(&mut self.sources, iter => iter.seek_before(user_key))
    }

    fn next(&mut self) -> Result<bool> {
        if self.is_fresh() {
            return on_sources!(&mut self.sources, iter => iter.next());
        }
        let (key, seqno) = self.renewed();
        on_sources!(&mut self.sources, iter => iter.seek(&key, seqno - 1))
    }

    fn prev(&mut self) -> Result<bool> {
        if self.is_fresh() {
            return on_sources!(&mut self.sources, iter => iter.prev());
        }
        let (key, seqno) = self.renewed();
        on_sources!(&mut self.sources, iter => match iter.seek(&key, seqno)? {
            true => iter.prev(),
            false => iter.seek_to_last(),
        })
    }

    fn valid(&self) -> bool {
        on_sources!(&self.sources, iter => iter.valid())
    }

    fn key(&self) -> InternalKey<'_> {
        on_sources!(&self.sources, iter => iter.key())
    }

    fn value(&self) -> Value<'_> {
        on_sources!(&self.sources, iter => iter.value())
    }
}
