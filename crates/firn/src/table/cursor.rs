//! Cursors: reading rows through one index.
//!
//! A snapshot read returns what the transaction's snapshot and its own writes show. A locking read
//! returns the latest committed row: it finds an entry, locks the row, and when anything was
//! committed since its view was pinned it looks again, at the row and at the entry that led to it.
//!
//! An exact seek opens only what can hold the key's prefix; a cursor that seeks again (a join's
//! inner table) or moves on past the prefix widens to the whole index and keeps its iterators.

use super::Table;
use super::ahead::LookAhead;
use super::fetch::{Fetch, Found};
use super::mode::{Entries, LockWait, ReadMode};
use super::out_of_line::Part;
use crate::base::key::index_prefix;
use crate::base::range::{make_successor, prefix_successor};
use crate::base::{Error, ErrorKind, InternalIterator, Result};
use crate::iter::{MergeIter, MvccIter, ReadAt};
use crate::read::{ReadPoint, push_sources};
use crate::txn::{LockOwner, Mark, Transaction};
use std::sync::Arc;

/// Which entry a seek looks for; `prefix` stands for the encoded key given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeekMode {
    /// The first entry with the prefix, or nothing.
    Exact,
    /// The first entry with the prefix or after it.
    AtOrAfter,
    /// The first entry after all with the prefix.
    After,
    /// The last entry before all with the prefix.
    Before,
    /// The first entry with the prefix, or nothing; the next ones may differ.
    Prefix,
    /// The last entry with the prefix, or nothing.
    LastWithPrefix,
    /// The last entry with the prefix or before it.
    LastAtOrBefore,
}

/// A key in the server's form.
#[derive(Debug, Clone, Copy)]
pub struct Key<'a> {
    pub(super) image: &'a [u8],
}

impl<'a> Key<'a> {
    /// The key of these bytes.
    pub fn image(image: &'a [u8]) -> Self {
        Self { image }
    }
}

/// What the open scan was made for.
struct Scan {
    point: ReadPoint,
    /// Own writes when it was opened.
    written: Mark,
    /// Only the prefix of an exact seek can be found.
    narrow: bool,
    /// The transaction's own writes are among the sources.
    with_own: bool,
}

/// A position in one index of a table.
///
/// Between statements it keeps its memory and pins nothing: no view, no file, no block.
pub struct Cursor {
    fetch: Fetch,
    /// Without sources while `scan` is none.
    entries: Entries,
    scan: Option<Scan>,
    /// Who may interrupt the scan.
    owner: Option<Arc<LockOwner>>,
    /// Encoded prefix of the last seek.
    prefix: Vec<u8>,
    /// The first key above all with the prefix; empty if there is none.
    successor: Vec<u8>,
    /// Entries at or after this key are beyond the end of the range; empty for no end.
    end: Vec<u8>,
    seeks: u32,
    /// Continue after (or before) the last entry in a new scan.
    parked: bool,
    ahead: LookAhead,
    /// Scratch: bounds of a scan.
    lower: Vec<u8>,
    upper: Vec<u8>,
    /// The sources of the open scan have what lies below this key; empty for all.
    covered: Vec<u8>,
    /// The bounds reach beyond what the sources cover: a move must open others.
    short: bool,
}

impl Cursor {
    /// A cursor on the clustered index of `table`.
    pub fn new(table: Arc<Table>) -> Self {
        let entries = MvccIter::new(MergeIter::new(Vec::new()), ReadAt::latest());
        Self {
            fetch: Fetch::new(table),
            entries,
            scan: None,
            owner: None,
            prefix: Vec::new(),
            successor: Vec::new(),
            end: Vec::new(),
            seeks: 0,
            parked: false,
            ahead: LookAhead::new(),
            lower: Vec::new(),
            upper: Vec::new(),
            covered: Vec::new(),
            short: false,
        }
    }

    /// Lets go of the sources.
    fn close(&mut self) {
        if self.scan.take().is_some() {
            self.entries.inner_mut().exchange(Vec::clear);
        }
    }

    /// Points the cursor at index number `index`, or at the hidden clustered index, for a new
    /// statement or scan.
    pub fn reset(&mut self, index: Option<usize>, mode: ReadMode, wait: LockWait) -> Result<()> {
        self.close();
        self.end.clear();
        self.seeks = 0;
        self.parked = false;
        self.fetch.reset(index, mode, wait)
    }

