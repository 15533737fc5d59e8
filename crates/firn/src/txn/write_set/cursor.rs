//! The iterator over a write set that changes under it.

use super::{SharedWriteSet, Version, WriteSet};
use crate::base::key::SEQNO_MAX;
use crate::base::{InternalIterator, InternalKey, Result, Seqno, Value};
use std::ops::Bound;
use std::sync::Arc;

/// Entries fetched at once by a long scan.
const BATCH_MAX: usize = 64;

/// An entry, shared with the set: what it holds stays after the set forgot it.
struct Fetched {
    key: Arc<[u8]>,
    version: Version,
}

/// A cursor over all own versions, with seqnos `UNCOMMITTED_BIT | position`.
///
/// It holds on to the entry under it, and each move goes on from that entry's place in the order,
/// whether or not the set still holds it. Entries are fetched in batches that grow while a scan
/// goes on; a batch is dropped as soon as the set has changed. So a scan of an unchanged set costs
/// a search per batch, and one which writes as it reads a search per step.
pub struct WriteSetIter {
    set: SharedWriteSet,
    batch: Vec<Fetched>,
    /// The entry under the cursor; `batch.len()` when it stands nowhere.
    at: usize,
    backward: bool,
    /// Of the set when the batch was fetched.
    generation: u64,
    /// Size of the next batch.
    want: usize,
}

impl WriteSetIter {
    pub(super) fn new(set: SharedWriteSet) -> Self {
        Self {
            set,
            batch: Vec::new(),
            at: 0,
            backward: false,
            generation: 0,
            want: 1,
        }
    }

    fn fetch(&mut self, backward: bool, fill: impl FnOnce(&WriteSet, &mut Batch)) -> bool {
        let mut batch = Batch {
            entries: std::mem::take(&mut self.batch),
            want: self.want,
        };
        batch.entries.clear();
        let set = self.set.lock();
        fill(&set, &mut batch);
        self.generation = set.generation;
        drop(set);
        self.batch = batch.entries;
        self.at = 0;
        self.backward = backward;
        !self.batch.is_empty()
    }

    fn seek_fetch(&mut self, backward: bool, fill: impl FnOnce(&WriteSet, &mut Batch)) -> bool {
        self.want = 1;
        self.fetch(backward, fill)
    }

    /// One step within the batch, if it may.
    fn step(&mut self, backward: bool) -> bool {
        let usable = self.backward == backward
            && self.at + 1 < self.batch.len()
            && self.generation == self.set.lock().generation;
        self.at += usize::from(usable);
        usable
    }

    /// The place to go on from, and a larger batch.
    fn leave(&mut self) -> (Arc<[u8]>, Seqno) {
        self.want = (self.want * 4).min(BATCH_MAX);
        let entry = self.current();
        (Arc::clone(&entry.key), entry.version.seqno())
    }

    fn current(&self) -> &Fetched {
        &self.batch[self.at]
    }
}

struct Batch {
    entries: Vec<Fetched>,
    want: usize,
}

impl Batch {
    /// Takes an entry. Returns whether there is room for more.
    fn take(&mut self, key: &Arc<[u8]>, version: &Version) -> bool {
        self.entries.push(Fetched {
            key: Arc::clone(key),
            version: version.clone(),
        });
        self.entries.len() < self.want
    }
}

impl WriteSet {
    /// Entries at or after (user key, seqno) in internal order.
    fn forward_from(&self, user_key: &[u8], seqno: Seqno, batch: &mut Batch) {
        let from = (Bound::Included(user_key), Bound::Unbounded);
        for (key, versions) in self.map.range::<[u8], _>(from) {
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

    /// Entries before (user key, seqno) in internal order, backwards.
    fn backward_from(&self, user_key: Option<&[u8]>, seqno: Seqno, batch: &mut Batch) {
        let to = user_key.map_or(Bound::Unbounded, Bound::Included);
        for (key, versions) in self.map.range::<[u8], _>((Bound::Unbounded, to)).rev() {
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

impl InternalIterator for WriteSetIter {
    fn seek_to_first(&mut self) -> Result<bool> {
        self.seek(&[], SEQNO_MAX)
    }

    fn seek_to_last(&mut self) -> Result<bool> {
        Ok(self.seek_fetch(true, |set, batch| {
            set.backward_from(None, SEQNO_MAX, batch);
        }))
    }

    fn seek(&mut self, user_key: &[u8], seqno: Seqno) -> Result<bool> {
        Ok(self.seek_fetch(false, |set, batch| {
            set.forward_from(user_key, seqno, batch);
        }))
    }

    fn seek_before(&mut self, user_key: &[u8]) -> Result<bool> {
        Ok(self.seek_fetch(true, |set, batch| {
            set.backward_from(Some(user_key), SEQNO_MAX, batch);
        }))
    }

    fn next(&mut self) -> Result<bool> {
        if self.step(false) {
            return Ok(true);
        }
        let (key, seqno) = self.leave();
        Ok(self.fetch(false, |set, batch| {
            set.forward_from(&key, seqno - 1, batch);
        }))
    }

    fn prev(&mut self) -> Result<bool> {
        if self.step(true) {
            return Ok(true);
        }
        let (key, seqno) = self.leave();
        Ok(self.fetch(true, |set, batch| {
            set.backward_from(Some(&key), seqno, batch);
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
