//! Merges several sorted sources into one.

use crate::base::{BlockResidence, InternalIterator, InternalKey, Kind, Result, Seqno, Value};
use std::cmp::Ordering;

/// Merges sorted sources, forwards and backwards.
///
/// The source with the smallest key (moving backwards: the largest) is kept apart from a heap of
/// the others. It is *in front*. While it stays there, a step costs one comparison: its new key
/// against the top of the heap. The heap stores the first 16 bytes of each key as a number, so most
/// comparisons do not touch the keys. A caller that uses [`InternalIterator::rows_ahead`] moves
/// without any comparison: these rows lie in the front source, below the next key of the others.
///
/// Invariant: after a move forwards, each other source stands on its first entry after the current
/// entry, or is exhausted if it has none. (After `next_past_versions` it may stand beyond entries
/// of that user key.) After a move backwards, it stands on its last entry before the current entry.
/// A change of direction moves each other source to the other side of the current entry.
///
/// The sources are given newest first. Their order decides only between entries with equal user key
/// and seqno. Two committed sources have no such entries, except that replay may insert an entry
/// into a memtable that a file already has.
///
/// A source may gain entries while it is read (a memtable, the transaction's own write set). The
/// merge may miss such an entry or return it, but never returns entries out of order: a change of
/// direction checks the new position of each source.
///
/// Rejected: a loser tree. It saves comparisons if another source comes to the front at each step,
/// but takes log n comparisons for a step where this takes one.
pub struct MergeIter<I> {
    children: Vec<I>,
    /// The source in front; `None` when not positioned.
    current: Option<usize>,
    /// The other sources that stand on an entry: a binary heap with the source that is next in the
    /// current direction on top.
    rest: Vec<Waiting>,
    backward: bool,
    /// Buffer for the user key of the current entry while the direction changes.
    pivot: Vec<u8>,
}

/// A source that is not in front.
#[derive(Clone, Copy)]
struct Waiting {
    head: u128,
    child: usize,
}

/// The first 16 bytes of a key as a big-endian number; shorter keys are padded with zeros. If the
/// heads of two keys differ, the key with the smaller head is the smaller one.
#[inline]
fn head_of(key: &[u8]) -> u128 {
    if let Some(first) = key.first_chunk::<16>() {
        return u128::from_be_bytes(*first);
    }
    if let (Some(first), Some(last)) = (key.first_chunk::<8>(), key.last_chunk::<8>()) {
        // The key has 8 to 15 bytes, so its first and its last eight bytes overlap. Shift the bytes
        // of `last` that are not in `first` to the place directly behind `first`.
        let new = 8 * (key.len() as u32 - 8);
        let last = u128::from(u64::from_be_bytes(*last)) << 64 >> new;
        return u128::from(u64::from_be_bytes(*first)) << 64 | last & u128::from(u64::MAX);
    }
    let mut padded = [0; 16];
    padded[..key.len()].copy_from_slice(key);
    u128::from_be_bytes(padded)
}

impl<I: InternalIterator> MergeIter<I> {
    /// A merge of `children`, which are given newest first. It has no position yet.
    pub fn new(children: Vec<I>) -> Self {
        Self {
            rest: Vec::with_capacity(children.len()),
            children,
            current: None,
            backward: false,
            pivot: Vec::new(),
        }
    }

    /// The sources, in the order given.
    pub fn children(&self) -> &[I] {
        &self.children
    }

    /// Exchanges the sources: `f` gets the vector of the old sources and must leave the new ones in
    /// it, newest first. The merge reuses the vector's memory. It has no position afterwards.
    pub fn exchange(&mut self, f: impl FnOnce(&mut Vec<I>)) {
        self.current = None;
        self.rest.clear();
        f(&mut self.children);
    }

    /// The index of the source in front. Call it only when positioned.
    ///
    /// # Panics
    /// If it is not positioned.
    pub fn current_child(&self) -> usize {
        self.current.expect("positioned")
    }

    /// The smallest user key of the sources that are not in front; `None` if they are all
    /// exhausted. Call it only when positioned, moving forwards.
    pub fn rival(&self) -> Option<&[u8]> {
        debug_assert!(!self.backward);
        let top = self.rest.first()?;
        Some(self.children[top.child].key().user_key)
    }

    /// The source whose entry is the current entry of the merge. The caller must not move that
    /// source. Call it only when positioned.
    ///
    /// # Panics
    /// If it is not positioned.
    pub fn front_mut(&mut self) -> &mut I {
        &mut self.children[self.current.expect("positioned")]
    }

