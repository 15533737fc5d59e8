//! Cursors: reading rows through one index.
//!
//! A snapshot read returns what the transaction's snapshot and its own writes show. A locking read
//! returns the latest committed row: it finds an entry, locks the row, and when anything was
//! committed since its view was pinned it looks again, at the row and at the entry that led to it.
//!
//! An exact seek opens only what can hold the key's prefix; a cursor that seeks again (a join's
//! inner table) or moves on past the prefix widens to the whole index and keeps its iterators.

use super::Table;
use super::fetch::{Fetch, Found};
use super::index::IndexInfo;
use crate::base::key::{INDEX_ID_LEN, index_prefix};
use crate::base::range::prefix_successor;
use crate::base::{Error, ErrorKind, InternalIterator, Result};
use crate::iter::{Interrupt, MergeIter, MvccIter, ReadAt};
use crate::read::{ReadPoint, ScanRange, Source, scan_sources};
use crate::txn::{LockMode, Mark, Transaction};
use std::sync::Arc;

/// What a cursor reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadMode {
    /// The transaction's snapshot.
    Snapshot,
    /// The latest committed rows, each locked.
    Locking(LockMode),
}

/// What a locking read does about a row that another transaction has locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockWait {
    /// Waits as long as the session says.
    Wait,
    /// Fails at once.
    Fail,
    /// Leaves the row out.
    Skip,
}

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

pub(super) type Entries = MvccIter<MergeIter<Source>>;

struct Scan {
    entries: Entries,
    point: ReadPoint,
    /// Own writes when it was opened.
    written: Mark,
    /// Only the prefix of an exact seek can be found.
    narrow: bool,
    /// The transaction's own writes are among the sources.
    with_own: bool,
}

/// A position in one index of a table.
pub struct Cursor {
    fetch: Fetch,
    scan: Option<Scan>,
    /// Encoded prefix of the last seek.
    prefix: Vec<u8>,
    /// Entries at or after this key are beyond the end of the range.
    end: Option<Vec<u8>>,
    seeks: u32,
    /// Continue after (or before) the last entry in a new scan.
    parked: bool,
}

impl Cursor {
    /// A cursor on the clustered index of `table`.
    pub fn new(table: Arc<Table>) -> Self {
        Self {
            fetch: Fetch::new(table),
            scan: None,
            prefix: Vec::new(),
            end: None,
            seeks: 0,
            parked: false,
        }
    }

