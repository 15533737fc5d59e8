//! The iterator contract of all sorted sources.

use super::{InternalKey, Kind, Result, Seqno, Value};

/// Where a block is kept beside its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlockResidence {
    /// The block is in the block cache.
    pub cached: bool,
    /// The block is probably in the memory pool.
    pub pooled: bool,
}

/// An iterator over internal keys in internal order (user key ascending, seqno descending).
///
/// Every move returns whether the iterator is on an entry afterwards; after an error it is
/// unpositioned. `key` and `value` may be called only on an entry; their results live until the
/// next move.
///
/// # Errors
/// Every move that returns a `Result` fails with the errors of reading its source: `Corruption`,
/// `Unsupported`, `NotFound` (a missing file) and `Io`.
#[allow(clippy::missing_errors_doc)] // Named once, above.
pub trait InternalIterator {
    /// Moves to the first entry.
    fn seek_to_first(&mut self) -> Result<bool>;
    /// Moves to the last entry.
    fn seek_to_last(&mut self) -> Result<bool>;
    /// Moves to the first entry at or after (`user_key`, `seqno`). With `SEQNO_MAX` that is the
    /// newest version of the first user key ≥ `user_key`.
    fn seek(&mut self, user_key: &[u8], seqno: Seqno) -> Result<bool>;
    /// Moves to the last entry whose user key is below `user_key`: the oldest version of that key.
    fn seek_before(&mut self, user_key: &[u8]) -> Result<bool>;
    /// Moves forward. Requires a position.
    fn next(&mut self) -> Result<bool>;
    /// Moves forward by at least one entry, and may pass further entries of the user key on which
    /// the iterator stands. Later moves may miss entries of that key, too: in a merge, each source
    /// passes its own. So it is only for callers that want no further version of the key. Requires
    /// a position.
    fn next_past_versions(&mut self) -> Result<bool> {
        self.next()
    }
    /// Moves backward. Requires a position.
    fn prev(&mut self) -> Result<bool>;
    /// The number of entries after the position that are simple rows without another entry in
    /// between, or a smaller number. The caller may visit them with [`Self::next_unchecked`]. An
    /// entry is a simple row if it is a put committed at or before `snapshot`, and its user key is
    /// below `limit` and differs from the user key of the entry before it. Counts only loaded
    /// blocks and reads nothing. Requires a position.
    fn rows_ahead(&mut self, limit: Option<&[u8]>, snapshot: Seqno) -> u32 {
        let _ = (limit, snapshot);
        0
    }
    /// Moves forward onto an entry counted by [`Self::rows_ahead`]; cannot fail.
    fn next_unchecked(&mut self) {
        let moved = self.next();
        debug_assert!(matches!(moved, Ok(true)));
    }
    /// As `rows` calls of [`Self::next_unchecked`]. `rows` is at least 1, and at most the number
    /// that [`Self::rows_ahead`] has counted.
    fn skip_unchecked(&mut self, rows: u32) {
        for _ in 0..rows {
            self.next_unchecked();
        }
    }
    /// As [`Self::next_unchecked`], and returns kind and value of the entry. [`Self::key`] may not
    /// be called until [`Self::restore_key`] or another move. A scan that needs no key saves the
    /// work of assembling it.
    fn next_without_key(&mut self) -> (Kind, Value<'_>) {
        self.next_unchecked();
        (self.key().kind, self.value())
    }
    /// Assembles the key of the current entry, so that [`Self::key`] may be called after
    /// [`Self::next_without_key`].
    fn restore_key(&mut self) {}
    /// Calls `show` with the user key of each of the next `count` puts after the position, as far
    /// as their blocks are in memory. A prefetch uses them as a hint of the entries that a scan
    /// reaches next: some of these puts may be invisible to the scan, and others may be missing.
    fn peek(&self, count: usize, show: &mut dyn FnMut(&[u8])) {
        let _ = (count, show);
    }
    /// Whether a seek of `user_key` would have to read a block from disk. With `begin`, also starts
    /// that read and does not wait for it. Does not move the iterator and never fails; the answer
    /// is only a hint.
    fn prefetch_seek(&self, user_key: &[u8], begin: bool) -> bool {
        let _ = (user_key, begin);
        false
    }
    /// Whether the iterator is on an entry.
    fn valid(&self) -> bool;
    /// The key of the current entry.
    fn key(&self) -> InternalKey<'_>;
    /// The value of the current entry.
    fn value(&self) -> Value<'_>;
    /// Where the block of the current entry is kept in memory. A compaction asks for this: it loads
    /// the blocks of its outputs into the same places as the entries in them had before.
    fn residence(&self) -> BlockResidence {
        BlockResidence::default()
    }
}

impl<T: InternalIterator + ?Sized> InternalIterator for Box<T> {
    fn seek_to_first(&mut self) -> Result<bool> {
        (**self).seek_to_first()
    }
    fn seek_to_last(&mut self) -> Result<bool> {
        (**self).seek_to_last()
    }
    fn seek(&mut self, user_key: &[u8], seqno: Seqno) -> Result<bool> {
        (**self).seek(user_key, seqno)
    }
    fn seek_before(&mut self, user_key: &[u8]) -> Result<bool> {
        (**self).seek_before(user_key)
    }
    fn next(&mut self) -> Result<bool> {
        (**self).next()
    }
    fn next_past_versions(&mut self) -> Result<bool> {
        (**self).next_past_versions()
    }
    fn prev(&mut self) -> Result<bool> {
        (**self).prev()
    }
    fn rows_ahead(&mut self, limit: Option<&[u8]>, snapshot: Seqno) -> u32 {
        (**self).rows_ahead(limit, snapshot)
    }
    fn next_unchecked(&mut self) {
        (**self).next_unchecked();
    }
    fn skip_unchecked(&mut self, rows: u32) {
        (**self).skip_unchecked(rows);
    }
    fn next_without_key(&mut self) -> (Kind, Value<'_>) {
        (**self).next_without_key()
    }
    fn restore_key(&mut self) {
        (**self).restore_key();
    }
    fn peek(&self, count: usize, show: &mut dyn FnMut(&[u8])) {
        (**self).peek(count, show);
    }
    fn prefetch_seek(&self, user_key: &[u8], begin: bool) -> bool {
        (**self).prefetch_seek(user_key, begin)
    }
    fn valid(&self) -> bool {
        (**self).valid()
    }
    fn key(&self) -> InternalKey<'_> {
        (**self).key()
    }
    fn value(&self) -> Value<'_> {
        (**self).value()
    }
    fn residence(&self) -> BlockResidence {
        (**self).residence()
    }
}
