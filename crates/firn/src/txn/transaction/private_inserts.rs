//! Inserts into tables that no other transaction changes.
//!
//! An insert looks whether a row has its key. A temporary table is often filled by the transaction
//! that has created it: then all of its rows are own writes, and a search of memtables and files
//! finds nothing, for each row again. So a transaction that inserts many rows looks once whether
//! the index has any committed entry. If it has none, later inserts search only the write set: as
//! long as the transaction lasts, nobody else adds an entry.

use super::Transaction;
use crate::base::key::{SEQNO_MAX, index_prefix};
use crate::base::key_range::prefix_successor;
use crate::base::{IndexId, InternalIterator, InternalKey, Result, Value};
use crate::env::ReadClass;
use crate::iter::MergeIter;
use crate::read::{ScanRange, scan_sources};

/// After this number of inserts into one index, a transaction looks whether the index has committed
/// entries. So a statement that inserts few rows does not pay for that search.
const LOOKS_BEFORE: u32 = 16;

/// The index into which the transaction has inserted last, and what is known of it.
#[derive(Debug, Default)]
pub(super) struct PrivateInserts {
    index: IndexId,
    count: u32,
    is_vacant: bool,
}

impl Transaction {
    /// As [`Self::get`] at the latest point, for an insert into `index`, which only this
    /// transaction changes.
    ///
    /// # Errors
    /// Those of [`Self::get`].
    pub fn get_before_private_insert<R>(
        &mut self,
        index: IndexId,
        user_key: &[u8],
        f: impl FnOnce(InternalKey<'_>, Value<'_>) -> R,
    ) -> Result<Option<R>> {
        if self.has_committed_entries(index)? {
            return self.get_latest(user_key, f);
        }
        self.writes.lock().get(user_key, f)
    }

    fn has_committed_entries(&mut self, index: IndexId) -> Result<bool> {
        if self.private_inserts.index != index {
            self.private_inserts = PrivateInserts {
                index,
                ..PrivateInserts::default()
            };
        }
        let count = self.private_inserts.count;
        if count <= LOOKS_BEFORE {
            self.private_inserts.count += 1;
        }
        if count == LOOKS_BEFORE {
            self.private_inserts.is_vacant = self.finds_no_version(index)?;
        }
        Ok(!self.private_inserts.is_vacant)
    }

    /// Whether memtables and files have no version of any key of the index. Deletions count as
    /// versions, because to skip them could take long.
    fn finds_no_version(&self, index: IndexId) -> Result<bool> {
        let lower = index_prefix(index).to_vec();
        let range = ScanRange {
            upper: prefix_successor(&lower),
            lower,
        };
        let latest = self.latest_point();
        let mut versions = MergeIter::new(scan_sources(
            &latest.super_version,
            &range,
            ReadClass::Range,
            None,
        ));
        let found = versions.seek(&range.lower, SEQNO_MAX)?;
        Ok(!found || !versions.key().user_key.starts_with(&range.lower))
    }
}
