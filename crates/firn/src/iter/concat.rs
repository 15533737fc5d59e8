//! Concatenates sorted sources, such as the files of a level.

use crate::base::{BlockResidence, InternalIterator, InternalKey, Kind, Result, Seqno, Value};
use std::ops::Range;

/// An ordered list of sources of which no two share a user key. [`ConcatIter`] opens a source when
/// it needs it.
pub trait ChildOpener {
    /// Iterator over one source.
    type Iter: InternalIterator;

    /// Number of sources.
    fn len(&self) -> usize;

    /// Whether there is no source.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A user key at or below all keys of source `i`, and above all keys of source `i - 1`.
    fn smallest(&self, i: usize) -> &[u8];

    /// A user key at or above all keys of source `i`, and below all keys of source `i + 1`.
    fn largest(&self, i: usize) -> &[u8];

    /// Opens source `i` and returns an iterator over it that has no position yet.
    ///
    /// # Errors
    /// Those of opening the source, for files `Corruption`, `Unsupported` and `Io`.
    fn open(&self, i: usize) -> Result<Self::Iter>;

    /// As [`InternalIterator::prefetch_seek`], for a seek in source `i`, which need not be open.
    fn prefetch_seek(&self, i: usize, user_key: &[u8], begin: bool) -> bool {
        let _ = (i, user_key, begin);
        false
    }
}

/// Concatenates the sources of a [`ChildOpener`].
///
/// At most one source is open. It stays open until a move needs another one, so seeks close to each
/// other open nothing.
pub struct ConcatIter<O: ChildOpener> {
    opener: O,
    /// The sources that may hold keys within the bounds. Others are never opened.
    range: Range<usize>,
    open: Option<(usize, O::Iter)>,
    positioned: bool,
}

impl<O: ChildOpener> ConcatIter<O> {
    /// An iterator over all sources; not positioned.
    pub fn new(opener: O) -> Self {
        Self::bounded(opener, None, None)
    }

    /// An iterator over the sources that may hold a user key `k` with `lower ≤ k < upper`. It may
    /// return keys outside the bounds, but never opens a source that lies outside.
    pub fn bounded(opener: O, lower: Option<&[u8]>, upper: Option<&[u8]>) -> Self {
        let len = opener.len();
        let start = lower.map_or(0, |lower| partition(0..len, |i| opener.largest(i) < lower));
        let end = upper.map_or(len, |upper| {
            partition(start..len, |i| opener.smallest(i) < upper)
        });
        Self {
            opener,
            range: start..end,
            open: None,
            positioned: false,
        }
    }

    fn child(&mut self, i: usize) -> Result<&mut O::Iter> {
        if self.open.as_ref().is_none_or(|(open, _)| *open != i) {
            // Close the old source first, so that its pins are freed before the new one takes some.
            self.open = None;
            self.open = Some((i, self.opener.open(i)?));
        }
        Ok(&mut self.open.as_mut().expect("just opened").1)
    }

    /// The opener of the sources.
    pub fn opener(&self) -> &O {
        &self.opener
    }

    /// The open source and its number. Call it only when positioned.
    ///
    /// # Panics
    /// If it is not positioned.
    pub fn source(&self) -> (usize, &O::Iter) {
        debug_assert!(self.positioned);
        let (i, iter) = self.open.as_ref().expect("positioned");
        (*i, iter)
    }

    /// The open source. The caller must not move it. Call it only when positioned.
    ///
    /// # Panics
    /// If it is not positioned.
    pub fn source_mut(&mut self) -> &mut O::Iter {
        debug_assert!(self.positioned);
        &mut self.open.as_mut().expect("positioned").1
    }

    /// Moves the open source forward with `f`, which returns whether that source now stands on an
    /// entry. Returns whether the concatenation stands on an entry. Call it only when positioned.
    ///
    /// # Errors
    /// Those of `f`, and those of opening and reading the next source.
    ///
    /// # Panics
    /// If it is not positioned.
    pub fn advance(&mut self, f: impl FnOnce(&mut O::Iter) -> Result<bool>) -> Result<bool> {
        debug_assert!(self.positioned);
        self.positioned = false;
        let (i, child) = self.open.as_mut().expect("positioned");
        let (i, on) = (*i, f(child)?);
        if on {
            self.positioned = true;
            return Ok(true);
        }
        self.skip_empty_forward(i, on)
    }

    fn current(&self) -> &O::Iter {
        debug_assert!(self.positioned);
        &self.open.as_ref().expect("positioned").1
    }

