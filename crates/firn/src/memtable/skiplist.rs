//! The ordered list of a memtable: a skiplist in an arena.

mod entries_in_range;

pub use entries_in_range::RangeEntries;

use super::arena::Arena;
use super::atomics::AtomicUsize;
use super::node::{HEIGHT_MAX, NodeRef, Probe};
use crate::base::{InternalKey, Kind, Seqno, Value};
use std::cmp::Ordering;
use std::sync::atomic::Ordering::Relaxed;

/// Of the entries of each level, one in this many is also on the next level.
const BRANCHING: u64 = 4;

/// The concurrent ordered list.
///
/// Invariants:
///
/// - A node that is linked at level 0 stays in the list, and its fields never change.
/// - A node is linked from the bottom up, so a node found at one level is at all levels below. A
///   node that is missing at an upper level only makes a search longer.
/// - The hint of a node leads to some node before it. A writer stores it after it has linked the
///   node's new neighbour, without regard for other writers: the last hint stored may not be the
///   nearest, and [`NodeRef::prev`] walks forward from it.
/// - The oldest version that a node names has the node's user key and comes behind it. So all nodes
///   in between are versions of that key, also those linked later.
///
/// Heights derive from the hash of the key and the seqno, not from random numbers: the same inserts
/// make the same list, of the same size, in any order that keeps the order of the versions of each
/// key. Commits and replay insert the oldest version of a key first.
///
/// Rejected:
///
/// - Searching for the previous node when moving back: `O(log n)` cache misses per step, while the
///   hint costs eight bytes and one store into a line that the insert has just compared.
/// - Links of 32 bits, as offsets into one fixed arena: they save five bytes per entry, but need a
///   size fixed in advance, or a table of chunks to consult at each step.
/// - Links in both directions at level 0, updated in one atomic step or with helping: no reader
///   needs the backward links to be exact at each instant.
pub(super) struct Skiplist {
    /// Owns all nodes.
    arena: Arena,
    /// A node that sorts before all entries; its key is never compared.
    head: NodeRef<'static>,
    /// Approximate number of levels in use. Any value is correct; it only affects speed.
    height: AtomicUsize,
}

