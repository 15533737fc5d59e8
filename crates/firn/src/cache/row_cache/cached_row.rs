//! A cached row in one allocation.

use crate::base::{InternalKey, Kind, Seqno, Value};
use std::cell::RefCell;
use std::sync::Arc;

/// Length in bytes of the header of a cached row: seqno, the two fields of [`RowVisibility`], key
/// length, head length, kind. The user key, the value head and the value tail follow.
const HEADER_LEN: usize = 8 + 8 + 8 + 4 + 4 + 1;

/// Says which reads may get a cached row; [`super::RowCache`] explains the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RowVisibility {
    /// Lowest seqno of reads that may get the row.
    pub(super) seqno: Seqno,
    /// A read may get the row only if its super version has the memtable with this number, frozen
    /// or active.
    pub(super) memtable: u64,
}

impl RowVisibility {
    #[inline]
    pub(super) fn admit(self, seqno: Seqno, newest_memtable: u64) -> bool {
        self.seqno <= seqno && self.memtable <= newest_memtable
    }
}

/// The newest flushed version of one user key, with its value.
#[derive(Clone)]
pub(super) struct CachedRow(Arc<[u8]>);

impl CachedRow {
    /// Copies a version and its value into a new allocation.
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

    /// The internal key as it is in the file: a compaction may have set the seqno to 0.
    pub(super) fn key(&self) -> InternalKey<'_> {
        let kind = Kind::from_u8(self.0[32]).expect("written by `new`");
        InternalKey::new(self.user_key(), self.number(0), kind)
    }

    pub(super) fn value(&self) -> Value<'_> {
        let values = &self.0[HEADER_LEN + self.length(24)..];
        let (head, tail) = values.split_at(self.length(28));
        Value::split(head, tail)
    }

    /// Length in bytes of a cached row with this key and value.
    pub(super) fn len_of(user_key: &[u8], value: Value<'_>) -> usize {
        HEADER_LEN + user_key.len() + value.len()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
