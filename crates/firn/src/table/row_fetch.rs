//! From an index entry to a row in the server's record buffer.
//!
//! A snapshot read decodes the entry's version in the super version of the scan. The entry of the
//! clustered index is the row. An entry of a secondary index leads to its row, or suffices if it
//! covers the columns. A committed entry of a row that the transaction hides is passed over,
//! because the transaction's own write set has the entries of that row.
//!
//! A locking read takes the row's lock first and decides afterwards which version to decode:
//! 1. In a unique secondary index, lock the entry's *declared columns*, the values that the index
//!    keeps unique. Then lock the row key, or skip the row, or show it unlocked (semi-consistent
//!    reading). If a shared lock of an entry suffices, because the entry covers the columns, the
//!    row is not locked.
//! 2. If the super version is still the newest and the transaction has not written the row, the
//!    entry under the cursor is current.
//! 3. Otherwise read the row, and for a secondary index the entry too, at the newest read point.
//!    That point has all commits of the row from before the lock, and no other transaction can
//!    commit a change of the row while the lock is held.
//! 4. If the row is gone, release the lock. The caller looks again, since the row may have moved.
//!
//! A read for the validation is a snapshot read that notes the rows it returns. Both kinds of
//! snapshot reads respect the transaction's writes that were made after the sources were opened.
//! Such writes come from the running statement itself: for a row that the scan has returned, a
//! cascade of a foreign key or a function may delete or change a row that the scan has not reached
//! yet.
//!
//! Rejected: decoding before locking and comparing afterwards. It reads each row twice where rows
//! are contended, and even if the decoded rows are equal, their values out of line may differ.

use super::blob_columns::{PartialColumn, RowReader};
use super::entry_filter::{Condition, EntryFilter};
use super::index_info::IndexInfo;
use super::read_mode::{Entries, LockWait, ReadMode};
use super::row_lock::{LockOutcome, RowLock};
use super::{Table, TableIds, corrupt};
use crate::base::blob_buf::BlobBuf;
use crate::base::key::{INDEX_ID_LEN, UNCOMMITTED_BIT};
use crate::base::{Error, Kind, Result, Seqno, Value};
use crate::blob::BlobStore;
use crate::env::ReadClass;
use crate::keycode::IndexDecodePlan;
use crate::read::{Freshness, ReadPoint, changed_since};
use crate::txn::Transaction;
use arc_swap::Guard;
use std::sync::Arc;

/// Outcome of fetching the row of an entry.
pub(super) enum FetchOutcome {
    /// The row of the entry is in the record buffer.
    Row,
    /// The reader passes the entry over, because the transaction hides the row.
    Nothing,
    /// The reader passes the entry over, because another transaction has locked its row and the
    /// reader skips locked rows.
    Skipped,
    /// The entry existed when the scan reached it, and was gone once the row was locked. The row
    /// may now have another entry in the index, even where the scan has passed.
    Gone,
}

/// Reads rows for a cursor. It lives as long as its cursor, so a statement need not allocate its
/// buffers. `row_key` is the key of the row that the entry last read leads to. Row locks are taken
/// on this key.
pub(super) struct RowFetch {
    table: Arc<Table>,
    current: Arc<TableIds>,
    index: Arc<IndexInfo>,
    number: Option<usize>,
    clustered: bool,
    created: Seqno,
    lock: RowLock,
    reader: RowReader,
    /// Decodes rows from index entries alone; `None` if the rows themselves are read.
    key_plan: Option<IndexDecodePlan>,
    /// Decides by entries which rows are read; only reads without locks have it.
    filter: Option<EntryFilter>,
    /// Decodes entries of the index for the next `filter`; kept, because a statement may aim the
    /// cursor at the same index for each row of another table.
    filter_plan: Option<IndexDecodePlan>,
    blobs: BlobBuf,
    entry_key: Vec<u8>,
    /// Whether the key of the entry last read is in `row_key`, because that entry is a row;
    /// `entry_key` is not current then.
    entry_is_row: bool,
    row_key: Vec<u8>,
    /// Purpose of the read of the row with the key `row_key`: [`ReadClass::Point`] if the statement
    /// looks for that key, [`ReadClass::Range`] if an entry or a row reference led to it.
    class: ReadClass,
    /// Key of the entry that was read before the last one.
    passed: Vec<u8>,
    /// Whether the next read takes the place of the last one: it reads the last entry again, or
    /// another entry instead of it. The scan has not passed the last entry then, so `passed` must
    /// not change.
    in_place: bool,
}