    /// Semi-consistent reading, for updates and deletes that give unmatched rows back: a row that
    /// another transaction has locked is shown as it was last committed. If it matches, the caller
    /// moves on as usual and gets the same row again, waited for and locked.
    pub fn set_semi_consistent(&mut self, on: bool) {
        self.fetch.set_semi_consistent(on);
    }

    /// Whether the row last read was shown without its lock.
    pub fn was_semi_consistent(&self) -> bool {
        self.fetch.was_semi_consistent()
    }

    /// Lets go of all that a statement holds, and keeps the key of the last entry.
    pub fn park(&mut self) {
        self.close();
        self.end.clear();
        self.seeks = 0;
        self.parked = true;
        self.fetch.release();
    }

    /// Goes on from the key kept by [`Self::park`].
    pub fn resume(&mut self, mode: ReadMode, wait: LockWait) -> Result<()> {
        self.fetch.set_mode(mode, wait);
        Ok(())
    }

    /// Bytes of a column bitmap.
    pub fn column_bitmap_len(&self) -> usize {
        self.fetch.table().column_count().div_ceil(8)
    }

    /// Chooses the columns to decode; `None` for all. `key_only`: from the index entry alone. `parts`: what
    /// is enough of values out of line where nothing is locked; anything may be whole nevertheless.
    pub fn set_columns(
        &mut self,
        bitmap: Option<&[u8]>,
        key_only: bool,
        parts: &[Part],
    ) -> Result<()> {
        self.fetch.set_columns(bitmap, key_only, parts)
    }

    /// Bounds forward scans at `key`, whose prefix is `included` or not.
    pub fn set_end_range(&mut self, key: Option<Key<'_>>, included: bool) -> Result<()> {
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
        if self.scan.is_some() {
            self.whole_range();
            self.set_bounds();
            self.short = !self.covers_bounds();
        }
        Ok(())
    }

    /// Encodes the key of a seek.
    fn set_prefix(&mut self, key: Key<'_>) -> Result<bool> {
        self.prefix.clear();
        let complete = self
            .fetch
            .index()
            .seek_prefix(key.image, &mut self.prefix)?;
        self.successor.clone_from(&self.prefix);
        make_successor(&mut self.successor);
        Ok(complete)
    }

    /// Moves to the entry that `key` and `mode` name and reads its row.
    pub fn seek(
        &mut self,
        txn: &mut Transaction,
        key: Key<'_>,
        mode: SeekMode,
        record: &mut [u8],
    ) -> Result<bool> {
        self.parked = false;
        let complete = self.set_prefix(key)?;
        if complete && mode == SeekMode::Exact && self.fetch.on_clustered() {
            // At most one row: no iterator. A move from here opens one at its key.
            self.close();
            self.fetch.set_row_key(&self.prefix);
            return self.row(txn, record);
        }
        let exact = matches!(mode, SeekMode::Exact | SeekMode::LastWithPrefix);
        let narrow = exact && self.seeks == 0;
        self.seeks += 1;
        if narrow {
            self.lower.clone_from(&self.prefix);
            self.upper.clone_from(&self.successor);
        } else {
            self.whole_range();
        }
        self.open(txn, narrow)?;
        let entries = &mut self.entries;
        let prefix = &self.prefix;
        let successor = (!self.successor.is_empty()).then_some(&self.successor);
        let (found, forward) = match mode {
            SeekMode::Exact | SeekMode::AtOrAfter | SeekMode::Prefix => {
                (entries.seek_ge(prefix)?, true)
            }
            SeekMode::After => match successor {
                Some(successor) => (entries.seek_ge(successor)?, true),
                None => (false, true),
            },
            SeekMode::Before => (entries.seek_lt(prefix)?, false),
            SeekMode::LastWithPrefix | SeekMode::LastAtOrBefore => match successor {
                Some(successor) => (entries.seek_lt(successor)?, false),
                None => (entries.last()?, false),
            },
        };
        let within_prefix = exact || mode == SeekMode::Prefix;
        self.settle(txn, found, forward, within_prefix, record)
    }

    /// Reads the row of the first entry.
    pub fn first(&mut self, txn: &mut Transaction, record: &mut [u8]) -> Result<bool> {
        self.parked = false;
        self.whole_range();
        self.open(txn, false)?;
        let found = self.entries.first()?;
        self.settle(txn, found, true, false, record)
    }

