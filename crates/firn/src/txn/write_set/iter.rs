//! Iterators over a write set that stay valid while the set changes.

use super::SharedWriteSet;
use super::memory::{InMemoryWrites, OwnVersion};
use super::spilled_runs::{Bounds, SpilledRunIter};
use crate::base::key::SEQNO_MAX;
use crate::base::{InternalIterator, InternalKey, Result, Seqno, Value};
use crate::iter::{MergeIter, iterator_of_variants};
use std::sync::Arc;

/// Largest number of entries that a scan fetches at once.
const BATCH_MAX: usize = 64;

/// An entry that shares its allocations with the write set, so it stays readable after the set has
/// forgotten it.
struct Fetched {
    key: Arc<[u8]>,
    version: OwnVersion,
}

/// A cursor over the own versions in memory, with seqnos `UNCOMMITTED_BIT | position`.
///
/// It keeps the entry under the cursor, and each move continues from the key and seqno of that
/// entry, whether or not the set still has it. It fetches entries in batches, which grow during a
/// scan, and drops a batch once the set has changed. So a scan of an unchanged set costs one search
/// per batch, and a scan that writes while it reads one search per step.
struct MemoryIter {
    place: MemoryIterSource,
    batch: Vec<Fetched>,
    /// Position in `batch` of the entry under the cursor; `batch.len()` if there is none.
    at: usize,
    /// Whether the batch was fetched backwards, so that its entries descend.
    backward: bool,
    /// Generation of the set when the batch was fetched.
    generation: u64,
    /// Size of the next batch.
    want: usize,
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

    /// Calls `f` with the memory, under the set's mutex if it is the memory of a set. Returns the
    /// set's generation, or 0 for frozen memory.
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
            batch: Vec::new(),
            at: 0,
            backward: false,
            generation: 0,
            want: 1,
        }
    }

    /// Replaces the batch by a new one from `fill`. Returns whether it has an entry.
    fn fetch(
        &mut self,
        backward: bool,
        fill: impl FnOnce(&InMemoryWrites, &mut FetchedBatch),
    ) -> bool {
        let mut batch = FetchedBatch {
            entries: std::mem::take(&mut self.batch),
            want: self.want,
        };
        batch.entries.clear();
        self.generation = self.place.show(|memory| fill(memory, &mut batch));
        self.batch = batch.entries;
        self.at = 0;
        self.backward = backward;
        !self.batch.is_empty()
    }

    /// As [`Self::fetch`], for a seek. A seek begins with the smallest batch.
    fn seek_fetch(
        &mut self,
        backward: bool,
        fill: impl FnOnce(&InMemoryWrites, &mut FetchedBatch),
    ) -> bool {
        self.want = 1;
        self.fetch(backward, fill)
    }

    /// Moves to the next entry of the batch, if the batch was fetched in this direction and has
    /// one, and the set has not changed since. Returns whether it moved.
    fn step(&mut self, backward: bool) -> bool {
        let usable = self.backward == backward
            && self.at + 1 < self.batch.len()
            && self.generation == self.place.generation();
        self.at += usize::from(usable);
        usable
    }

    /// Returns key and seqno of the entry under the cursor. The caller fetches the next, larger
    /// batch from that position.
    fn leave(&mut self) -> (Arc<[u8]>, Seqno) {
        self.want = (self.want * 4).min(BATCH_MAX);
        let entry = self.current();
        (Arc::clone(&entry.key), entry.version.seqno())
    }

    fn current(&self) -> &Fetched {
        &self.batch[self.at]
    }
}

/// A batch while it is filled.
struct FetchedBatch {
    entries: Vec<Fetched>,
    want: usize,
}

impl FetchedBatch {
    /// Adds an entry. Returns whether there is room for more.
    fn take(&mut self, key: &Arc<[u8]>, version: &OwnVersion) -> bool {
        self.entries.push(Fetched {
            key: Arc::clone(key),
            version: version.clone(),
        });
        self.entries.len() < self.want
    }
}

impl InMemoryWrites {
    /// Fills `batch` with entries at or after (user key, seqno) in internal order.
    fn forward_from(&self, user_key: &[u8], seqno: Seqno, batch: &mut FetchedBatch) {
        for (key, versions) in self.from(user_key) {
            for version in versions.newest_first() {
                if &key[..] == user_key && version.seqno() > seqno {
                    continue;
                }
                if !batch.take(key, version) {
                    return;
                }
            }
        }
    }

    /// Fills `batch` with the entries before (`user_key`, `seqno`) in internal order, descending.
    /// Without a `user_key`, begins with the last entry.
    fn backward_from(&self, user_key: Option<&[u8]>, seqno: Seqno, batch: &mut FetchedBatch) {
        for (key, versions) in self.until(user_key) {
            for version in versions.newest_first().rev() {
                if Some(&key[..]) == user_key && version.seqno() <= seqno {
                    continue;
                }
                if !batch.take(key, version) {
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
        Ok(self.fetch(false, |memory, batch| {
            memory.forward_from(&key, seqno - 1, batch);
        }))
    }

    fn prev(&mut self) -> Result<bool> {
        if self.step(true) {
            return Ok(true);
        }
        let (key, seqno) = self.leave();
        Ok(self.fetch(true, |memory, batch| {
            memory.backward_from(Some(&key), seqno, batch);
        }))
    }

    fn valid(&self) -> bool {
        self.at < self.batch.len()
    }

    fn key(&self) -> InternalKey<'_> {
        let entry = self.current();
        InternalKey::new(&entry.key, entry.version.seqno(), entry.version.kind)
    }

    fn value(&self) -> Value<'_> {
        self.current().version.value()
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

/// A cursor over all own versions, with seqnos `UNCOMMITTED_BIT | position`.
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

    /// As [`Self::renew`]. Returns key and seqno of the entry that was under the cursor.
    fn renewed(&mut self) -> (Vec<u8>, Seqno) {
        let key = self.key();
        let place = (key.user_key.to_vec(), key.seqno);
        self.renew();
        place
    }
}

/// Creates sources for the current state of the set, which are not positioned, and returns them
/// with the set's source generation.
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
