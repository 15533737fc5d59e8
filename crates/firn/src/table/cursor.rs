//! Cursors: reading rows through one index.
//!
//! A snapshot read returns what the transaction's snapshot and its own writes show. A locking read
//! returns the latest committed row. It finds an entry and locks the row. If the row or its entry
//! has changed meanwhile, it reads both again. Each move of a locking scan reads at the newest
//! point. After a wait for a lock it goes back to the entry that it passed last, because the lock's
//! holder may have committed rows in between. It also goes back if the entry was gone once the row
//! was locked: the transaction that deleted the entry may have put the row where the scan has
//! passed, under the same key with a smaller primary key. It goes back only after another commit,
//! so the sessions together always make progress.
//!
//! An example: T2 locks the row (7,100) and inserts (7,99) and (7,101). T1 deletes the rows with 7:
//! it sees (7,100) alone and waits for its lock. T2 commits. T1 gets the lock, seeks 7 again, meets
//! (7,99), then (7,100), whose lock it holds, then (7,101), and deletes three rows.
//!
//! An exact seek opens only the sources that can hold the key's prefix. A cursor that seeks again
//! (a join's inner table) or moves past the prefix opens iterators over the whole index and keeps
//! them.

mod scan_gaps;
mod vacant_range;

use super::Table;
use super::blob_columns::PartialColumn;
use super::entry_filter::Condition;
use super::index_scan::{IndexScan, Resume, copy};
use super::read_mode::{LockWait, ReadMode};
use super::row_fetch::{FetchOutcome, RowFetch};
use super::row_prefetch::RowPrefetch;
use crate::base::key::index_prefix;
use crate::base::key_range::make_successor;
use crate::base::{Error, ErrorKind, Result};
use crate::env::ReadClass;
use crate::read::{Freshness, ReadPoint};
use crate::txn::Transaction;
use scan_gaps::{GapScan, GapStep};
use std::sync::Arc;

/// Number of entries that a move passes over before it checks again whether the session was killed.
/// A move passes over entries that other transactions have locked and entries whose rows are gone.
const PASSED_UNASKED: u32 = 1024;

/// The entry that a seek looks for. "The prefix" is the encoded key that the seek is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeekMode {
    /// The first entry with the prefix, or nothing.
    Exact,
    /// The first entry with the prefix or after it.
    AtOrAfter,
    /// The first entry after all entries with the prefix.
    After,
    /// The last entry before all entries with the prefix.
    Before,
    /// The first entry with the prefix, or nothing. Later moves may go past the prefix.
    Prefix,
    /// The last entry with the prefix, or nothing.
    LastWithPrefix,
    /// The last entry with the prefix or before it.
    LastAtOrBefore,
}

/// A key image: a key in the server's form.
#[derive(Debug, Clone, Copy)]
pub struct KeyImage<'a> {
    pub(super) image: &'a [u8],
}

impl<'a> KeyImage<'a> {
    /// The key image of these bytes.
    pub fn image(image: &'a [u8]) -> Self {
        Self { image }
    }
}

/// A position in one index of a table.
///
/// Between statements it keeps its buffers of keys, and pins nothing: no super version, no file, no
/// block.
pub struct Cursor {
    fetch: RowFetch,
    scan: IndexScan,
    /// Encoded key of the last seek.
    prefix: Vec<u8>,
    /// The first key above all keys that begin with `prefix`; empty if there is none.
    successor: Vec<u8>,
    /// Forward scans end before this key; empty for no end.
    end: Vec<u8>,
    seeks: u32,
    /// The key at which the last seek began. A forward seek begins at this key, and a backward seek
    /// below it. If it is empty, the seek began at the end of the index: a backward seek then
    /// begins at the last entry, and a forward seek finds nothing.
    sought: Vec<u8>,
    /// Whether the scan has passed no entry since the last seek.
    at_start: bool,
    /// Whether the last seek or move found no row. The cursor then stands at `sought`: the key of
    /// the seek, or the end of the index that the move has reached. The next move goes on from
    /// there, as in InnoDB; HANDLER … READ needs this.
    missed: bool,
    /// Whether [`Self::park`] has closed the scan. The next move opens the scan again, after (or
    /// before) the last entry.
    parked: bool,
    /// Whether [`Self::next_without_key`] may read the next row, provided that the scan has already
    /// checked that entry. It may if the cursor reads rows of the clustered index without locks,
    /// and if only `next_without_key` has moved the cursor since the flag was set.
    skips_keys: bool,
    /// Whether [`Self::next_without_key`] has read the last row. Then `fetch` does not have the key
    /// of that row: [`Self::restore_key`] gets it from the scan.
    key_is_stale: bool,
    row_prefetch: RowPrefetch,
    /// Whether the last seek was [`SeekMode::AtOrAfter`] with a whole key of the clustered index.
    /// If it finds a row with this key, a locking scan does not lock the gap before the row, as in
    /// InnoDB.
    skips_gap_before_key: bool,
    gaps: GapScan,
}