    /// Reads the row of the last entry.
    pub fn last(&mut self, txn: &mut Transaction, record: &mut [u8]) -> Result<bool> {
        self.parked = false;
        self.whole_range();
        self.open(txn, false)?;
        let found = self.entries.last()?;
        self.settle(txn, found, false, false, record)
    }

    /// Reads the row of the next entry.
    pub fn next(&mut self, txn: &mut Transaction, record: &mut [u8]) -> Result<bool> {
        let glides = self.fetch.is_plain()
            && self.scan.as_ref().is_some_and(|scan| !scan.narrow)
            && !self.short
            && self.entries.rows_ahead();
        if glides {
            self.entries.glide();
            let scan = self.scan.as_ref().expect("a scan glides");
            self.fetch.plain_row(&scan.point, &self.entries, record)?;
            return Ok(true);
        }
        let found = self.fetch.was_semi_consistent() || self.step(txn, true)?;
        self.settle(txn, found, true, false, record)
    }

    /// Reads the row of the previous entry.
    pub fn prev(&mut self, txn: &mut Transaction, record: &mut [u8]) -> Result<bool> {
        let found = self.fetch.was_semi_consistent() || self.step(txn, false)?;
        self.settle(txn, found, false, false, record)
    }

    /// Reads the row of the next entry if its key starts with `key`.
    pub fn next_same(
        &mut self,
        txn: &mut Transaction,
        key: Key<'_>,
        record: &mut [u8],
    ) -> Result<bool> {
        self.set_prefix(key)?;
        let again = self.fetch.was_semi_consistent();
        let found = match &self.scan {
            Some(_) if again => true,
            // Beyond a narrow scan there is nothing with the prefix it was opened for.
            Some(scan) if scan.narrow && !self.parked => {
                self.entries.valid() && self.entries.next()?
            }
            _ => self.step(txn, true)?,
        };
        self.settle(txn, found, true, true, record)
    }

    /// Reads the row that `key`, all declared columns of a unique index, names.
    pub fn get(&mut self, txn: &mut Transaction, key: Key<'_>, record: &mut [u8]) -> Result<bool> {
        if self.fetch.on_clustered() {
            return self.get_row(txn, key, record);
        }
        self.seek(txn, key, SeekMode::Exact, record)
    }

    /// Reads the row of a reference: the key image of the primary key, or the hidden row id in
    /// eight bytes, big-endian.
    pub fn get_row(
        &mut self,
        txn: &mut Transaction,
        reference: Key<'_>,
        record: &mut [u8],
    ) -> Result<bool> {
        self.fetch.row_key_of(reference.image)?;
        self.row(txn, record)
    }

    /// Id of the row last read from a table with a hidden primary key.
    pub fn hidden_row_id(&self) -> Result<u64> {
        self.fetch.hidden_row_id()
    }

    /// Releases the lock of the row last read, if reading it took the lock.
    pub fn unlock_row(&mut self, txn: &Transaction) {
        self.fetch.unlock_row(txn);
    }

    /// Reads the row of the row key that was set.
    fn row(&mut self, txn: &mut Transaction, record: &mut [u8]) -> Result<bool> {
        if !self.fetch.is_locking() {
            self.pin(txn)?;
        }
        self.fetch.row(txn, record)
    }