impl RowFetch {
    pub(super) fn new(table: Arc<Table>) -> Self {
        let current = Guard::into_inner(table.current());
        let index = Arc::clone(&current.clustered);
        let reader = RowReader::new(table.format(), ReadClass::Blob, None);
        Self {
            table,
            current,
            created: index.created(),
            index,
            number: None,
            clustered: true,
            lock: RowLock::new(),
            reader,
            key_plan: None,
            filter: None,
            filter_plan: None,
            blobs: BlobBuf::new(),
            entry_key: Vec::new(),
            entry_is_row: false,
            row_key: Vec::new(),
            class: ReadClass::Range,
            passed: Vec::new(),
            in_place: false,
        }
    }

    pub(super) fn reset(
        &mut self,
        index: Option<usize>,
        mode: ReadMode,
        wait: LockWait,
    ) -> Result<()> {
        self.table.refresh(&mut self.current);
        let current = &self.current;
        let before = self.index.id();
        let index_info = match index {
            None => &current.clustered,
            Some(number) => current
                .indexes
                .get(number)
                .ok_or_else(|| Error::invalid("no such index"))?,
        };
        if !Arc::ptr_eq(&self.index, index_info) {
            self.index = Arc::clone(index_info);
        }
        self.clustered = self.index.id() == current.clustered.id();
        self.created = self.index.created();
        self.entry_key.clear();
        self.entry_is_row = false;
        self.forget_condition();
        if self.index.id() != before {
            self.filter_plan = None;
        }
        if self.index.id() != before && self.number != index {
            // The decode plan for index entries (`key_plan`) was made for another index. Drop it.
            // The caller chooses the columns to decode after this call, which makes a new plan.
            self.number = index;
            self.key_plan = None;
        }
        self.set_mode(mode, wait);
        Ok(())
    }

    pub(super) fn set_mode(&mut self, mode: ReadMode, wait: LockWait) {
        self.lock.set_mode(mode, wait);
        if self.may_change_rows() {
            self.reader.keep_unread();
        }
        self.in_place = false;
    }

    pub(super) fn lock(&self) -> &RowLock {
        &self.lock
    }

    pub(super) fn lock_mut(&mut self) -> &mut RowLock {
        &mut self.lock
    }

    pub(super) fn table(&self) -> &Arc<Table> {
        &self.table
    }

    pub(super) fn index(&self) -> &IndexInfo {
        &self.index
    }

    pub(super) fn on_clustered(&self) -> bool {
        self.clustered
    }

    pub(super) fn is_locking(&self) -> bool {
        self.lock.is_on()
    }

    /// Whether reads note their rows for the validation.
    pub(super) fn notes(&self) -> bool {
        self.lock.notes()
    }

    /// Whether the statement may change the rows that it reads.
    fn may_change_rows(&self) -> bool {
        self.lock.may_change_rows()
    }

    pub(super) fn created(&self) -> Seqno {
        self.created
    }

    /// Key of the entry last read; empty before the first.
    pub(super) fn last_entry(&self) -> &[u8] {
        if self.entry_is_row {
            &self.row_key
        } else {
            &self.entry_key
        }
    }