impl Cursor {
    /// A cursor on the clustered index of `table`.
    pub fn new(table: Arc<Table>) -> Self {
        Self {
            fetch: RowFetch::new(table),
            scan: IndexScan::new(),
            prefix: Vec::new(),
            successor: Vec::new(),
            end: Vec::new(),
            seeks: 0,
            sought: Vec::new(),
            at_start: true,
            missed: false,
            parked: false,
            skips_keys: false,
            key_is_stale: false,
            row_prefetch: RowPrefetch::new(),
            skips_gap_before_key: false,
            gaps: GapScan::new(),
        }
    }

    /// Points the cursor at index number `index`, or at the hidden clustered index if `index` is
    /// `None`, for a new statement or scan.
    ///
    /// # Errors
    /// `InvalidArgument` if there is no such index.
    pub fn reset(&mut self, index: Option<usize>, mode: ReadMode, wait: LockWait) -> Result<()> {
        self.skips_keys = false;
        self.key_is_stale = false;
        self.scan.close();
        self.gaps.close();
        self.end.clear();
        self.seeks = 0;
        self.missed = false;
        self.parked = false;
        self.fetch.reset(index, mode, wait)
    }

    /// Turns semi-consistent reading on or off, for updates and deletes that release the locks of
    /// rows that do not match. If another transaction has locked a row, a semi-consistent read does
    /// not wait, and returns the row as it was last committed. If that row matches, the caller
    /// moves on as usual: the move returns the same row again, after it has waited for the lock.
    pub fn set_semi_consistent(&mut self, on: bool) {
        self.fetch.lock_mut().set_semi_consistent(on);
    }

    /// Whether the last read returned its row as last committed, without a lock on it.
    pub fn was_semi_consistent(&self) -> bool {
        self.fetch.lock().has_shown()
    }

    /// As [`Table::read_mode`], for the cursor's table.
    pub fn read_mode(&self, txn: &Transaction, mode: ReadMode) -> ReadMode {
        self.fetch.table().read_mode(txn, mode)
    }

    /// Releases all resources of the statement. Keeps the key of the last entry, and the blobs that
    /// the last record points to.
    pub fn park(&mut self) {
        self.restore_key();
        self.scan.park();
        self.gaps.park();
        self.row_prefetch.park();
        self.end.clear();
        self.seeks = 0;
        self.parked = true;
        self.fetch.park();
    }

    /// Frees the memory of long values, which a cursor otherwise keeps for its next statement. The
    /// blobs that the last record points to become invalid.
    pub fn trim(&mut self) {
        self.fetch.trim();
    }

    /// Goes on from the key kept by [`Self::park`].
    pub fn resume(&mut self, mode: ReadMode, wait: LockWait) {
        self.restore_key();
        self.fetch.set_mode(mode, wait);
    }

    /// Length of a column bitmap in bytes.
    pub fn column_bitmap_len(&self) -> usize {
        self.fetch.table().column_count().div_ceil(8)
    }

    /// Chooses the columns to decode; `None` for all. `key_only` says that the index entry has all
    /// that is needed of the row. `parts` names columns whose values out of line need to be read
    /// only in part; this applies to reads without locks, and a value may still be read whole.
    ///
    /// # Errors
    /// `InvalidArgument` if a partial column is no column of the table.
    pub fn set_columns(
        &mut self,
        bitmap: Option<&[u8]>,
        key_only: bool,
        parts: &[PartialColumn],
    ) -> Result<()> {
        self.fetch.set_columns(bitmap, key_only, parts)
    }