    /// Points the cursor at index number `index`, or at the hidden clustered index, for a new
    /// statement or scan.
    pub fn reset(&mut self, index: Option<usize>, mode: ReadMode, wait: LockWait) -> Result<()> {
        self.scan = None;
        self.end = None;
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
        self.scan = None;
        self.end = None;
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

    /// Chooses the columns to decode; `None` for all. `key_only`: from the index entry alone.
    pub fn set_columns(&mut self, bitmap: Option<&[u8]>, key_only: bool) -> Result<()> {
        self.fetch.set_columns(bitmap, key_only)
    }

    /// Bounds forward scans at `key`, whose prefix is `included` or not.
    pub fn set_end_range(&mut self, key: Option<Key<'_>>, included: bool) -> Result<()> {
        self.end = match key {
            None => None,
            Some(key) => {
                let mut end = Vec::new();
                self.fetch.index().seek_prefix(key.image, &mut end)?;
                if included {
                    prefix_successor(&end)
                } else {
                    Some(end)
                }
            }
        };
        let end = self.end.as_deref();
        if let Some(scan) = &mut self.scan {
            let (lower, upper) = index_bounds(self.fetch.index());
            scan.entries
                .set_bounds(Some(&lower), end.or(upper.as_deref()));
        }
        Ok(())
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
        let mut prefix = std::mem::take(&mut self.prefix);
        prefix.clear();
        let encoded = self.fetch.index().seek_prefix(key.image, &mut prefix);
        self.prefix = prefix;
        let complete = encoded?;
        if complete && mode == SeekMode::Exact && self.fetch.on_clustered() {
            // At most one row: no iterator. A move from here opens one at its key.
            self.scan = None;
            self.fetch.set_row_key(&self.prefix);
            let point = self.read_point(txn)?;
            return self.fetch.row(txn, &point, record);
        }
        let successor = prefix_successor(&self.prefix);
        let exact = matches!(mode, SeekMode::Exact | SeekMode::LastWithPrefix);
        let narrow = exact && self.seeks == 0;
        self.seeks += 1;
        let range = match narrow {
            true => ScanRange {
                lower: self.prefix.clone(),
                upper: successor.clone(),
            },
            false => self.whole_range(),
        };
        self.open(txn, &range, narrow)?;
        let entries = &mut self.scan.as_mut().expect("just opened").entries;
        let prefix = &self.prefix;
        let (found, forward) = match mode {
            SeekMode::Exact | SeekMode::AtOrAfter | SeekMode::Prefix => {
                (entries.seek_ge(prefix)?, true)
            }
            SeekMode::After => match &successor {
                Some(successor) => (entries.seek_ge(successor)?, true),
                None => (false, true),
            },
            SeekMode::Before => (entries.seek_lt(prefix)?, false),
            SeekMode::LastWithPrefix | SeekMode::LastAtOrBefore => match &successor {
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
        let range = self.whole_range();
        self.open(txn, &range, false)?;
        let found = self.scan.as_mut().expect("just opened").entries.first()?;
        self.settle(txn, found, true, false, record)
    }

    /// Reads the row of the last entry.
    pub fn last(&mut self, txn: &mut Transaction, record: &mut [u8]) -> Result<bool> {
        self.parked = false;
        let range = self.whole_range();
        self.open(txn, &range, false)?;
        let found = self.scan.as_mut().expect("just opened").entries.last()?;
        self.settle(txn, found, false, false, record)
    }

    /// Reads the row of the next entry.
    pub fn next(&mut self, txn: &mut Transaction, record: &mut [u8]) -> Result<bool> {
        let found = self.fetch.insist() || self.step(txn, true)?;
        self.settle(txn, found, true, false, record)
    }

    /// Reads the row of the previous entry.
    pub fn prev(&mut self, txn: &mut Transaction, record: &mut [u8]) -> Result<bool> {
        let found = self.fetch.insist() || self.step(txn, false)?;
        self.settle(txn, found, false, false, record)
    }

    /// Reads the row of the next entry if its key starts with `key`.
    pub fn next_same(
        &mut self,
        txn: &mut Transaction,
        key: Key<'_>,
        record: &mut [u8],
    ) -> Result<bool> {
        let mut prefix = std::mem::take(&mut self.prefix);
        prefix.clear();
        let encoded = self.fetch.index().seek_prefix(key.image, &mut prefix);
        self.prefix = prefix;
        encoded?;
        let again = self.fetch.insist();
        let found = match &mut self.scan {
            Some(_) if again => true,
            // Beyond a narrow scan there is nothing with the prefix it was opened for.
            Some(scan) if scan.narrow && !self.parked => {
                scan.entries.valid() && scan.entries.next()?
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
        let point = self.read_point(txn)?;
        self.fetch.row(txn, &point, record)
    }

    /// Id of the row last read from a table with a hidden primary key.
    pub fn hidden_row_id(&self) -> Result<u64> {
        self.fetch.hidden_row_id()
    }

    /// Releases the lock of the row last read, if reading it took the lock.
    pub fn unlock_row(&mut self, txn: &Transaction) {
        self.fetch.unlock_row(txn);
    }

    fn read_point(&self, txn: &mut Transaction) -> Result<ReadPoint> {
        if self.fetch.is_locking() {
            return Ok(txn.latest_point());
        }
        let point = txn.read_point();
        if point.seqno < self.fetch.created() {
            let message = "the table was defined after this transaction's snapshot";
            return Err(Error::new(ErrorKind::TableDefChanged, message));
        }
        Ok(point)
    }

    fn whole_range(&self) -> ScanRange {
        let (lower, upper) = index_bounds(self.fetch.index());
        ScanRange {
            lower,
            upper: self.end.clone().or(upper),
        }
    }

    /// Opens iterators over `range`, or keeps those there are.
    fn open(&mut self, txn: &mut Transaction, range: &ScanRange, narrow: bool) -> Result<()> {
        let point = self.read_point(txn)?;
        let with_own = txn.writes_touch(self.fetch.index().id());
        let reusable = self.scan.as_ref().is_some_and(|scan| {
            let same_view = Arc::ptr_eq(&scan.point.view, &point.view);
            let same_point = same_view && scan.point.seqno == point.seqno;
            !scan.narrow && !narrow && same_point && (scan.with_own || !with_own)
        });
        if !reusable {
            let own = || Box::new(txn.own_writes()) as Box<dyn InternalIterator + Send>;
            let own = with_own.then(own);
            let sources = scan_sources(&point.view, range, own);
            let read_at = ReadAt::snapshot(point.seqno);
            let mut entries = MvccIter::new(MergeIter::new(sources), read_at);
            entries.set_interrupt(Some(interrupt_of(txn)));
            self.scan = Some(Scan {
                entries,
                point,
                written: txn.savepoint(),
                narrow,
                with_own,
            });
        }
        let scan = self.scan.as_mut().expect("opened above");
        scan.entries
            .set_bounds(Some(&range.lower), range.upper.as_deref());
        Ok(())
    }

    /// Moves one entry on. A scan that was narrow, or was left in an earlier statement, is opened
    /// anew from the last entry.
    fn step(&mut self, txn: &mut Transaction, forward: bool) -> Result<bool> {
        let again = self.parked || self.scan.as_ref().is_none_or(|scan| scan.narrow);
        if !again {
            let entries = &mut self.scan.as_mut().expect("checked above").entries;
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
        let range = self.whole_range();
        self.open(txn, &range, false)?;
        let last = self.fetch.last_entry();
        if last.is_empty() {
            return Err(Error::invalid("the cursor has no position"));
        }
        let entries = &mut self.scan.as_mut().expect("just opened").entries;
        if !forward {
            return entries.seek_lt(last);
        }
        // The smallest key above the last entry.
        let mut above = last.to_vec();
        above.push(0);
        entries.seek_ge(&above)
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
        let scan = self.scan.as_mut().expect("a move opens the scan");
        while found {
            if within_prefix && !scan.entries.user_key().starts_with(&self.prefix) {
                return Ok(false);
            }
            let stale = txn.savepoint() != scan.written;
            match self
                .fetch
                .entry(txn, &scan.point, &scan.entries, stale, record)?
            {
                Found::Row => return Ok(true),
                Found::Nothing => {}
            }
            found = if forward {
                scan.entries.next()?
            } else {
                scan.entries.prev()?
            };
        }
        Ok(false)
    }
}

fn index_bounds(index: &IndexInfo) -> (Vec<u8>, Option<Vec<u8>>) {
    let lower = index_prefix(index.id());
    debug_assert_eq!(lower.len(), INDEX_ID_LEN);
    (lower.to_vec(), prefix_successor(&lower))
}

fn interrupt_of(txn: &Transaction) -> Interrupt {
    let owner = Arc::clone(txn.owner());
    Arc::new(move || owner.is_interrupted())
}