    /// Moves the source in front forward with `f`, which returns whether that source now stands on
    /// an entry. Returns whether the merge stands on an entry. Call it only when positioned, moving
    /// forwards.
    ///
    /// # Errors
    /// Those of `f`.
    ///
    /// # Panics
    /// If it is not positioned.
    pub fn advance(&mut self, f: impl FnOnce(&mut I) -> Result<bool>) -> Result<bool> {
        debug_assert!(!self.backward);
        let current = self.current.take().expect("positioned");
        let on = f(&mut self.children[current])?;
        Ok(self.restore_order(current, on))
    }

    fn front(&self) -> &I {
        &self.children[self.current.expect("positioned")]
    }

    fn waiting(&self, child: usize) -> Waiting {
        let head = head_of(self.children[child].key().user_key);
        Waiting { head, child }
    }

    /// Whether source `a` comes before source `b` in the current direction.
    #[inline]
    fn ahead(&self, a: Waiting, b: Waiting) -> bool {
        let order = a
            .head
            .cmp(&b.head)
            .then_with(|| self.order(a.child, b.child));
        (order == Ordering::Greater) == self.backward
    }

    /// The order of the entries under two sources.
    fn order(&self, a: usize, b: usize) -> Ordering {
        let (x, y) = (self.children[a].key(), self.children[b].key());
        x.cmp(&y).then(a.cmp(&b))
    }

    fn sift_down(&mut self, mut at: usize) {
        loop {
            let mut child = 2 * at + 1;
            if child >= self.rest.len() {
                return;
            }
            let right = child + 1;
            if right < self.rest.len() && self.ahead(self.rest[right], self.rest[child]) {
                child = right;
            }
            if !self.ahead(self.rest[child], self.rest[at]) {
                return;
            }
            self.rest.swap(at, child);
            at = child;
        }
    }

    fn pop(&mut self) -> Option<usize> {
        if self.rest.is_empty() {
            return None;
        }
        let top = self.rest.swap_remove(0);
        self.sift_down(0);
        Some(top.child)
    }

    /// Builds the heap from the positions of all sources.
    fn rebuild(&mut self, backward: bool) -> bool {
        self.backward = backward;
        self.rest.clear();
        for i in 0..self.children.len() {
            if self.children[i].valid() {
                self.rest.push(self.waiting(i));
            }
        }
        for at in (0..self.rest.len() / 2).rev() {
            self.sift_down(at);
        }
        self.current = self.pop();
        self.current.is_some()
    }

    /// Source `current` was in front and has moved in the current direction; `on` says whether it
    /// still stands on an entry. Puts the source with the next key in front. Returns whether the
    /// merge stands on an entry.
    fn restore_order(&mut self, current: usize, on: bool) -> bool {
        if !on {
            self.current = self.pop();
            return self.current.is_some();
        }
        self.current = Some(current);
        if let Some(&top) = self.rest.first() {
            let moved = self.waiting(current);
            if self.ahead(top, moved) {
                self.rest[0] = moved;
                self.current = Some(top.child);
                self.sift_down(0);
            }
        }
        true
    }

    fn seek_all(
        &mut self,
        backward: bool,
        mut seek: impl FnMut(&mut I) -> Result<bool>,
    ) -> Result<bool> {
        self.current = None;
        for child in &mut self.children {
            seek(child)?;
        }
        Ok(self.rebuild(backward))
    }

    /// Continues a scan after some sources may have gained entries. Calls `replace` with each
    /// source: it must move a source that may have gained entries to the scan's next entry there,
    /// and must not move the others. `backward` is the direction of the scan, which must be that of
    /// the last move. Returns whether the merge stands on an entry.
    ///
    /// # Errors
    /// Those of `replace`.
    pub fn catch_up(
        &mut self,
        backward: bool,
        mut replace: impl FnMut(&mut I) -> Result<()>,
    ) -> Result<bool> {
        debug_assert_eq!(self.backward, backward);
        self.current = None;
        for child in &mut self.children {
            replace(child)?;
        }
        Ok(self.rebuild(backward))
    }

    /// Begins the reads that a seek of `user_key` needs in all sources, before the seek waits for
    /// the first of them. Begins none if the last source, which is the oldest and largest run,
    /// needs no read: other reads have then probably brought the blocks of this range into the
    /// cache, those of the other sources too.
    fn prefetch(&self, user_key: &[u8]) {
        let Some((last, others)) = self.children.split_last() else {
            return;
        };
        if others.is_empty() || !last.prefetch_seek(user_key, false) {
            return;
        }
        let mut alone = true;
        for child in others {
            alone &= !child.prefetch_seek(user_key, true);
        }
        // A single read gains nothing from being announced.
        if !alone {
            last.prefetch_seek(user_key, true);
        }
    }

