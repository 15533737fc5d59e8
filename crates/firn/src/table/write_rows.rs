//! Writes rows: inserts, updates and deletes in the clustered and all secondary indexes.
//!
//! Order within a row: the clustered index, then the others, in ascending order; in each, locks and
//! unique check first, then the entry goes to the write set. Before a new key is written, the
//! transaction waits for gap locks of others; meanwhile it does not hold the lock of the key. If a
//! row fails half way, its writes are rolled back to a savepoint. Unique checks lock the *declared
//! columns* of the key (those that the index definition names), so that two transactions that
//! insert the same value wait for each other, whatever their primary keys. Maintenance of
//! non-unique indexes reads nothing.
//!
//! In an optimistic table nothing is locked: rows and unique keys are looked up at the statement's
//! read point, and noted for the validation of the commit.

mod claim_locks;
mod delete;
mod encode_entry;
mod insert;
mod unique_check;
mod update;

pub(super) use encode_entry::index_entry;

use super::write_options::WriteFlags;
use super::{Table, TableIds};
use crate::base::{Error, InternalKey, Result, Value};
use crate::env::ReadClass;
use crate::read;
use crate::txn::Transaction;

impl Table {
    /// Decides whether the commit validates a write to this table, and pins the read point of such
    /// a write.
    fn begin_write(
        &self,
        txn: &mut Transaction,
        current: &TableIds,
        flags: WriteFlags,
    ) -> WriteFlags {
        let validated = current.optimistic && !flags.private && !txn.locks_optimistic_tables();
        if validated {
            txn.pin_for_validation();
        }
        WriteFlags { validated, ..flags }
    }

    pub(super) fn check_record(&self, record: &[u8]) -> Result<()> {
        match record.len() >= self.record_len() {
            true => Ok(()),
            false => Err(Error::invalid("record buffer too short")),
        }
    }

    /// If the row to change was committed after the transaction's snapshot, hides the older
    /// version, which the snapshot still shows, from the transaction's own reads. Returns whether
    /// the row is newer than the snapshot.
    fn hide_if_newer(&self, txn: &mut Transaction, row_key: &[u8]) -> Result<bool> {
        let Some(snapshot) = txn.snapshot_seqno() else {
            return Ok(false);
        };
        if txn.context().super_versions.visible() <= snapshot {
            return Ok(false);
        }
        if txn.hides(row_key)? {
            return Ok(true);
        }
        // The row is locked, so a super version that is pinned now has all commits of the row.
        // Its memtables have all of them that are newer than the snapshot, unless one of these
        // memtables has been flushed. So in most cases no file is searched.
        let super_versions = &txn.context().super_versions;
        let newer = super_versions.with_latest(|super_version, latest| {
            if !read::changed_since(super_version, row_key, snapshot, latest) {
                return Ok(false);
            }
            let committed = |key: InternalKey<'_>, _: Value<'_>| key.seqno;
            let seqno = read::get(super_version, row_key, latest, ReadClass::Point, committed)?;
            Ok(seqno.is_some_and(|seqno| seqno > snapshot))
        })?;
        if newer {
            txn.hide(row_key);
        }
        Ok(newer)
    }
}