    /// Sets a condition on the entries of a secondary index, until the cursor is reset or parked:
    /// reads pass over entries for which it is false, and do not read their rows.
    ///
    /// # Errors
    /// `InvalidArgument` if the cursor is on the clustered index, or if it locks the rows that it
    /// reads or notes them for the validation.
    pub fn set_condition(&mut self, condition: Condition) -> Result<()> {
        self.fetch.set_condition(condition)
    }

    /// Ends forward scans at `key`. `included` says whether entries that begin with it belong to
    /// the range.
    ///
    /// # Errors
    /// `InvalidArgument` if the key image is not one of the index.
    pub fn set_end_range(&mut self, key: Option<KeyImage<'_>>, included: bool) -> Result<()> {
        self.restore_key();
        self.end.clear();
        if let Some(key) = key {
            let encoded = self.fetch.index().seek_prefix(key.image, &mut self.end);
            if let Err(error) = encoded {
                self.end.clear();
                return Err(error);
            }
            if included {
                make_successor(&mut self.end);
            }
        }
        if self.scan.is_open() && !self.gaps.is_on() {
            self.scan.bound_to_index(self.fetch.index().id(), &self.end);
            self.scan.move_bounds();
        }
        Ok(())
    }

    /// Encodes the key of a seek into `prefix` and `successor`. Returns whether the key image has
    /// all key parts that the index definition names.
    fn set_prefix(&mut self, key: KeyImage<'_>) -> Result<bool> {
        self.prefix.clear();
        let complete = self
            .fetch
            .index()
            .seek_prefix(key.image, &mut self.prefix)?;
        self.successor.clone_from(&self.prefix);
        make_successor(&mut self.successor);
        Ok(complete)
    }

    /// Moves to the entry that `key` and `mode` choose, and reads its row. Returns whether there is
    /// one.
    ///
    /// # Errors
    /// Those of reading: `Corruption`, `Unsupported`, `Io`. Those of lock waits: `LockTimeout`,
    /// `LockNotAvailable`, `Deadlock`, `Interrupted`. `TableDefChanged` if the index is newer than
    /// the snapshot. `InvalidArgument` for a malformed key image.
    pub fn seek(
        &mut self,
        txn: &mut Transaction,
        key: KeyImage<'_>,
        mode: SeekMode,
        record: &mut [u8],
    ) -> Result<bool> {
        let found = self.seek_entry(txn, key, mode, record)?;
        self.missed = !found;
        Ok(found)
    }

    fn seek_entry(
        &mut self,
        txn: &mut Transaction,
        key: KeyImage<'_>,
        mode: SeekMode,
        record: &mut [u8],
    ) -> Result<bool> {
        self.restore_key();
        self.parked = false;
        let complete = self.set_prefix(key)?;
        if complete && mode == SeekMode::Exact && self.fetch.on_clustered() {
            // A whole key of the clustered index has at most one row, so a point read finds it
            // without an iterator. A later move opens an iterator at the row's key.
            self.scan.close();
            self.fetch.set_row_key(&self.prefix, ReadClass::Point);
            let found = self.row(txn, true, record)?;
            if !found {
                copy(&mut self.sought, &self.prefix);
            }
            return Ok(found);
        }
        let exact = matches!(mode, SeekMode::Exact | SeekMode::LastWithPrefix);
        let narrow = exact && self.seeks == 0 && !self.locks_gaps(txn);
        self.skips_gap_before_key =
            complete && mode == SeekMode::AtOrAfter && self.fetch.on_clustered();
        self.seeks += 1;
        if narrow {
            self.gaps.turn(self.fetch.is_locking());
            self.scan.bound_to_prefix(&self.prefix, &self.successor);
        } else {
            self.bound_to_index();
        }
        self.open(txn, narrow)?;
        let (sought, forward) = match mode {
            SeekMode::Exact | SeekMode::AtOrAfter | SeekMode::Prefix => (&self.prefix, true),
            SeekMode::After if self.successor.is_empty() => {
                self.sought.clear();
                return Ok(false);
            }
            SeekMode::After => (&self.successor, true),
            SeekMode::Before => (&self.prefix, false),
            SeekMode::LastWithPrefix | SeekMode::LastAtOrBefore => (&self.successor, false),
        };
        copy(&mut self.sought, sought);
        let within_prefix = exact || mode == SeekMode::Prefix;
        self.begin(txn, forward, within_prefix, record)
    }

