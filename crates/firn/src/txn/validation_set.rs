//! The keys that an optimistic transaction has read for change or written, for its validation.
//!
//! Example: at READ COMMITTED a statement reads at seqno 10 and updates the rows 1 and 2; another
//! one reads at seqno 15, locks row 3 for sharing and inserts row 4 with the unique name `x`:
//!
//! ```text
//! since 10 | read: -   written: 1 2   unique: -
//! since 15 | read: 3   written: 4     unique: x
//! ```
//!
//! The commit locks 1, 2, 3, 4 and `x` in the order of their bytes, and then looks for versions of
//! 1 and 2 above 10 and of 3 and 4 above 15, and for another row with `x`.

use super::lock_table::LockMode;
use super::lock_table::key_set::{KeySet, KeyWalk};
use crate::base::{IndexId, Result, Seqno};
use std::cmp::Ordering;
use std::collections::binary_heap::PeekMut;
use std::collections::{BTreeSet, BinaryHeap};

/// How a transaction depends on a key, from the weakest to the strongest dependency. If a key has
/// several, the validation visits the strongest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Dependency {
    /// The transaction has read the row with this key, or found that there is none.
    Read,
    /// The transaction has given a row these values of the declared columns of a unique index.
    Unique,
    /// The transaction has written the row with this key.
    Written,
}

impl Dependency {
    /// The lock that the validation takes.
    pub(super) fn mode(self) -> LockMode {
        match self {
            Self::Read => LockMode::Shared,
            Self::Unique | Self::Written => LockMode::Exclusive,
        }
    }
}

/// The keys noted by all statements that have read at the same seqno.
struct KeysOfPoint {
    /// The statements saw commits up to this seqno.
    since: Seqno,
    read: KeySet,
    unique: KeySet,
    written: KeySet,
}

impl KeysOfPoint {
    fn new(since: Seqno) -> Self {
        Self {
            since,
            read: KeySet::default(),
            unique: KeySet::default(),
            written: KeySet::default(),
        }
    }

    fn set_mut(&mut self, dependency: Dependency) -> &mut KeySet {
        match dependency {
            Dependency::Read => &mut self.read,
            Dependency::Unique => &mut self.unique,
            Dependency::Written => &mut self.written,
        }
    }

    fn sets(&self) -> [(Dependency, &KeySet); 3] {
        [
            (Dependency::Read, &self.read),
            (Dependency::Unique, &self.unique),
            (Dependency::Written, &self.written),
        ]
    }
}

/// The keys on which a transaction depends, by the seqno at which it has read them.
///
/// A key may be noted for several seqnos and with several dependencies; the validation checks each
/// of them. Keys in order take little memory, as merged locks do ([`KeySet`]). A rollback to a
/// savepoint keeps the keys, as it keeps row locks: what the transaction has read may have decided
/// what it does next.
#[derive(Default)]
pub(super) struct ValidationSet {
    /// The keys, grouped by the seqno at which they were read, ascending: later statements read at
    /// the same or a larger seqno.
    points: Vec<KeysOfPoint>,
    /// Indexes in which the transaction has written new keys. It is a set, not a list: it is
    /// searched for each new key, and a transaction may write to many tables.
    inserted: BTreeSet<IndexId>,
}

impl ValidationSet {
    /// Whether nothing was noted.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        if !self.is_empty() {
            *self = Self::default();
        }
    }

    /// Notes a key that a statement which reads at `since` depends on. Returns whether it is new
    /// among the keys of that seqno.
    pub(super) fn note(&mut self, since: Seqno, key: &[u8], dependency: Dependency) -> bool {
        if self.points.last().is_none_or(|last| last.since != since) {
            self.points.push(KeysOfPoint::new(since));
        }
        let point = self.points.last_mut().expect("pushed just now");
        let set = point.set_mut(dependency);
        let newly = !set.contains(key);
        if newly {
            set.insert(key);
        }
        newly
    }

    /// Forgets a key that the running statement has noted. The last call of [`Self::note`] with
    /// this key must have returned `true`, and no key was noted for a later seqno since then.
    pub(super) fn forget(&mut self, key: &[u8], dependency: Dependency) {
        if let Some(point) = self.points.last_mut() {
            point.set_mut(dependency).remove(key);
        }
    }

    /// Notes that the transaction writes new keys of `index`.
    pub(super) fn note_insert(&mut self, index: IndexId) {
        self.inserted.insert(index);
    }

    /// Whether a key was noted for a seqno below `seqno`.
    #[inline]
    pub(super) fn any_before(&self, seqno: Seqno) -> bool {
        self.points.first().is_some_and(|first| first.since < seqno)
    }

    /// Whether the row with this key was noted as written for a seqno below this one.
    pub(super) fn was_written_before(&self, row_key: &[u8], seqno: Seqno) -> bool {
        let mut points = self.points.iter().take_while(|point| point.since < seqno);
        points.any(|point| point.written.contains(row_key))
    }

    /// The indexes in which the transaction has written new keys, ascending.
    pub(super) fn inserted(&self) -> impl Iterator<Item = IndexId> + '_ {
        self.inserted.iter().copied()
    }

    /// Calls `f` with each key, its dependency and the seqno that it was read at, in the order of
    /// the keys. If a key has several dependencies, the strongest comes first.
    pub(super) fn for_each(
        &self,
        mut f: impl FnMut(&[u8], Dependency, Seqno) -> Result<()>,
    ) -> Result<()> {
        let mut sources: BinaryHeap<KeySource<'_>> = BinaryHeap::new();
        for point in &self.points {
            for (dependency, set) in point.sets() {
                let mut source = KeySource {
                    walk: set.walk(),
                    dependency,
                    since: point.since,
                };
                if source.walk.advance() {
                    sources.push(source);
                }
            }
        }
        while let Some(mut first) = sources.peek_mut() {
            f(first.walk.key(), first.dependency, first.since)?;
            if !first.walk.advance() {
                PeekMut::pop(first);
            }
        }
        Ok(())
    }
}

/// A walk over one set's keys, positioned on the next key that the merge has not passed yet.
struct KeySource<'a> {
    walk: KeyWalk<'a>,
    dependency: Dependency,
    since: Seqno,
}

impl Ord for KeySource<'_> {
    /// Reverses the order of keys, because the heap has its greatest element on top and the merge
    /// needs the smallest key. Of equal keys, the one with the strongest dependency comes first.
    fn cmp(&self, other: &Self) -> Ordering {
        let keys = other.walk.key().cmp(self.walk.key());
        keys.then(self.dependency.cmp(&other.dependency))
    }
}

impl PartialOrd for KeySource<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for KeySource<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for KeySource<'_> {}

#[cfg(test)]
mod tests;
