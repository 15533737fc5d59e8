//! What a transaction has written and nobody else sees.

mod cursor;

pub use cursor::WriteSetIter;

use crate::base::gauge::{Charge, Gauge};
use crate::base::key::{UNCOMMITTED_BIT, index_prefix};
use crate::base::{Error, ErrorKind, IndexId, InternalKey, Kind, Result, Seqno, Value};
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;
use std::sync::Arc;

/// Memory of a version beside key and value: map slot, log slot, headers of two allocations.
const VERSION_OVERHEAD: u64 = 136;

/// A place in the history of a write set, to come back to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(u64);

impl Mark {
    /// As a bound on own writes: a reader with it sees what was written up to the mark.
    pub fn own_bound(self) -> Seqno {
        UNCOMMITTED_BIT | self.0
    }
}

#[derive(Clone)]
struct Version {
    position: u64,
    kind: Kind,
    head_len: u32,
    bytes: Arc<[u8]>,
}

impl Version {
    fn seqno(&self) -> Seqno {
        UNCOMMITTED_BIT | self.position
    }

    fn value(&self) -> Value<'_> {
        let (head, tail) = self.bytes.split_at(self.head_len as usize);
        Value { head, tail }
    }
}

/// The versions of one user key, oldest first; never empty.
struct Versions {
    older: Vec<Version>,
    newest: Version,
}

impl Versions {
    fn newest_first(&self) -> impl DoubleEndedIterator<Item = &Version> {
        std::iter::once(&self.newest).chain(self.older.iter().rev())
    }
}

/// An ordered map of own writes. Each write gets the next *position*; statement rollback and
/// savepoints are "forget everything after position n".
///
/// Invariants:
/// - Positions rise and are never used twice, not even after a rollback: a reader or a spilled run
///   that names a position never means another write by it.
/// - `log` lists the writes by position, so that forgetting costs what is forgotten.
/// - A failed write leaves no trace.
///
/// All versions of a key are kept, not only the newest: a rollback brings the older one back, and
/// a statement reads as of its start (`own_bound`), else an UPDATE would meet its own rows again.
///
/// Spilled runs: when the set grows over its limit, a prefix in key order of everything written up
/// to a position becomes an immutable sorted run with seqnos `UNCOMMITTED_BIT | position`, and
/// leaves memory together with its part of the log. Own reads then merge the runs below
/// [`WriteSetIter`], and [`WriteSet::get`] is asked first, then the runs, newest first. A rollback
/// to a mark below a run's last position adds the interval (mark, last] to a list of dead
/// positions that own reads and the merge before the commit skip. Positions are never reused, so
/// the intervals stay true.
///
/// Rejected: undo records that restore the older value in place. Reads as of a statement's start
/// would need them too.
pub struct WriteSet {
    map: BTreeMap<Arc<[u8]>, Versions>,
    log: Vec<(u64, Arc<[u8]>)>,
    position: u64,
    bytes: u64,
    charge: Charge,
    limit: u64,
    /// Changes whenever the map does.
    generation: u64,
    scratch: Vec<u8>,
}

impl WriteSet {
    /// An empty set that may take `limit` bytes.
    pub fn new(limit: u64) -> Self {
        Self {
            map: BTreeMap::new(),
            log: Vec::new(),
            position: 0,
            bytes: 0,
            charge: Charge::default(),
            limit,
            generation: 0,
            scratch: Vec::new(),
        }
    }

    /// Counts its bytes in `gauge`, too.
    pub fn count_in(&mut self, gauge: &Arc<Gauge>) {
        self.charge = Charge::new(Arc::clone(gauge));
        self.charge.set(self.bytes);
    }

    /// Changes the limit for the writes that follow.
    pub fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// Writes a value. [`ErrorKind::TxnTooLarge`] if it does not fit.
    pub fn put(&mut self, user_key: &[u8], value: Value<'_>) -> Result<()> {
        self.write(user_key, Kind::Put, value)
    }

    /// Writes a delete. [`ErrorKind::TxnTooLarge`] if it does not fit.
    pub fn delete(&mut self, user_key: &[u8]) -> Result<()> {
        self.write(user_key, Kind::Delete, Value::EMPTY)
    }

    /// Writes a version of any kind. [`ErrorKind::TxnTooLarge`] if it does not fit.
    pub fn write(&mut self, user_key: &[u8], kind: Kind, value: Value<'_>) -> Result<()> {
        let bytes = version_bytes(user_key.len(), value.len());
        if self.bytes + bytes > self.limit {
            return Err(Error::new(
                ErrorKind::TxnTooLarge,
                format!(
                    "{} bytes written, {bytes} more are over the limit of {}",
                    self.bytes, self.limit
                ),
            ));
        }
        self.position += 1;
        self.generation += 1;
        self.bytes += bytes;
        self.charge.set(self.bytes);
        let version = Version {
            position: self.position,
            kind,
            head_len: value.head.len() as u32,
            bytes: self.joined(value),
        };
        match self.map.entry(Arc::from(user_key)) {
            Entry::Vacant(slot) => {
                self.log.push((self.position, Arc::clone(slot.key())));
                slot.insert(Versions {
                    older: Vec::new(),
                    newest: version,
                });
            }
            Entry::Occupied(mut slot) => {
                self.log.push((self.position, Arc::clone(slot.key())));
                let versions = slot.get_mut();
                let before = std::mem::replace(&mut versions.newest, version);
                versions.older.push(before);
            }
        }
        Ok(())
    }