    /// Moves the cursor to the first entry of the index, and reads its row.
    ///
    /// # Errors
    /// Those of [`Self::seek`].
    pub fn first(&mut self, txn: &mut Transaction, record: &mut [u8]) -> Result<bool> {
        self.restore_key();
        self.parked = false;
        self.skips_gap_before_key = false;
        self.bound_to_index();
        self.open(txn, false)?;
        copy(&mut self.sought, &index_prefix(self.fetch.index().id()));
        let found = self.begin(txn, true, false, record)?;
        self.missed = !found;
        if !found {
            // The scan has come to the end of the index, so the cursor stands there, as in InnoDB.
            self.sought.clear();
        }
        Ok(found)
    }

    /// Moves to the last entry of the index and reads its row.
    ///
    /// # Errors
    /// Those of [`Self::seek`].
    pub fn last(&mut self, txn: &mut Transaction, record: &mut [u8]) -> Result<bool> {
        self.restore_key();
        self.parked = false;
        self.skips_gap_before_key = false;
        self.bound_to_index();
        self.open(txn, false)?;
        self.sought.clear();
        let found = self.begin(txn, false, false, record)?;
        self.missed = !found;
        if !found {
            // The scan has come to the beginning of the index, so the cursor stands there, as in
            // InnoDB.
            copy(&mut self.sought, &index_prefix(self.fetch.index().id()));
        }
        Ok(found)
    }

    /// Reads the row of the next entry.
    ///
    /// # Errors
    /// Those of [`Self::seek`].
    pub fn next(&mut self, txn: &mut Transaction, record: &mut [u8]) -> Result<bool> {
        self.skips_keys = self.fetch.is_plain()
            && !self.missed
            && self.scan.reaches_on()
            && !self.scan.is_behind(txn)
            && self.scan.entries_mut().rows_ahead();
        if self.skips_keys {
            self.next_without_key(record)?;
            return Ok(true);
        }
        self.restore_key();
        let found = match self.has_shown() {
            true => self.again(txn, true)?,
            false => self.step(txn, true)?,
        };
        let found = self.read_visible_or_give_back(txn, found, true, false, record)?;
        self.missed = !found;
        if !found {
            // The position lies behind the last entry.
            self.sought.clear();
        }
        Ok(found)
    }

    /// Whether [`Self::next_without_key`] may be called instead of [`Self::next`]: the flag
    /// `skips_keys` is set, and the scan has already checked the next entry.
    #[inline]
    pub fn can_skip_keys(&self) -> bool {
        self.skips_keys && self.scan.entries().known_ahead() > 0
    }

    /// Reads the row of the next entry, as [`Self::next`] does, but without the transaction: the
    /// scan has checked in advance that the next entries are rows and that the snapshot sees them.
    /// [`Self::can_skip_keys`] must be true. It does not pass the key of the entry to `fetch`,
    /// because nearly no scan asks for the key.
    ///
    /// # Errors
    /// Those of [`Self::seek`].
    #[inline]
    pub fn next_without_key(&mut self, record: &mut [u8]) -> Result<()> {
        debug_assert!(self.can_skip_keys() && self.fetch.is_plain());
        debug_assert!(!self.missed && self.scan.reaches_on());
        self.key_is_stale = true;
        let (point, kind, value) = self.scan.next_without_key();
        self.fetch.plain_row(point, kind, value, record)
    }

    /// Ends a series of [`Self::next_without_key`] calls: passes the key of the row last read to
    /// `fetch`.
    fn restore_key(&mut self) {
        self.skips_keys = false;
        if std::mem::take(&mut self.key_is_stale) {
            self.scan.entries_mut().restore_key();
            self.fetch.keep_key(self.scan.entries().user_key());
        }
    }

    /// Reads the row of the previous entry.
    ///
    /// # Errors
    /// Those of [`Self::seek`].
    pub fn prev(&mut self, txn: &mut Transaction, record: &mut [u8]) -> Result<bool> {
        self.restore_key();
        let found = match self.has_shown() {
            true => self.again(txn, false)?,
            false => self.step(txn, false)?,
        };
        let found = self.read_visible_or_give_back(txn, found, false, false, record)?;
        self.missed = !found;
        if !found {
            // The position lies before the first entry.
            copy(&mut self.sought, &index_prefix(self.fetch.index().id()));
        }
        Ok(found)
    }