    /// Key of the entry that was read before the last one. A locking scan resumes behind this key
    /// if its last entry was gone once the row was locked. Only locking reads keep it, from the
    /// second entry on.
    pub(super) fn passed_entry(&self) -> &[u8] {
        &self.passed
    }

    /// Notes that the scan will read the last entry again, or another one in its place. So the scan
    /// has not passed the last entry, and [`Self::passed_entry`] stays the entry before it.
    pub(super) fn read_in_place(&mut self) {
        self.in_place = true;
    }

    /// Sets the columns to decode. `parts` lists the columns of whose out-of-line values a read
    /// from a snapshot needs only a part. A locked row is read whole, except for BLOBs that the
    /// statement neither reads nor writes: of these only the length is read.
    pub(super) fn set_columns(
        &mut self,
        bitmap: Option<&[u8]>,
        key_only: bool,
        parts: &[PartialColumn],
    ) -> Result<()> {
        // The server needs the primary key of each row that it finds through an entry. If the
        // primary key has a prefix of a column, an entry alone does not give that column.
        let entries_alone = key_only
            && !self.clustered
            && self.table.primary_columns().all(|c| self.index.covers(c));
        self.key_plan = entries_alone.then(|| self.index.plan(bitmap)).transpose()?;
        self.reader.set_columns(self.table.format(), bitmap);
        self.reader.set_parts(self.table.format(), parts)?;
        if self.may_change_rows() {
            self.reader.keep_unread();
        }
        Ok(())
    }

    /// Sets the condition that decides by an entry whether its row is read.
    pub(super) fn set_condition(&mut self, condition: Condition) -> Result<()> {
        if self.clustered || self.is_locking() || self.notes() {
            return Err(Error::invalid("a condition on entries of this scan"));
        }
        let plan = match self.filter_plan.take() {
            Some(plan) => plan,
            None => self.index.plan(None)?,
        };
        self.filter = Some(EntryFilter::new(plan, condition));
        Ok(())
    }

    /// Frees the memory of long values. The bytes that the last decoded record points to become
    /// invalid.
    pub(super) fn trim(&mut self) {
        self.blobs.trim();
        self.reader.trim();
    }

    /// Ends the statement, and keeps the bytes that the last decoded record points to.
    pub(super) fn park(&mut self) {
        self.lock.forget();
        self.forget_condition();
        self.reader.park();
    }

    /// Drops the condition on entries at the end of the statement.
    pub(super) fn forget_condition(&mut self) {
        if let Some(filter) = self.filter.take() {
            self.filter_plan = Some(filter.into_plan());
        }
    }