/// The position of a writer in the list: for each level, the last node before the entry that it
/// linked last, and a node after that entry. The search for the next entry starts at the lowest
/// level whose pair encloses it, which is level 0 for sorted entries.
///
/// Invariants: at all levels below `height`, `before < after`, and a higher level's pair encloses
/// that of a lower level. Other writers may have linked nodes between the two.
pub(super) struct Splice<'a> {
    height: usize,
    before: [NodeRef<'a>; HEIGHT_MAX],
    after: [Option<NodeRef<'a>>; HEIGHT_MAX],
}

impl<'a> Splice<'a> {
    /// The lowest level at which the pair of this splice encloses `probe`. A level at which other
    /// writers have linked nodes between the pair does not count. `height` if there is no such
    /// level.
    fn lowest_around(&self, head: NodeRef<'a>, probe: &Probe<'_>) -> usize {
        // Neighbouring levels often share a node: compare it once.
        let (mut too_high, mut too_low) = (None, None);
        (0..self.height)
            .find(|&level| {
                let (before, after) = (self.before[level], self.after[level]);
                if Some(before) == too_high || (after.is_some() && after == too_low) {
                    return false;
                }
                if before != head && before.compare(probe) != Ordering::Less {
                    too_high = Some(before);
                    return false;
                }
                if after.is_some_and(|after| after.compare(probe) == Ordering::Less) {
                    too_low = after;
                    return false;
                }
                before.next(level) == after
            })
            .unwrap_or(self.height)
    }
}

/// Height of the tower of an entry whose key has this hash.
fn height_of(hash: u64, trailer: u64) -> usize {
    let mixed =
        (hash ^ trailer.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let bits_each = BRANCHING.trailing_zeros();
    let steps = (mixed ^ (mixed >> 32)).trailing_zeros() / bits_each;
    (1 + steps as usize).min(HEIGHT_MAX)
}

impl Skiplist {
    pub(super) fn new() -> Self {
        let arena = Arena::new();
        let before_all = InternalKey::new(&[], 0, Kind::Delete);
        let (head, _) = NodeRef::new(&arena, HEIGHT_MAX, None, before_all, Value::EMPTY);
        // SAFETY: the arena keeps the node, the list owns the arena and never replaces it, and
        // every `NodeRef` that leaves the list has the lifetime of a borrow of the list. So the
        // head is not used after the arena is dropped.
        let head = unsafe { head.detached() };
        Self {
            arena,
            head,
            height: AtomicUsize::new(1),
        }
    }

    /// Bytes taken from the allocator.
    pub(super) fn allocated(&self) -> u64 {
        self.arena.allocated()
    }

    /// A splice without a position.
    pub(super) fn splice(&self) -> Splice<'_> {
        Splice {
            height: 0,
            before: [self.head; HEIGHT_MAX],
            after: [None; HEIGHT_MAX],
        }
    }

    /// Links a copy of the entry; `hash` is the hash of its user key. Returns its memory, bytes;
    /// `None` if this (user key, seqno, kind) is already there, and then the list is unchanged.
    pub(super) fn insert<'a>(
        &'a self,
        splice: &mut Splice<'a>,
        hash: u64,
        key: InternalKey<'_>,
        value: Value<'_>,
    ) -> Option<usize> {
        self.insert_with_height(splice, height_of(hash, key.trailer()), key, value)
    }

    fn insert_with_height<'a>(
        &'a self,
        splice: &mut Splice<'a>,
        height: usize,
        key: InternalKey<'_>,
        value: Value<'_>,
    ) -> Option<usize> {
        let probe = Probe::new(key.user_key, key.trailer());
        self.find(splice, self.raise(height), &probe);
        if splice.after[0].is_some_and(|after| after.is(&probe)) {
            return None;
        }
        let older = splice.after[0].filter(|after| after.has_key_of(&probe));
        let oldest = older.map(NodeRef::oldest);
        let (node, size) = NodeRef::new(&self.arena, height, oldest, key, value);
        let mut nested = true;
        for level in 0..height {
            loop {
                let (before, after) = (splice.before[level], splice.after[level]);
                node.prepare_next(level, after);
                if level == 0 {
                    node.set_prev_hint(before);
                }
                if before.try_link(level, after, node) {
                    break;
                }
                // Another writer has linked a node between `before` and `after`, so walk from
                // `before`.
                let found = walk(before, level, &probe);
                (splice.before[level], splice.after[level]) = found;
                // `before` and `after` were searched again for this level, so they may no longer
                // enclose the pair of the level below: the node that the other writer has linked
                // may lie before the `after` of the level below.
                nested &= level == 0;
                if level == 0 && found.1.is_some_and(|after| after.is(&probe)) {
                    return None;
                }
            }
            if level == 0
                && let Some(after) = splice.after[0]
            {
                after.set_prev_hint(node);
            }
        }
        splice.before[..height].fill(node);
        if !nested {
            splice.height = 0;
        }
        Some(size)
    }

    /// Makes the list use at least `height` levels. Returns the number of levels in use.
    fn raise(&self, height: usize) -> usize {
        let now = self.height.load(Relaxed);
        if height > now {
            self.height.fetch_max(height, Relaxed);
        }
        height.max(now)
    }

    /// Moves the splice to `probe`. The search starts at the lowest level whose pair encloses
    /// `probe`. There and at all levels below, the pair becomes the exact neighbours of `probe`. At
    /// the levels above, the pair encloses `probe`, but other nodes may lie in between.
    fn find<'a>(&'a self, splice: &mut Splice<'a>, height: usize, probe: &Probe<'_>) {
        let mut from = splice.lowest_around(self.head, probe);
        if from == splice.height {
            from = splice.height.max(height);
        }
        while splice.height < height {
            splice.before[splice.height] = self.head;
            splice.after[splice.height] = None;
            splice.height += 1;
        }
        let mut before = match from == splice.height {
            true => self.head,
            false => splice.before[from],
        };
        for level in (0..splice.height.min(from + 1)).rev() {
            let found = walk(before, level, probe);
            (splice.before[level], splice.after[level]) = found;
            before = found.0;
        }
    }

    /// The neighbours of `probe` at level 0: the last node before it, possibly the head, and the
    /// first one that is not before it.
    #[inline]
    fn around(&self, probe: &Probe<'_>) -> (NodeRef<'_>, Option<NodeRef<'_>>) {
        let mut before = self.head;
        let mut after = None;
        for level in (0..self.height.load(Relaxed)).rev() {
            loop {
                let next = before.next(level);
                if level > 0 {
                    before.prefetch_next(level - 1);
                }
                // `after` ended the walk on the level above, so it is not before `probe`: do not
                // compare it again.
                match next {
                    Some(node) if next != after && node.compare(probe) == Ordering::Less => {
                        before = node;
                    }
                    _ => {
                        after = next;
                        break;
                    }
                }
            }
        }
        (before, after)
    }

    fn cursor<'a>(&'a self, node: NodeRef<'a>) -> Option<SkiplistIter<'a>> {
        let head = self.head;
        (node != head).then_some(SkiplistIter { node, head })
    }

    pub(super) fn first(&self) -> Option<SkiplistIter<'_>> {
        self.cursor(self.head.next(0)?)
    }

    pub(super) fn last(&self) -> Option<SkiplistIter<'_>> {
        let mut at = self.head;
        for level in (0..self.height.load(Relaxed)).rev() {
            while let Some(next) = at.next(level) {
                at = next;
            }
        }
        self.cursor(at)
    }

    /// The first entry at or after (user key, seqno) in internal order.
    pub(super) fn at_or_after(&self, user_key: &[u8], seqno: Seqno) -> Option<SkiplistIter<'_>> {
        let probe = Probe::new(user_key, seqno << 8 | 0xff);
        self.cursor(self.around(&probe).1?)
    }

    /// The last entry whose user key is below `user_key`.
    pub(super) fn before(&self, user_key: &[u8]) -> Option<SkiplistIter<'_>> {
        let probe = Probe::new(user_key, u64::MAX);
        self.cursor(self.around(&probe).0)
    }
}