    /// Moves to the entry behind the cursor's position, and reads its row if the key of that entry
    /// starts with `key`.
    ///
    /// # Errors
    /// Those of [`Self::seek`].
    pub fn next_same(
        &mut self,
        txn: &mut Transaction,
        key: KeyImage<'_>,
        record: &mut [u8],
    ) -> Result<bool> {
        self.restore_key();
        self.set_prefix(key)?;
        let found = if self.has_shown() {
            self.again(txn, true)?
        } else if self.scan.is_narrow() && !self.parked {
            // The open sources cover only the sought prefix. They have all entries with the prefix,
            // so they suffice for the next entry.
            self.at_start = false;
            self.pass(txn, true)?
        } else {
            self.step(txn, true)?
        };
        self.read_visible_or_give_back(txn, found, true, true, record)
    }

    /// Reads the row of the entry whose key is `key`, which has all declared columns of a unique
    /// index.
    ///
    /// # Errors
    /// Those of [`Self::seek`].
    pub fn get(
        &mut self,
        txn: &mut Transaction,
        key: KeyImage<'_>,
        record: &mut [u8],
    ) -> Result<bool> {
        self.restore_key();
        if self.fetch.on_clustered() {
            self.fetch.row_key_of(key.image, ReadClass::Point)?;
            let found = self.row(txn, true, record)?;
            self.missed = !found;
            if !found {
                copy(&mut self.sought, self.fetch.row_key());
            }
            return Ok(found);
        }
        self.seek(txn, key, SeekMode::Exact, record)
    }

    /// Reads the row of a reference: the key image of the primary key, or the hidden row id in
    /// eight bytes, big-endian.
    ///
    /// # Errors
    /// Those of [`Self::seek`].
    pub fn get_row(
        &mut self,
        txn: &mut Transaction,
        reference: KeyImage<'_>,
        record: &mut [u8],
    ) -> Result<bool> {
        self.restore_key();
        self.fetch.row_key_of(reference.image, ReadClass::Range)?;
        self.row(txn, false, record)
    }

    /// Hidden id of the row last read, in a table without a primary key.
    ///
    /// # Errors
    /// `InvalidArgument` if the table has a primary key, or no row was read.
    pub fn hidden_row_id(&mut self) -> Result<u64> {
        self.restore_key();
        self.fetch.hidden_row_id()
    }

    /// Releases the lock of the row last read, if reading it took the lock.
    pub fn unlock_row(&mut self, txn: &Transaction) {
        self.restore_key();
        self.fetch.unlock_row(txn);
    }

    /// Removes the row last read from the validation set, if reading the row has added it, because
    /// the row does not match. Has no effect on locks.
    pub fn forget_row(&mut self, txn: &mut Transaction) {
        self.restore_key();
        self.fetch.forget_row(txn);
    }

    /// Reads the row whose key the caller has set in `fetch`. `sought` says that the statement
    /// looks for this key itself, rather than for a row reference: if there is no row, a locking
    /// read then locks the gap around the key.
    fn row(&mut self, txn: &mut Transaction, sought: bool, record: &mut [u8]) -> Result<bool> {
        if !self.fetch.is_locking() {
            self.pin(txn)?;
            return self.fetch.row(txn, record);
        }
        let found = self.fetch.row(txn, record)?;
        if !found {
            if sought && self.locks_gaps(txn) {
                self.lock_gap_of_missing_row(txn)?;
            }
            self.fetch.unlock_row(txn);
        }
        Ok(found)
    }

    /// Pins the read point of a snapshot read, and checks that the point is not older than the
    /// index: an older point would see rows without entries in the index.
    fn pin(&self, txn: &mut Transaction) -> Result<()> {
        match self.fetch.notes() {
            true => txn.pin_for_validation(),
            false => txn.pin(),
        }
        if txn.pinned().seqno < self.fetch.created() {
            let message = "the table was defined after this transaction's snapshot";
            return Err(Error::new(ErrorKind::TableDefChanged, message));
        }
        Ok(())
    }