    /// Both parts in one allocation.
    fn joined(&mut self, value: Value<'_>) -> Arc<[u8]> {
        if value.tail.is_empty() {
            return Arc::from(value.head);
        }
        self.scratch.clear();
        self.scratch.extend_from_slice(value.head);
        self.scratch.extend_from_slice(value.tail);
        Arc::from(&self.scratch[..])
    }

    /// The place after the last write.
    pub fn mark(&self) -> Mark {
        Mark(self.position)
    }

    /// Forgets every write after `mark`, and their bytes.
    pub fn rollback_to(&mut self, mark: Mark) {
        let keep = self
            .log
            .partition_point(|(position, _)| *position <= mark.0);
        while self.log.len() > keep {
            let (_, key) = self.log.pop().expect("longer than what is kept");
            self.generation += 1;
            let versions = self.map.get_mut(&key).expect("logged");
            let forgotten = match versions.older.pop() {
                Some(before) => {
                    let newest = std::mem::replace(&mut versions.newest, before);
                    newest.bytes.len()
                }
                None => {
                    let versions = self.map.remove(&key).expect("logged");
                    versions.newest.bytes.len()
                }
            };
            self.bytes -= version_bytes(key.len(), forgotten);
        }
        self.charge.set(self.bytes);
    }

    /// Forgets everything, and gives the memory back.
    pub fn clear(&mut self) {
        self.map = BTreeMap::new();
        self.log = Vec::new();
        self.bytes = 0;
        self.charge.set(0);
        self.generation += 1;
    }

    /// Gives `f` the newest own version of `user_key`, a delete too. The key's seqno is
    /// `UNCOMMITTED_BIT | position`.
    pub fn get<R>(
        &self,
        user_key: &[u8],
        f: impl FnOnce(InternalKey<'_>, Value<'_>) -> R,
    ) -> Option<R> {
        let (key, versions) = self.map.get_key_value(user_key)?;
        let version = &versions.newest;
        let key = InternalKey::new(key, version.seqno(), version.kind);
        Some(f(key, version.value()))
    }

    /// As [`WriteSet::get`], for the newest own version at or below `own_bound`.
    pub fn get_at<R>(
        &self,
        user_key: &[u8],
        own_bound: Seqno,
        f: impl FnOnce(InternalKey<'_>, Value<'_>) -> R,
    ) -> Option<R> {
        let (key, versions) = self.map.get_key_value(user_key)?;
        let version = versions
            .newest_first()
            .find(|version| version.seqno() <= own_bound)?;
        let key = InternalKey::new(key, version.seqno(), version.kind);
        Some(f(key, version.value()))
    }

    /// Calls `f` with the newest version of each key, in key order: what a commit writes.
    pub fn for_each_final(&self, mut f: impl FnMut(&[u8], Kind, Value<'_>)) {
        for (key, versions) in &self.map {
            f(key, versions.newest.kind, versions.newest.value());
        }
    }

    /// Number of keys: what a commit writes.
    pub fn keys(&self) -> usize {
        self.map.len()
    }

    /// Number of writes that are not forgotten.
    pub fn writes(&self) -> usize {
        self.log.len()
    }

    /// Memory taken, in bytes, about.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether nothing is written.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Whether a key of the index is written.
    pub fn touches(&self, index: IndexId) -> bool {
        let prefix = index_prefix(index);
        let from = (Bound::Included(&prefix[..]), Bound::Unbounded);
        let first = self.map.range::<[u8], _>(from).next();
        first.is_some_and(|(key, _)| key.starts_with(&prefix))
    }

    /// Whether a user key `k` with `lower ≤ k < upper` is written.
    pub fn touches_range(&self, lower: &[u8], upper: Option<&[u8]>) -> bool {
        let from = (Bound::Included(lower), Bound::Unbounded);
        let first = self.map.range::<[u8], _>(from).next();
        first.is_some_and(|(key, _)| upper.is_none_or(|upper| &key[..] < upper))
    }
}

fn version_bytes(key_len: usize, value_len: usize) -> u64 {
    (key_len + value_len) as u64 + VERSION_OVERHEAD
}

/// A write set shared by a transaction and its open cursors.
#[derive(Clone)]
pub struct SharedWriteSet(Arc<Mutex<WriteSet>>);

impl SharedWriteSet {
    /// An empty set that may take `limit` bytes.
    pub fn new(limit: u64) -> Self {
        Self(Arc::new(Mutex::new(WriteSet::new(limit))))
    }

    /// The set. Not to be held across a move of one of its iterators.
    pub fn lock(&self) -> MutexGuard<'_, WriteSet> {
        self.0.lock()
    }

    /// An iterator that stays valid while the set changes; not positioned.
    pub fn iter(&self) -> WriteSetIter {
        WriteSetIter::new(self.clone())
    }
}

#[cfg(test)]
mod tests;
