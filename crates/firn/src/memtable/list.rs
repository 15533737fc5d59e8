//! The ordered list under a memtable.
//!
//! A thin layer over `crossbeam-skiplist`, so that an arena skiplist can take its place. Nothing is
//! ever removed or replaced while the list lives, which is what makes the plain references handed
//! out here sound: an entry, once linked, stays where it is until the whole list is dropped.
//!
//! Each node keeps the first 16 bytes of its user key as two big-endian words, so that most
//! comparisons of a search touch the node alone and not the allocation with the bytes.

use crate::base::{InternalKey, Kind, Seqno, Value, key};
use crossbeam_epoch::{self as epoch, Guard};
use crossbeam_skiplist::{SkipList, base};
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::ops::Bound;

/// What a search compares: a user key, borrowed by address, and a trailer (`seqno << 8 | kind`).
struct Probe {
    prefix: [u64; 2],
    trailer: u64,
    bytes: *const u8,
    key_len: u32,
}

impl Probe {
    fn new(user_key: &[u8], trailer: u64) -> Self {
        Self {
            prefix: prefix_words(user_key),
            trailer,
            bytes: user_key.as_ptr(),
            key_len: user_key.len() as u32,
        }
    }

    fn user_key(&self) -> &[u8] {
        // SAFETY: whoever made the probe keeps the key alive: a search borrows it for the whole
        // call, and an entry owns the allocation that `bytes` points to.
        unsafe { std::slice::from_raw_parts(self.bytes, self.key_len as usize) }
    }
}

/// The first 16 bytes of a key, padded with zeros, such that comparing the words orders keys which
/// differ there. (Where the pad meets a byte above zero the shorter key is a prefix of the longer.)
fn prefix_words(key: &[u8]) -> [u64; 2] {
    let mut bytes = [0u8; 16];
    let len = key.len().min(16);
    bytes[..len].copy_from_slice(&key[..len]);
    let words = u128::from_be_bytes(bytes);
    [(words >> 64) as u64, words as u64]
}

impl Ord for Probe {
    fn cmp(&self, other: &Self) -> Ordering {
        self.prefix
            .cmp(&other.prefix)
            .then_with(|| {
                if self.key_len <= 16 && other.key_len <= 16 {
                    self.key_len.cmp(&other.key_len)
                } else {
                    self.user_key().cmp(other.user_key())
                }
            })
            .then_with(|| other.trailer.cmp(&self.trailer))
    }
}

impl PartialOrd for Probe {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Probe {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Probe {}

/// A linked entry. Owns one allocation: user key, head, tail.
struct Entry {
    probe: Probe,
    head_len: u32,
    total_len: u32,
}

// SAFETY: the allocation behind `probe.bytes` belongs to the entry alone, is written before the
// entry is linked and never afterwards; sharing it is sharing an immutable `Box<[u8]>`.
unsafe impl Send for Entry {}
// SAFETY: as above.
unsafe impl Sync for Entry {}

impl Entry {
    fn new(key: InternalKey<'_>, value: Value<'_>) -> Self {
        let total = key.user_key.len() + value.len();
        let mut bytes = Vec::with_capacity(total);
        bytes.extend_from_slice(key.user_key);
        bytes.extend_from_slice(value.head);
        bytes.extend_from_slice(value.tail);
        let bytes = Box::into_raw(bytes.into_boxed_slice());
        Self {
            probe: Probe {
                prefix: prefix_words(key.user_key),
                trailer: key.trailer(),
                bytes: bytes.cast_const().cast(),
                key_len: key.user_key.len() as u32,
            },
            head_len: value.head.len() as u32,
            total_len: u32::try_from(total).expect("an entry is below 4 GiB"),
        }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: `Entry::new` made the allocation with this length; only `drop` frees it.
        unsafe { std::slice::from_raw_parts(self.probe.bytes, self.total_len as usize) }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let bytes = std::ptr::slice_from_raw_parts_mut(
            self.probe.bytes.cast_mut(),
            self.total_len as usize,
        );
        // SAFETY: the pointer came from `Box::into_raw` in `Entry::new` with this length, and an
        // entry is dropped once.
        drop(unsafe { Box::from_raw(bytes) });
    }
}

impl Borrow<Probe> for Entry {
    fn borrow(&self) -> &Probe {
        &self.probe
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        self.probe.cmp(&other.probe)
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.probe == other.probe
    }
}

impl Eq for Entry {}

/// Bytes of a node beside its key and value: the node with a tower of two links on average, and
/// the allocator's share of both allocations.
pub(super) const NODE_OVERHEAD: u64 = (size_of::<Entry>() + size_of::<usize>() * 3 + 2 * 16) as u64;

/// The concurrent ordered list.
pub(super) struct List {
    inner: SkipList<Entry, ()>,
}

fn guard() -> &'static Guard {
    // SAFETY: an unprotected guard needs that nothing reachable is freed meanwhile. Entries leave
    // the list only in its destructor, which needs exclusive access.
    unsafe { epoch::unprotected() }
}

impl List {
    pub(super) fn new() -> Self {
        Self {
            inner: SkipList::new(epoch::default_collector().clone()),
        }
    }

