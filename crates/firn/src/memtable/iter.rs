//! The iterator over a memtable.

use super::Memtable;
use super::skiplist::{Skiplist, SkiplistIter};
use crate::base::{InternalIterator, InternalKey, Result, Seqno, Value};
use std::sync::Arc;

/// Iterates over a memtable and keeps it alive.
///
/// Entries inserted while the iterator exists may or may not appear. A reader that ignores entries
/// above a seqno which was visible before it created the iterator sees a fixed state. `next`
/// follows one pointer; `prev` walks forward from a hint.
pub struct MemtableIter {
    // Declared before the memtable, into which it points: fields are dropped in this order.
    cursor: Option<SkiplistIter<'static>>,
    memtable: Arc<Memtable>,
}

impl MemtableIter {
    pub(super) fn new(memtable: Arc<Memtable>) -> Self {
        Self {
            cursor: None,
            memtable,
        }
    }

    /// The memtable.
    pub fn memtable(&self) -> &Arc<Memtable> {
        &self.memtable
    }

    fn list(&self) -> &'static Skiplist {
        let list: *const Skiplist = &self.memtable.list;
        // SAFETY: the list is inside the `Arc`'s allocation, which does not move and lives as long
        // as `self.memtable`, which is never replaced. The extended reference ends up only in
        // `self.cursor`: the field is private, is dropped before `memtable`, and lends references
        // bound to `&self`.
        unsafe { &*list }
    }

    fn place(&mut self, cursor: Option<SkiplistIter<'static>>) -> Result<bool> {
        self.cursor = cursor;
        Ok(self.cursor.is_some())
    }

    fn current(&self) -> &SkiplistIter<'static> {
        self.cursor.as_ref().expect("positioned")
    }
}

impl InternalIterator for MemtableIter {
    fn seek_to_first(&mut self) -> Result<bool> {
        self.place(self.list().first())
    }

    fn seek_to_last(&mut self) -> Result<bool> {
        self.place(self.list().last())
    }

    fn seek(&mut self, user_key: &[u8], seqno: Seqno) -> Result<bool> {
        self.place(self.list().at_or_after(user_key, seqno))
    }

    fn seek_before(&mut self, user_key: &[u8]) -> Result<bool> {
        self.place(self.list().before(user_key))
    }

    fn next(&mut self) -> Result<bool> {
        let next = self.current().next();
        self.place(next)
    }

    fn next_past_versions(&mut self) -> Result<bool> {
        let next = self.current().next_past_versions();
        self.place(next)
    }

    fn prev(&mut self) -> Result<bool> {
        let prev = self.current().prev();
        self.place(prev)
    }

    fn valid(&self) -> bool {
        self.cursor.is_some()
    }

    fn key(&self) -> InternalKey<'_> {
        self.current().key()
    }

    fn value(&self) -> Value<'_> {
        self.current().value()
    }
}