/// Walks at one level from `before`, which sorts before `probe`. Returns the last node before
/// `probe`, and the node behind that one.
#[inline]
fn walk<'a>(
    mut before: NodeRef<'a>,
    level: usize,
    probe: &Probe<'_>,
) -> (NodeRef<'a>, Option<NodeRef<'a>>) {
    loop {
        let next = before.next(level);
        if level > 0 {
            before.prefetch_next(level - 1);
        }
        match next {
            Some(node) if node.compare(probe) == Ordering::Less => before = node,
            next => return (before, next),
        }
    }
}

/// A position in the list. It may see later inserts.
#[derive(Clone, Copy)]
pub(super) struct SkiplistIter<'a> {
    node: NodeRef<'a>,
    head: NodeRef<'a>,
}

impl<'a> SkiplistIter<'a> {
    #[inline]
    pub(super) fn next(&self) -> Option<Self> {
        let (node, head) = (self.node.next(0)?, self.head);
        // Prefetch the node behind this one now: a merge reads rows of other sources before it
        // moves on to it, so the prefetch has time.
        node.prefetch_following();
        Some(Self { node, head })
    }

    /// The entry behind the oldest version of this entry's user key that was known when this entry
    /// was made. It may be a version that was inserted late. A hot row has dozens of versions, each
    /// in a cache line of its own, and this touches none but the oldest.
    #[inline]
    pub(super) fn next_past_versions(&self) -> Option<Self> {
        let oldest = Self {
            node: self.node.oldest(),
            ..*self
        };
        // Nobody has prefetched the entry behind it yet: fetch all its lines at once.
        oldest.node.prefetch_following();
        oldest.next()
    }

    #[inline]
    pub(super) fn prev(&self) -> Option<Self> {
        let (node, head) = (self.node.prev(), self.head);
        (node != head).then_some(Self { node, head })
    }

    #[inline]
    pub(super) fn key(&self) -> InternalKey<'a> {
        self.node.key()
    }

    #[inline]
    pub(super) fn value(&self) -> Value<'a> {
        self.node.value()
    }
}

#[cfg(test)]
mod tests;