    /// Changes the direction and moves one step in it.
    fn turn(&mut self, current: usize, backward: bool) -> Result<bool> {
        let key = self.children[current].key();
        let (seqno, kind) = (key.seqno, key.kind);
        let mut pivot = std::mem::take(&mut self.pivot);
        pivot.clear();
        pivot.extend_from_slice(key.user_key);
        let result = self.turn_around(current, backward, &pivot, seqno, kind);
        self.pivot = pivot;
        result?;
        Ok(self.rebuild(backward))
    }

    fn turn_around(
        &mut self,
        current: usize,
        backward: bool,
        pivot: &[u8],
        seqno: Seqno,
        kind: Kind,
    ) -> Result<()> {
        let pivot = InternalKey::new(pivot, seqno, kind);
        for (i, child) in self.children.iter_mut().enumerate() {
            let mut on = match (child.valid(), backward) {
                (true, true) => child.prev()?,
                (true, false) => child.next()?,
                (false, true) => child.seek_to_last()?,
                (false, false) => child.seek_to_first()?,
            };
            // Go on until the source stands beyond the current entry of the merge. The step above
            // suffices, unless the source has gained entries since it was positioned, as a memtable
            // may, or has passed versions of the current key.
            while on {
                let order = child.key().cmp(&pivot).then(i.cmp(&current));
                match (backward, order) {
                    (true, Ordering::Less) | (false, Ordering::Greater) => break,
                    (true, _) => on = child.prev()?,
                    (false, _) => on = child.next()?,
                }
            }
        }
        Ok(())
    }
}

impl<I: InternalIterator> InternalIterator for MergeIter<I> {
    fn seek_to_first(&mut self) -> Result<bool> {
        self.seek_all(false, I::seek_to_first)
    }

    fn seek_to_last(&mut self) -> Result<bool> {
        self.seek_all(true, I::seek_to_last)
    }

    fn seek(&mut self, user_key: &[u8], seqno: Seqno) -> Result<bool> {
        self.prefetch(user_key);
        self.seek_all(false, |child| child.seek(user_key, seqno))
    }

    fn seek_before(&mut self, user_key: &[u8]) -> Result<bool> {
        self.prefetch(user_key);
        self.seek_all(true, |child| child.seek_before(user_key))
    }

    #[inline]
    fn next(&mut self) -> Result<bool> {
        // An error leaves the merge unpositioned.
        let current = self.current.take().expect("positioned");
        if self.backward {
            return self.turn(current, false);
        }
        let on = self.children[current].next()?;
        Ok(self.restore_order(current, on))
    }

    /// Passes versions in the front source only.
    #[inline]
    fn next_past_versions(&mut self) -> Result<bool> {
        match self.backward {
            true => self.next(),
            false => self.advance(I::next_past_versions),
        }
    }

    fn prev(&mut self) -> Result<bool> {
        let current = self.current.take().expect("positioned");
        if !self.backward {
            return self.turn(current, true);
        }
        let on = self.children[current].prev()?;
        Ok(self.restore_order(current, on))
    }

    fn rows_ahead(&mut self, limit: Option<&[u8]>, snapshot: Seqno) -> u32 {
        let Some(current) = self.current.filter(|_| !self.backward) else {
            return 0;
        };
        let Some(top) = self.rest.first() else {
            return self.children[current].rows_ahead(limit, snapshot);
        };
        let mut next = std::mem::take(&mut self.pivot);
        next.clear();
        next.extend_from_slice(self.children[top.child].key().user_key);
        let limit = limit.map_or(&next[..], |limit| limit.min(&next));
        let rows = self.children[current].rows_ahead(Some(limit), snapshot);
        self.pivot = next;
        rows
    }

    #[inline]
    fn next_unchecked(&mut self) {
        let current = self.current.expect("positioned");
        self.children[current].next_unchecked();
    }

    fn skip_unchecked(&mut self, rows: u32) {
        self.front_mut().skip_unchecked(rows);
    }

    #[inline]
    fn next_without_key(&mut self) -> (Kind, Value<'_>) {
        self.front_mut().next_without_key()
    }

    fn restore_key(&mut self) {
        self.front_mut().restore_key();
    }

    fn peek(&self, count: usize, show: &mut dyn FnMut(&[u8])) {
        self.front().peek(count, show);
    }

    fn valid(&self) -> bool {
        self.current.is_some()
    }

    fn key(&self) -> InternalKey<'_> {
        self.front().key()
    }

    fn value(&self) -> Value<'_> {
        self.front().value()
    }

    fn residence(&self) -> BlockResidence {
        self.front().residence()
    }
}