    /// Links a copy of the entry. Returns false, changing nothing, if this (user key, seqno, kind)
    /// is already there.
    pub(super) fn insert(&self, key: InternalKey<'_>, value: Value<'_>) -> bool {
        let entry = Entry::new(key, value);
        let bytes = entry.probe.bytes;
        let linked = self.inner.get_or_insert(entry, (), guard());
        // The allocation of an entry found there was live when ours was made, so they differ.
        let fresh = std::ptr::eq(linked.key().probe.bytes, bytes);
        linked.release(guard());
        fresh
    }

    pub(super) fn first(&self) -> Option<Cursor<'_>> {
        self.inner.front(guard()).map(Cursor)
    }

    pub(super) fn last(&self) -> Option<Cursor<'_>> {
        self.inner.back(guard()).map(Cursor)
    }

    /// The first entry at or after (user key, seqno) in internal order.
    pub(super) fn at_or_after(&self, user_key: &[u8], seqno: Seqno) -> Option<Cursor<'_>> {
        let probe = Probe::new(user_key, seqno << 8 | 0xff);
        self.inner
            .lower_bound(Bound::Included(&probe), guard())
            .map(Cursor)
    }

    /// The last entry whose user key is below `user_key`.
    pub(super) fn before(&self, user_key: &[u8]) -> Option<Cursor<'_>> {
        let probe = Probe::new(user_key, u64::MAX);
        self.inner
            .upper_bound(Bound::Excluded(&probe), guard())
            .map(Cursor)
    }
}

/// A place in the list. Later inserts may appear to it.
#[derive(Clone)]
pub(super) struct Cursor<'a>(base::Entry<'a, 'a, Entry, ()>);

impl<'a> Cursor<'a> {
    pub(super) fn next(&self) -> Option<Self> {
        self.0.next().map(Cursor)
    }

    pub(super) fn prev(&self) -> Option<Self> {
        self.0.prev().map(Cursor)
    }

    pub(super) fn key(&self) -> InternalKey<'a> {
        let entry: &'a Entry = self.0.key();
        let trailer = entry.probe.trailer;
        InternalKey {
            user_key: entry.probe.user_key(),
            seqno: trailer >> 8,
            kind: kind_of(trailer),
        }
    }

    pub(super) fn value(&self) -> Value<'a> {
        let entry: &'a Entry = self.0.key();
        let value = &entry.bytes()[entry.probe.key_len as usize..];
        let (head, tail) = value.split_at(entry.head_len as usize);
        Value { head, tail }
    }
}

fn kind_of(trailer: u64) -> Kind {
    let (_, kind) = key::unpack_trailer(trailer).expect("packed from a kind");
    kind
}