    /// `on` says whether source `i` stands on an entry. If it does not, moves to the first entry of
    /// the sources after it. Returns whether the concatenation stands on an entry.
    fn skip_empty_forward(&mut self, mut i: usize, mut on: bool) -> Result<bool> {
        while !on && i + 1 < self.range.end {
            i += 1;
            on = self.child(i)?.seek_to_first()?;
        }
        self.positioned = on;
        Ok(on)
    }

    /// `on` says whether source `i` stands on an entry. If it does not, moves to the last entry of
    /// the sources before it. Returns whether the concatenation stands on an entry.
    fn skip_empty_backward(&mut self, mut i: usize, mut on: bool) -> Result<bool> {
        while !on && i > self.range.start {
            i -= 1;
            on = self.child(i)?.seek_to_last()?;
        }
        self.positioned = on;
        Ok(on)
    }
}

/// The first index of `range` for which `below` is false, or the end of `range`. `below` must not
/// turn from false to true within `range`.
fn partition(range: Range<usize>, below: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (range.start, range.end);
    while low < high {
        let middle = low + (high - low) / 2;
        if below(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

impl<O: ChildOpener> InternalIterator for ConcatIter<O> {
    fn seek_to_first(&mut self) -> Result<bool> {
        self.positioned = false;
        if self.range.is_empty() {
            return Ok(false);
        }
        let first = self.range.start;
        let on = self.child(first)?.seek_to_first()?;
        self.skip_empty_forward(first, on)
    }

    fn seek_to_last(&mut self) -> Result<bool> {
        self.positioned = false;
        if self.range.is_empty() {
            return Ok(false);
        }
        let last = self.range.end - 1;
        let on = self.child(last)?.seek_to_last()?;
        self.skip_empty_backward(last, on)
    }

    fn seek(&mut self, user_key: &[u8], seqno: Seqno) -> Result<bool> {
        self.positioned = false;
        let i = partition(self.range.clone(), |i| self.opener.largest(i) < user_key);
        if i == self.range.end {
            return Ok(false);
        }
        let on = self.child(i)?.seek(user_key, seqno)?;
        self.skip_empty_forward(i, on)
    }

    fn seek_before(&mut self, user_key: &[u8]) -> Result<bool> {
        self.positioned = false;
        let after = partition(self.range.clone(), |i| self.opener.smallest(i) < user_key);
        if after == self.range.start {
            return Ok(false);
        }
        let on = self.child(after - 1)?.seek_before(user_key)?;
        self.skip_empty_backward(after - 1, on)
    }

    fn next(&mut self) -> Result<bool> {
        debug_assert!(self.positioned);
        self.positioned = false;
        let (i, child) = self.open.as_mut().expect("positioned");
        let (i, on) = (*i, child.next()?);
        if on {
            self.positioned = true;
            return Ok(true);
        }
        self.skip_empty_forward(i, on)
    }

    fn prev(&mut self) -> Result<bool> {
        debug_assert!(self.positioned);
        self.positioned = false;
        let (i, child) = self.open.as_mut().expect("positioned");
        let (i, on) = (*i, child.prev()?);
        if on {
            self.positioned = true;
            return Ok(true);
        }
        self.skip_empty_backward(i, on)
    }

    fn rows_ahead(&mut self, limit: Option<&[u8]>, snapshot: Seqno) -> u32 {
        debug_assert!(self.positioned);
        let (_, child) = self.open.as_mut().expect("positioned");
        child.rows_ahead(limit, snapshot)
    }

    #[inline]
    fn next_unchecked(&mut self) {
        debug_assert!(self.positioned);
        let (_, child) = self.open.as_mut().expect("positioned");
        child.next_unchecked();
    }

    fn skip_unchecked(&mut self, rows: u32) {
        self.source_mut().skip_unchecked(rows);
    }

    #[inline]
    fn next_without_key(&mut self) -> (Kind, Value<'_>) {
        debug_assert!(self.positioned);
        let (_, child) = self.open.as_mut().expect("positioned");
        child.next_without_key()
    }

    fn restore_key(&mut self) {
        self.source_mut().restore_key();
    }

    fn peek(&self, count: usize, show: &mut dyn FnMut(&[u8])) {
        self.current().peek(count, show);
    }

    fn prefetch_seek(&self, user_key: &[u8], begin: bool) -> bool {
        let first = partition(self.range.clone(), |i| self.opener.largest(i) < user_key);
        self.range.contains(&first) && self.opener.prefetch_seek(first, user_key, begin)
    }

    fn valid(&self) -> bool {
        self.positioned
    }

    fn key(&self) -> InternalKey<'_> {
        self.current().key()
    }

    fn value(&self) -> Value<'_> {
        self.current().value()
    }

    fn residence(&self) -> BlockResidence {
        self.current().residence()
    }
}
