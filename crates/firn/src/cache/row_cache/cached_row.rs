//! A cached row, in one allocation.

use crate::base::{InternalKey, Kind, Seqno, Value};
use std::cell::RefCell;
use std::sync::Arc;

/// Length of seqno, the two bounds for readers, key length, head length and kind. Key, head and
/// tail follow.
const HEADER_LEN: usize = 8 + 8 + 8 + 4 + 4 + 1;

/// The reads that may get a row; [`super::RowCache`] explains why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RowVisibility {
    /// The read's seqno is this one or a later one.
    pub(super) seqno: Seqno,
    /// The read's view knows the memtable with this number, be it as the active one.
    pub(super) memtable: u64,
}

impl RowVisibility {
    #[inline]
    pub(super) fn admit(self, seqno: Seqno, newest_memtable: u64) -> bool {
        self.seqno <= seqno && self.memtable <= newest_memtable
    }
}

/// The newest flushed version of one user key.
#[derive(Clone)]
pub(super) struct CachedRow(Arc<[u8]>);

impl CachedRow {
    /// Copies a version.
    pub(super) fn new(key: InternalKey<'_>, value: Value<'_>, readers: RowVisibility) -> Self {
        thread_local! {
            static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
        }
        SCRATCH.with_borrow_mut(|bytes| {
            bytes.clear();
            bytes.extend_from_slice(&key.seqno.to_le_bytes());
            bytes.extend_from_slice(&readers.seqno.to_le_bytes());
            bytes.extend_from_slice(&readers.memtable.to_le_bytes());
            bytes.extend_from_slice(&(key.user_key.len() as u32).to_le_bytes());
            bytes.extend_from_slice(&(value.head.len() as u32).to_le_bytes());
            bytes.push(key.kind as u8);
            bytes.extend_from_slice(key.user_key);
            bytes.extend_from_slice(value.head);
            bytes.extend_from_slice(value.tail);
            Self(Arc::from(bytes.as_slice()))
        })
    }

    fn number(&self, at: usize) -> u64 {
        u64::from_le_bytes(*self.0[at..].first_chunk().expect("the header is whole"))
    }

    fn length(&self, at: usize) -> usize {
        let bytes = self.0[at..].first_chunk().expect("the header is whole");
        u32::from_le_bytes(*bytes) as usize
    }

    pub(super) fn readers(&self) -> RowVisibility {
        RowVisibility {
            seqno: self.number(8),
            memtable: self.number(16),
        }
    }

    pub(super) fn user_key(&self) -> &[u8] {
        &self.0[HEADER_LEN..HEADER_LEN + self.length(24)]
    }

    /// The key as it was read, with its original seqno.
    pub(super) fn key(&self) -> InternalKey<'_> {
        let kind = Kind::from_u8(self.0[32]).expect("written by `new`");
        InternalKey::new(self.user_key(), self.number(0), kind)
    }

    pub(super) fn value(&self) -> Value<'_> {
        let values = &self.0[HEADER_LEN + self.length(24)..];
        let (head, tail) = values.split_at(self.length(28));
        Value::split(head, tail)
    }

    /// Length of a row with this key and value, bytes.
    pub(super) fn len_of(user_key: &[u8], value: Value<'_>) -> usize {
        HEADER_LEN + user_key.len() + value.len()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