    fn read_point(&self, txn: &mut Transaction) -> Result<ReadPoint> {
        if self.fetch.is_locking() {
            return Ok(txn.latest_point());
        }
        self.pin(txn)?;
        Ok(txn.pinned().clone())
    }

    /// Bounds the scan to the index, and to keys below `end` if that is set. A locking scan ignores
    /// `end`, because it reads on to the first entry beyond the range.
    fn bound_to_index(&mut self) {
        self.gaps.turn(self.fetch.is_locking());
        let end = if self.gaps.is_on() {
            &[]
        } else {
            &self.end[..]
        };
        self.scan.bound_to_index(self.fetch.index().id(), end);
    }

    /// Opens sources within the scan's bounds at the read point of the statement, or keeps the open
    /// sources if they fit. `narrow` says that only the sought prefix is read.
    fn open(&mut self, txn: &mut Transaction, narrow: bool) -> Result<()> {
        let point = self.read_point(txn)?;
        let index = self.fetch.index().id();
        self.scan.open(txn, index, point, narrow, self.seeks > 1);
        self.row_prefetch.restart();
        Ok(())
    }

    /// The position at which a seek of `sought` in this direction begins.
    fn start(sought: &[u8], forward: bool) -> Resume<'_> {
        match (forward, sought) {
            (true, key) => Resume::From(key),
            (false, []) => Resume::Last,
            (false, key) => Resume::Below(key),
        }
    }

    /// Reads the row of the first entry from `sought` on, in the direction of the scan.
    fn begin(
        &mut self,
        txn: &mut Transaction,
        forward: bool,
        within_prefix: bool,
        record: &mut [u8],
    ) -> Result<bool> {
        self.at_start = true;
        self.gaps.restart();
        let found = self.scan.seek(Self::start(&self.sought, forward))?;
        self.read_visible_or_give_back(txn, found, forward, within_prefix, record)
    }

    /// Moves one entry on in the open sources. A locking read then sees all that is committed by
    /// now, a snapshot read what its read point shows.
    fn pass(&mut self, txn: &Transaction, forward: bool) -> Result<bool> {
        match self.fetch.is_locking() {
            true => self.scan.step_following(txn, forward),
            false => self.scan.step(forward),
        }
    }

    /// Moves to the next entry in the scan's direction. If an earlier statement has parked the
    /// scan, or if its open sources cover only the keys with the sought prefix, this first opens
    /// new sources, from the entry that the scan read last on.
    fn step(&mut self, txn: &mut Transaction, forward: bool) -> Result<bool> {
        if self.missed {
            return self.step_from_sought(txn, forward);
        }
        self.at_start = false;
        if !self.parked && self.scan.reaches_on() {
            return self.pass(txn, forward);
        }
        self.parked = false;
        self.skips_gap_before_key = false;
        self.bound_to_index();
        self.open(txn, false)?;
        let last = self.fetch.last_entry();
        if last.is_empty() {
            return Err(Error::invalid("the cursor has no position"));
        }
        self.gaps.go_on(last, forward);
        self.scan.seek(match forward {
            true => Resume::Above(last),
            false => Resume::Below(last),
        })
    }

    /// Moves on from the key `sought`, because the last seek or move has found no row there.
    #[cold]
    fn step_from_sought(&mut self, txn: &mut Transaction, forward: bool) -> Result<bool> {
        self.at_start = true;
        self.parked = false;
        self.skips_gap_before_key = false;
        self.bound_to_index();
        self.open(txn, false)?;
        self.gaps.restart();
        match (forward, self.sought.is_empty()) {
            // The last seek began at the end of the index.
            (true, true) => Ok(false),
            _ => self.scan.seek(Self::start(&self.sought, forward)),
        }
    }

    /// Whether the row last read was shown without its lock (semi-consistent reading), and the scan
    /// is still open and stands on its entry.
    fn has_shown(&self) -> bool {
        self.fetch.lock().has_shown() && self.scan.is_open()
    }

    /// Moves again to the entry whose row was shown without its lock. If that entry is gone, moves
    /// to the entry that now follows the entry which the scan passed before it.
    fn again(&mut self, txn: &Transaction, forward: bool) -> Result<bool> {
        self.fetch.read_in_place();
        if self.scan.entries().valid() && !self.is_outdated(txn) {
            return Ok(true);
        }
        let last = self.fetch.last_entry();
        let found = match forward {
            true => self.scan.resume(txn, Resume::From(last))?,
            false => self.scan.resume(txn, Resume::UpTo(last))?,
        };
        if found && self.scan.entries().user_key() == last {
            return Ok(true);
        }
        self.fetch.lock_mut().forget_shown();
        self.go_back(txn, forward)
    }

    /// Whether there are commits that the open scan does not see.
    fn is_outdated(&self, txn: &Transaction) -> bool {
        txn.context().super_versions.freshness(self.scan.point()) != Freshness::Latest
    }

    /// Moves back to the entry that follows the second last entry that the scan has read, or to its
    /// first entry if it has read only one. "Follows" is meant in the scan's direction and as the
    /// latest commit shows the entries.
    fn go_back(&mut self, txn: &Transaction, forward: bool) -> Result<bool> {
        let passed = self.fetch.passed_entry();
        let at = match (self.at_start, forward) {
            (true, _) => Self::start(&self.sought, forward),
            (false, true) => Resume::Above(passed),
            (false, false) => Resume::Below(passed),
        };
        self.scan.resume(txn, at)
    }

    /// Reads the row of the entry under the scan. If the entry has no row for this reader, moves on
    /// to the next entry that has one. On an error, releases the gap lock that the last step took.
    fn read_visible_or_give_back(
        &mut self,
        txn: &mut Transaction,
        found: bool,
        forward: bool,
        within_prefix: bool,
        record: &mut [u8],
    ) -> Result<bool> {
        let read = self.read_visible(txn, found, forward, within_prefix, record);
        if read.is_err() {
            self.give_back_gap(txn);
        }
        read
    }

    fn read_visible(
        &mut self,
        txn: &mut Transaction,
        mut found: bool,
        forward: bool,
        within_prefix: bool,
        record: &mut [u8],
    ) -> Result<bool> {
        let mut passed = 0_u32;
        loop {
            if self.gaps.is_on() {
                match self.pass_gap(txn, found, forward, within_prefix)? {
                    GapStep::Read => {}
                    GapStep::Moved(stands) => {
                        found = stands;
                        continue;
                    }
                    GapStep::End => return Ok(false),
                }
            }
            if !found {
                return Ok(false);
            }
            passed = passed.wrapping_add(1);
            if passed.is_multiple_of(PASSED_UNASKED) && txn.owner().is_interrupted() {
                return Err(Error::new(
                    ErrorKind::Interrupted,
                    "while passing rows over",
                ));
            }
            let entries = self.scan.entries();
            if within_prefix && !entries.user_key().starts_with(&self.prefix) {
                return Ok(false);
            }
            let point = self.scan.point();
            if forward && self.fetch.reads_rows() {
                self.row_prefetch.pass(&self.fetch, entries, point);
            }
            // A semi-consistent read may have shown the row to the server without its lock, and is
            // now asked to lock it. Then the scan does not go back after it has waited for the
            // lock: as in InnoDB, it had passed all keys before the row when it showed the row.
            let shown = self.fetch.lock().has_shown();
            let behind = self.scan.is_behind(txn);
            let read = self.fetch.entry(txn, point, entries, behind, record)?;
            let has_row = matches!(read, FetchOutcome::Row);
            let gone = matches!(read, FetchOutcome::Gone);
            let waited = self.fetch.lock().has_waited() && !shown;
            if (waited || gone) && self.is_outdated(txn) {
                found = self.go_back(txn, forward)?;
                if has_row && found && self.scan.entries().user_key() == self.fetch.last_entry() {
                    // After the wait the scan has gone back to the entry that it passed last, and
                    // its next entry is the one for whose lock it has waited. So no transaction has
                    // committed an entry between the two, and the row just read is the right one.
                    return Ok(true);
                }
                if has_row {
                    self.fetch.meet_again();
                }
                self.fetch.read_in_place();
                continue;
            }
            if has_row {
                return Ok(true);
            }
            if matches!(read, FetchOutcome::Skipped) {
                self.give_back_gap(txn);
            }
            self.at_start = false;
            found = self.pass(txn, forward)?;
        }
    }
}