    /// Pins what a snapshot read reads, which must not be older than the index.
    fn pin(&self, txn: &mut Transaction) -> Result<()> {
        txn.pin();
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

    /// Sets `lower` and `upper` to the index, up to the end of the range if there is one.
    fn whole_range(&mut self) {
        let index = index_prefix(self.fetch.index().id());
        self.lower.clear();
        self.lower.extend_from_slice(&index);
        self.upper.clear();
        if self.end.is_empty() {
            self.upper.extend_from_slice(&index);
            make_successor(&mut self.upper);
        } else {
            self.upper.extend_from_slice(&self.end);
        }
    }

    /// Whether the sources of the open scan have all that lies within the bounds.
    fn covers_bounds(&self) -> bool {
        self.covered.is_empty() || !self.upper.is_empty() && self.upper <= self.covered
    }

    fn set_bounds(&mut self) {
        let upper = (!self.upper.is_empty()).then_some(&self.upper[..]);
        self.entries.set_bounds(Some(&self.lower), upper);
    }

    /// Opens iterators from `lower` to `upper`, or keeps those there are.
    fn open(&mut self, txn: &mut Transaction, narrow: bool) -> Result<()> {
        let point = self.read_point(txn)?;
        let with_own = txn.writes_touch(self.fetch.index().id());
        let reusable = self.scan.as_ref().is_some_and(|scan| {
            let same_view = Arc::ptr_eq(&scan.point.view, &point.view);
            let same_point = same_view && scan.point.seqno == point.seqno;
            !scan.narrow && !narrow && same_point && (scan.with_own || !with_own)
        });
        if !(reusable && self.covers_bounds()) {
            let index = index_prefix(self.fetch.index().id());
            if narrow || self.seeks <= 1 {
                self.covered.clone_from(&self.upper);
            } else {
                // One range after the other: their sources are opened once.
                self.covered.clear();
                self.covered.extend_from_slice(&index);
                make_successor(&mut self.covered);
            }
            let upper = (!self.covered.is_empty()).then_some(&self.covered[..]);
            let lower = &self.lower;
            let own = || {
                let own = match narrow {
                    true => txn.own_writes_within(lower, upper),
                    // Bounds may move while the scan is open, but for the index.
                    false => {
                        let end = prefix_successor(&index);
                        txn.own_writes_within(&index, end.as_deref())
                    }
                };
                Box::new(own) as Box<dyn InternalIterator + Send>
            };
            let own = with_own.then(own);
            self.scan = None;
            self.entries.inner_mut().exchange(|sources| {
                sources.clear();
                push_sources(&point.view, lower, upper, own, sources);
            });
            self.entries.set_read_at(ReadAt::snapshot(point.seqno));
            self.heed_interrupts(txn);
            self.scan = Some(Scan {
                point,
                written: txn.savepoint(),
                narrow,
                with_own,
            });
        }
        self.short = false;
        self.set_bounds();
        self.ahead.restart();
        Ok(())
    }

    /// A kill of the session ends a scan that skips many entries.
    fn heed_interrupts(&mut self, txn: &Transaction) {
        let known = self.owner.as_ref();
        if !known.is_some_and(|owner| Arc::ptr_eq(owner, txn.owner())) {
            let owner = Arc::clone(txn.owner());
            self.owner = Some(Arc::clone(&owner));
            let interrupt = Arc::new(move || owner.is_interrupted());
            self.entries.set_interrupt(Some(interrupt));
            let reports = Arc::clone(&txn.context().reports);
            self.entries.set_reports(Some(reports));
        }
    }

    /// Moves one entry on. A scan that was narrow, or was left in an earlier statement, is opened
    /// anew from the last entry.
    fn step(&mut self, txn: &mut Transaction, forward: bool) -> Result<bool> {
        let short = self.short || self.scan.as_ref().is_none_or(|scan| scan.narrow);
        let again = self.parked || short;
        if !again {
            let entries = &mut self.entries;
            if !entries.valid() {
                return Ok(false);
            }
            return if forward {
                entries.next()
            } else {
                entries.prev()
            };
        }
        self.parked = false;
        self.whole_range();
        self.open(txn, false)?;
        let last = self.fetch.last_entry();
        if last.is_empty() {
            return Err(Error::invalid("the cursor has no position"));
        }
        if !forward {
            return self.entries.seek_lt(last);
        }
        // The smallest key above the last entry.
        let mut above = last.to_vec();
        above.push(0);
        self.entries.seek_ge(&above)
    }

    /// Reads the row under the scan, moving on while entries are to be left out.
    fn settle(
        &mut self,
        txn: &mut Transaction,
        mut found: bool,
        forward: bool,
        within_prefix: bool,
        record: &mut [u8],
    ) -> Result<bool> {
        let scan = self.scan.as_ref().expect("a move opens the scan");
        while found {
            if within_prefix && !self.entries.user_key().starts_with(&self.prefix) {
                return Ok(false);
            }
            if forward && self.fetch.reads_rows() {
                self.ahead.pass(&self.fetch, &self.entries, &scan.point);
            }
            let stale = txn.savepoint() != scan.written;
            match self
                .fetch
                .entry(txn, &scan.point, &self.entries, stale, record)?
            {
                Found::Row => return Ok(true),
                Found::Nothing => {}
            }
            found = if forward {
                self.entries.next()?
            } else {
                self.entries.prev()?
            };
        }
        Ok(false)
    }
}