    /// Whether reading a row means only decoding the entry of the index: the index is the clustered
    /// one, so its entries are the rows, and the statement neither locks the rows that it reads nor
    /// notes them for the validation.
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        self.clustered && !self.may_change_rows()
    }

    /// Decodes the row of an entry of the clustered index. [`Self::is_plain`] must be true. The
    /// caller must pass the entry's key to [`Self::keep_key`] before the key is needed.
    #[inline]
    pub(super) fn plain_row(
        &mut self,
        point: &ReadPoint,
        kind: Kind,
        value: Value<'_>,
        record: &mut [u8],
    ) -> Result<()> {
        debug_assert!(self.is_plain());
        self.blobs.clear();
        let store = &point.super_version.blobs;
        let decoded = self
            .reader
            .read(store, kind, value, record, &mut self.blobs);
        decoded.map_err(|e| self.table.of_table(e))
    }

    /// Makes `key` the key of the entry last read, which is a row.
    pub(super) fn keep_key(&mut self, key: &[u8]) {
        self.set_row_key(key, ReadClass::Range);
    }

    /// Whether the row of each entry, or of most entries, must be looked up in the clustered index.
    #[inline]
    pub(super) fn reads_rows(&self) -> bool {
        !self.clustered
            && self.key_plan.is_none()
            && self.filter.as_ref().is_none_or(EntryFilter::admits_most)
    }

    /// Appends the key of the row that an entry of the secondary index leads to.
    pub(super) fn push_row_key(&self, entry: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let declared = self.index.declared_len(entry)?;
        out.extend_from_slice(&self.current.clustered.id().to_be_bytes());
        out.extend_from_slice(&entry[declared..]);
        Ok(())
    }

    /// The key of the row that an entry of the cursor's index leads to.
    pub(super) fn row_key_of_entry(&self, entry: &[u8]) -> Result<Vec<u8>> {
        if self.clustered {
            return Ok(entry.to_vec());
        }
        let mut row_key = Vec::with_capacity(entry.len());
        self.push_row_key(entry, &mut row_key)?;
        Ok(row_key)
    }

    /// The key of the row last read or sought.
    pub(super) fn row_key(&self) -> &[u8] {
        &self.row_key
    }

    /// Reads the row of the entry at the position of `entries`. `stale` says that the transaction
    /// has written since the sources of `entries` were opened.
    pub(super) fn entry(
        &mut self,
        txn: &mut Transaction,
        point: &ReadPoint,
        entries: &Entries,
        stale: bool,
        record: &mut [u8],
    ) -> Result<FetchOutcome> {
        self.blobs.clear();
        let key = entries.user_key();
        if !std::mem::take(&mut self.in_place) && self.is_locking() {
            if self.entry_is_row {
                self.passed.clone_from(&self.row_key);
            } else {
                std::mem::swap(&mut self.passed, &mut self.entry_key);
            }
        }
        self.entry_is_row = false;
        self.class = ReadClass::Range;
        self.entry_key.clear();
        self.entry_key.extend_from_slice(key);
        self.row_key.clear();
        if self.clustered {
            self.row_key.extend_from_slice(key);
        } else {
            self.table.refresh(&mut self.current);
            let mut row_key = std::mem::take(&mut self.row_key);
            let pushed = self.push_row_key(key, &mut row_key);
            self.row_key = row_key;
            pushed?;
        }
        if self.is_locking() {
            return self.locked_entry(txn, point, entries, stale, record);
        }
        if self.notes() {
            return self.noted_entry(txn, point, entries, stale, record);
        }
        Ok(
            match self.plain_entry(txn, point, entries, stale, record)? {
                true => FetchOutcome::Row,
                false => FetchOutcome::Nothing,
            },
        )
    }

    /// Reads the row of an entry without a lock. If the sources are stale, the transaction may have
    /// changed or deleted the row since they were opened, for example by a cascade that an earlier
    /// row of the scan has caused.
    fn plain_entry(
        &mut self,
        txn: &Transaction,
        point: &ReadPoint,
        entries: &Entries,
        stale: bool,
        record: &mut [u8],
    ) -> Result<bool> {
        match stale && self.is_own(txn, entries)? {
            true => self.entry_at(txn, point, record),
            false => self.snapshot_entry(txn, point, entries, record),
        }
    }

    fn noted_entry(
        &mut self,
        txn: &mut Transaction,
        point: &ReadPoint,
        entries: &Entries,
        stale: bool,
        record: &mut [u8],
    ) -> Result<FetchOutcome> {
        if !self.clustered && entries.seqno() & UNCOMMITTED_BIT == 0 {
            txn.heed_overtaking(&self.row_key, entries.seqno())?;
        }
        if !self.plain_entry(txn, point, entries, stale, record)? {
            return Ok(FetchOutcome::Nothing);
        }
        self.lock.note(txn, &self.row_key);
        Ok(FetchOutcome::Row)
    }

    /// Whether the transaction has written the entry or its row.
    fn is_own(&self, txn: &Transaction, entries: &Entries) -> Result<bool> {
        Ok(entries.seqno() & UNCOMMITTED_BIT != 0
            || txn.has_written(&self.row_key)?
            || !self.clustered && txn.has_written(&self.entry_key)?)
    }

    fn snapshot_entry(
        &mut self,
        txn: &Transaction,
        point: &ReadPoint,
        entries: &Entries,
        record: &mut [u8],
    ) -> Result<bool> {
        if self.clustered {
            self.decode_row(&point.super_version.blobs, entries, record)?;
            return Ok(true);
        }
        let own = entries.seqno() & UNCOMMITTED_BIT != 0;
        if !own {
            if txn.hides_any() && txn.hides(&self.row_key)? {
                return Ok(false);
            }
            if self.current.optimistic {
                txn.heed_overtaking(&self.row_key, entries.seqno())?;
            }
        }
        if !self.admits(entries.value().head, record)? {
            return Ok(false);
        }
        if let Some(plan) = &self.key_plan {
            self.decode_entry(plan, entries.value().head, record)?;
            return Ok(true);
        }
        match self.row_at(txn, point, record)? {
            true => Ok(true),
            // At READ COMMITTED the entry may be older than the one that a cascade of this
            // statement has deleted with the row: another session has changed it since `point`.
            false if txn.has_written(&self.row_key)? => Ok(false),
            false => Err(self.dangling()),
        }
    }

    /// Whether the condition on entries, if there is one, admits the entry last read, whose value
    /// is `value`.
    fn admits(&mut self, value: &[u8], record: &mut [u8]) -> Result<bool> {
        let Some(filter) = &mut self.filter else {
            return Ok(true);
        };
        let admitted = filter.admits(&self.entry_key, value, record);
        admitted.map_err(|e| self.table.of_table(e))
    }

    fn locked_entry(
        &mut self,
        txn: &Transaction,
        point: &ReadPoint,
        entries: &Entries,
        stale: bool,
        record: &mut [u8],
    ) -> Result<FetchOutcome> {
        self.lock.forget_last();
        let unique_len = self.unique_len(&self.entry_key)?;
        if let Some(len) = unique_len {
            let declared = &self.entry_key[..len];
            match self.lock.take_entry(txn, declared, &self.row_key)? {
                LockOutcome::Skip => return Ok(FetchOutcome::Skipped),
                LockOutcome::Yes | LockOutcome::Shown => {}
            }
            // After a wait, check that the entry still exists. If it is gone, its row may no longer
            // be one that the scan looks for, so the row is not locked.
            if self.lock.has_waited() && !self.entry_stands(txn, &txn.latest_point())? {
                self.unlock_row(txn);
                return Ok(FetchOutcome::Gone);
            }
        }
        let entry_suffices = unique_len.is_some() && self.locks_entries_only();
        let unlocked = match entry_suffices {
            true => false,
            false => match self.lock.take(txn, &self.row_key, self.clustered)? {
                LockOutcome::Skip => return Ok(FetchOutcome::Skipped),
                LockOutcome::Yes => false,
                LockOutcome::Shown => true,
            },
        };
        // If the transaction has written or rolled back writes since the scan opened its sources,
        // look the row up in the write set. The write set may have a newer version than the cursor
        // sees, or the version under the cursor may be an own write that was rolled back. A
        // statement that changes rows mostly writes rows that its scan has passed already, so most
        // lookups find nothing.
        let own = stale && self.is_own(txn, entries)?;
        let found = if own || unlocked || self.has_changed(txn, point) {
            self.entry_at(txn, &txn.latest_point(), record)?
        } else if self.clustered {
            self.decode_row(&point.super_version.blobs, entries, record)?;
            true
        } else if let Some(plan) = &self.key_plan {
            self.decode_entry(plan, entries.value().head, record)?;
            true
        } else {
            match self.row_at(txn, point, record)? {
                true => true,
                false => return Err(self.dangling()),
            }
        };
        if found {
            return Ok(FetchOutcome::Row);
        }
        // A scan of the clustered index that locks gaps keeps the row's lock: if the scan begins
        // with this key, it has not locked the gap around the key, and the row's lock keeps others
        // from inserting the key again, as the lock of a deleted row does in InnoDB. In a secondary
        // index the gap lock covers the entry, so release the row.
        if !(self.clustered && txn.locks_gaps()) {
            self.unlock_row(txn);
        }
        Ok(FetchOutcome::Gone)
    }

    /// Length in bytes of the declared parts of the key `entry`, if a locking read must lock them:
    /// the index is a unique secondary one, and none of these parts is NULL. Otherwise `None`.
    pub(super) fn unique_len(&self, entry: &[u8]) -> Result<Option<usize>> {
        match self.clustered {
            true => Ok(None),
            false => self.index.unique_len(entry),
        }
    }

    /// Whether a read of an entry with [declared columns to lock](Self::unique_len) locks these
    /// columns and not the row, as in InnoDB. This holds if the index covers the wanted columns and
    /// the read takes shared locks. It is safe, because each transaction that changes an entry of a
    /// unique index locks the declared columns of the entry.
    pub(super) fn locks_entries_only(&self) -> bool {
        self.key_plan.is_some() && self.lock.is_shared()
    }

    /// Whether the entry last read exists at `point`.
    fn entry_stands(&self, txn: &Transaction, point: &ReadPoint) -> Result<bool> {
        let is_put = txn.get(point, &self.entry_key, ReadClass::Range, |key, _| {
            key.kind.is_put()
        })?;
        Ok(is_put == Some(true))
    }

    /// Whether another transaction may have changed the row or the entry since `point`. The caller
    /// must have locked the row, so that no later commit can change them.
    fn has_changed(&self, txn: &Transaction, point: &ReadPoint) -> bool {
        match txn.context().super_versions.freshness(point) {
            Freshness::Latest => false,
            Freshness::Replaced => true,
            Freshness::Newer(seqno) => {
                let changed = |key| changed_since(&point.super_version, key, point.seqno, seqno);
                changed(&self.row_key) || !self.clustered && changed(&self.entry_key)
            }
        }
    }

    /// Reads, at `point`, the row of the entry last read. Returns false if the entry or its row
    /// does not exist at `point`, or if the condition on entries does not admit the entry.
    fn entry_at(
        &mut self,
        txn: &Transaction,
        point: &ReadPoint,
        record: &mut [u8],
    ) -> Result<bool> {
        let entry_stands = self.clustered || self.entry_stands(txn, point)?;
        if entry_stands && self.filter.is_some() {
            // The condition must not run within `txn.get`, where a shard of a cache may be locked.
            let value = txn.get(point, &self.entry_key, ReadClass::Range, |_, value| {
                value.head.to_vec()
            })?;
            if !self.admits(&value.unwrap_or_default(), record)? {
                return Ok(false);
            }
        }
        match &self.key_plan {
            // The entry covers the columns, so the row is not read. Read the entry again: its value
            // may be newer than that under the cursor.
            Some(plan) if entry_stands => {
                txn.get(point, &self.entry_key, ReadClass::Range, |_, value| {
                    self.decode_entry(plan, value.head, record)
                })?
                .transpose()?;
                Ok(true)
            }
            _ => Ok(entry_stands && self.row_at(txn, point, record)?),
        }
    }

    /// Reads the row whose key was set last; in a locking mode, locks the row first. A snapshot
    /// read reads at the point that the transaction has pinned. If there is no row, the caller
    /// releases the lock.
    pub(super) fn row(&mut self, txn: &mut Transaction, record: &mut [u8]) -> Result<bool> {
        self.blobs.clear();
        if !self.is_locking() {
            let found = self.row_at(txn, txn.pinned(), record)?;
            // Note a missing row as well: the validation fails if another transaction inserts the
            // row before the commit.
            self.lock.note(txn, &self.row_key);
            return Ok(found);
        }
        self.lock.forget_last();
        if let LockOutcome::Skip = self.lock.take(txn, &self.row_key, false)? {
            return Ok(false);
        }
        let latest = txn.latest_point();
        self.row_at(txn, &latest, record)
    }

    /// Makes `key` the key of the row that [`Self::row`] reads; `class` is the purpose of the read.
    pub(super) fn set_row_key(&mut self, key: &[u8], class: ReadClass) {
        self.row_key.clear();
        self.row_key.extend_from_slice(key);
        self.entry_is_row = true;
        self.class = class;
    }

    /// Sets the key of the row that [`Self::row`] reads, from a row reference of the server or a
    /// whole key image of the primary key. `class` is the purpose of the read.
    pub(super) fn row_key_of(&mut self, reference: &[u8], class: ReadClass) -> Result<()> {
        self.table.refresh(&mut self.current);
        self.row_key.clear();
        let clustered = &self.current.clustered;
        clustered.seek_prefix(reference, &mut self.row_key)?;
        self.entry_is_row = self.clustered;
        self.class = class;
        Ok(())
    }

    pub(super) fn hidden_row_id(&self) -> Result<u64> {
        let id = self
            .row_key
            .get(INDEX_ID_LEN..)
            .and_then(|id| id.try_into().ok());
        match id {
            Some(id) if self.table.has_hidden_key() => Ok(u64::from_be_bytes(id)),
            _ => Err(Error::invalid(
                "no row of a table with a hidden key was read",
            )),
        }
    }

    /// Notes that the scan goes back and will meet the row last read again. If the row does not
    /// match then, its lock may be released, as if that second read had taken it.
    pub(super) fn meet_again(&mut self) {
        self.lock.meet_again(&self.row_key);
    }

    pub(super) fn unlock_row(&mut self, txn: &Transaction) {
        self.lock.give_back(txn, &self.row_key);
    }

    pub(super) fn forget_row(&mut self, txn: &mut Transaction) {
        self.lock.forget_note(txn, &self.row_key);
    }

    fn row_at(&mut self, txn: &Transaction, point: &ReadPoint, record: &mut [u8]) -> Result<bool> {
        let (reader, blobs) = (&mut self.reader, &mut self.blobs);
        let decoded = txn.get(point, &self.row_key, self.class, |key, value| {
            let decode = || reader.decode(key.kind, value, record, blobs);
            key.kind.is_put().then(decode)
        })?;
        // Read values out of line after `txn.get` has returned: within its closure, a shard of the
        // cache may be locked.
        let decoded = decoded.flatten().map(|decoded| {
            decoded.and_then(|()| reader.complete(&point.super_version.blobs, record, blobs))
        });
        match decoded {
            Some(Ok(())) => {
                self.fill_nulls(record);
                Ok(true)
            }
            Some(Err(e)) => Err(self.table.of_table(e)),
            None => Ok(false),
        }
    }

    fn decode_entry(&self, plan: &IndexDecodePlan, value: &[u8], record: &mut [u8]) -> Result<()> {
        let key = &self.entry_key[INDEX_ID_LEN..];
        let decoded = plan.decode(key, value, record);
        decoded.map_err(|e| self.table.of_table(e))
    }

    fn decode_row(
        &mut self,
        store: &BlobStore,
        entries: &Entries,
        record: &mut [u8],
    ) -> Result<()> {
        let (kind, value) = (entries.kind(), entries.value());
        let decoded = self
            .reader
            .read(store, kind, value, record, &mut self.blobs);
        decoded.map_err(|e| self.table.of_table(e))?;
        self.fill_nulls(record);
        Ok(())
    }

    /// Fills the bytes under NULLs in rows that may be updated, because the server compares them.
    fn fill_nulls(&self, record: &mut [u8]) {
        if self.may_change_rows() {
            self.table.fill_nulls(record);
        }
    }

    fn dangling(&self) -> Error {
        corrupt(
            &self.table,
            format_args!("an entry of index {} has no row", self.index.name()),
        )
    }
}
