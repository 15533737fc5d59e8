//! The open sources of a cursor: iterators over memtables and files for a range of one index, read
//! at one point.

use super::read_mode::Entries;
use crate::base::key::index_prefix;
use crate::base::key_range::{make_successor, prefix_successor};
use crate::base::{IndexId, InternalIterator, Kind, Result, Seqno, Value};
use crate::env::ReadClass;
use crate::iter::{MergeIter, MvccIter, ReadAt};
use crate::read::{Freshness, ReadPoint, push_sources, still_complete};
use crate::txn::{LockOwner, Savepoint, Transaction};
use std::sync::Arc;

/// The index and the read point for which the sources were opened.
struct OpenSources {
    index: IndexId,
    point: ReadPoint,
    /// The savepoint of the transaction's write set when the sources were opened. If the write set
    /// is at another savepoint now, the transaction has written or rolled back writes since then.
    written: Savepoint,
    /// Whether the sources cover only the prefix of an exact seek.
    narrow: bool,
    /// Whether the transaction's own writes are among the sources.
    with_own: bool,
}

/// The position from which a scan continues in newly opened sources.
#[derive(Debug, Clone, Copy)]
pub(super) enum Resume<'a> {
    /// At the first entry with this key or above it.
    From(&'a [u8]),
    /// At the first entry above this key.
    Above(&'a [u8]),
    /// At the last entry below this key.
    Below(&'a [u8]),
    /// At the last entry with this key or below it.
    UpTo(&'a [u8]),
    /// At the last entry.
    Last,
}

/// Entries of one index between two bounds.
///
/// A snapshot read stays at the point that its sources were opened at. A locking read *follows*:
/// each of its moves reads at a new read point, so that it meets what others have committed in
/// front of it. While the newest super version is still the one of the sources, the scan seeks
/// again only in memtables that commits have written to since. When there is a newer super version,
/// the scan opens new sources with the same bounds.
///
/// Between statements the scan keeps its buffers of keys and pins nothing: no super version, no
/// file, no block.
pub(super) struct IndexScan {
    /// Has no sources while `opened` is `None`.
    entries: Entries,
    opened: Option<OpenSources>,
    /// The lock owner of the session that scans. A kill of the session ends the scan.
    owner: Option<Arc<LockOwner>>,
    lower: Vec<u8>,
    /// Empty for no bound.
    upper: Vec<u8>,
    /// End of the keys of the index that the sources cover; empty if they cover the whole index.
    covered: Vec<u8>,
    /// Whether the bounds of the scan include keys that the open sources do not cover, so that the
    /// next move must open other sources.
    short: bool,
    /// Scratch buffer for the smallest key above another one.
    above: Vec<u8>,
}

impl IndexScan {
    pub(super) fn new() -> Self {
        Self {
            entries: MvccIter::new(MergeIter::new(Vec::new()), ReadAt::latest()),
            opened: None,
            owner: None,
            lower: Vec::new(),
            upper: Vec::new(),
            covered: Vec::new(),
            short: false,
            above: Vec::new(),
        }
    }

    /// Closes the sources, which releases what they pin.
    pub(super) fn close(&mut self) {
        if self.opened.take().is_some() {
            self.entries.inner_mut().exchange(Vec::clear);
        }
    }

    /// Closes the sources and frees their vector: thousands of cursors rest in the server's table
    /// cache, and a scan takes much longer than an allocation.
    pub(super) fn park(&mut self) {
        self.close();
        self.entries
            .inner_mut()
            .exchange(|sources| *sources = Vec::new());
    }

    pub(super) fn is_open(&self) -> bool {
        self.opened.is_some()
    }

    /// Whether the sources cover only the prefix of an exact seek.
    pub(super) fn is_narrow(&self) -> bool {
        self.opened.as_ref().is_some_and(|opened| opened.narrow)
    }

    /// Whether the open sources cover all keys within the bounds. If not, a move must open other
    /// sources.
    pub(super) fn reaches_on(&self) -> bool {
        !self.short && self.is_open() && !self.is_narrow()
    }

    pub(super) fn entries(&self) -> &Entries {
        &self.entries
    }

    pub(super) fn entries_mut(&mut self) -> &mut Entries {
        &mut self.entries
    }

    /// The read point of the scan, which must be open.
    pub(super) fn point(&self) -> &ReadPoint {
        &self.opened().point
    }

    /// Whether the transaction has written since the sources were opened.
    pub(super) fn is_behind(&self, txn: &Transaction) -> bool {
        txn.savepoint() != self.opened().written
    }

    fn opened(&self) -> &OpenSources {
        self.opened.as_ref().expect("a move opens the scan")
    }

    /// Sets the bounds to those of a prefix. They are in force with the next [`Self::open`].
    pub(super) fn bound_to_prefix(&mut self, prefix: &[u8], successor: &[u8]) {
        copy(&mut self.lower, prefix);
        copy(&mut self.upper, successor);
    }

    /// Sets the bounds to the index, up to `end` if that is not empty. They are in force with the
    /// next [`Self::open`] or [`Self::move_bounds`].
    pub(super) fn bound_to_index(&mut self, index: IndexId, end: &[u8]) {
        let prefix = index_prefix(index);
        copy(&mut self.lower, &prefix);
        if end.is_empty() {
            copy(&mut self.upper, &prefix);
            make_successor(&mut self.upper);
        } else {
            copy(&mut self.upper, end);
        }
    }

    /// Applies bounds that were changed while the scan is open.
    pub(super) fn move_bounds(&mut self) {
        self.put_bounds_in_force();
        self.short = !self.covers_bounds();
    }

    /// Whether the sources cover all keys within the bounds.
    fn covers_bounds(&self) -> bool {
        self.covered.is_empty() || !self.upper.is_empty() && self.upper <= self.covered
    }

    fn put_bounds_in_force(&mut self) {
        let upper = (!self.upper.is_empty()).then_some(&self.upper[..]);
        self.entries.set_bounds(Some(&self.lower), upper);
    }

    /// Opens sources of `index` at `point`, or keeps the open ones. A seek must follow. `widely`
    /// opens them for the whole index, because the cursor seeks again and again.
    pub(super) fn open(
        &mut self,
        txn: &Transaction,
        index: IndexId,
        point: ReadPoint,
        narrow: bool,
        widely: bool,
    ) {
        if !(self.serves(txn, &point, narrow) && self.covers_bounds()) {
            if widely && !narrow {
                copy(&mut self.covered, &index_prefix(index));
                make_successor(&mut self.covered);
            } else {
                copy(&mut self.covered, &self.upper);
            }
            self.open_sources(txn, index, point, narrow);
        } else if let Some(opened) = &mut self.opened {
            opened.point = point;
            let read_at = ReadAt::snapshot(opened.point.seqno);
            self.entries.set_read_at(read_at);
        }
        self.short = false;
        self.put_bounds_in_force();
    }

    /// Whether a seek at `point` can use the open sources, if they cover the seek's bounds. They
    /// must not be limited to one prefix, must belong to the super version of `point`, and must
    /// lack neither a commit up to `point` nor a write of the transaction itself.
    fn serves(&self, txn: &Transaction, point: &ReadPoint, narrow: bool) -> bool {
        self.opened.as_ref().is_some_and(|opened| {
            let own_missing = || !opened.with_own && txn.writes_touch(opened.index);
            let since = opened.point.seqno;
            !opened.narrow
                && !narrow
                && Arc::ptr_eq(&opened.point.super_version, &point.super_version)
                && (since == point.seqno || since < point.seqno && self.is_complete(opened))
                && !own_missing()
        })
    }

    fn is_complete(&self, opened: &OpenSources) -> bool {
        let (super_version, since) = (&opened.point.super_version, opened.point.seqno);
        still_complete(
            super_version,
            opened.index,
            since,
            self.entries.inner().children(),
        )
    }

    fn open_sources(&mut self, txn: &Transaction, index: IndexId, point: ReadPoint, narrow: bool) {
        let with_own = txn.writes_touch(index);
        let upper = (!self.covered.is_empty()).then_some(&self.covered[..]);
        let lower = &self.lower;
        let own = || {
            let own = match narrow {
                true => txn.own_writes_within(lower, upper),
                // Open the transaction's own writes of the whole index, not only within the bounds:
                // the bounds may move within the index while the scan is open.
                false => {
                    let prefix = index_prefix(index);
                    let end = prefix_successor(&prefix);
                    txn.own_writes_within(&prefix, end.as_deref())
                }
            };
            Box::new(own) as Box<dyn InternalIterator + Send>
        };
        let own = with_own.then(own);
        self.opened = None;
        self.entries.inner_mut().exchange(|sources| {
            sources.clear();
            push_sources(
                &point.super_version,
                lower,
                upper,
                ReadClass::Range,
                own,
                sources,
            );
        });
        self.entries.set_read_at(ReadAt::snapshot(point.seqno));
        self.heed_interrupts(txn);
        self.opened = Some(OpenSources {
            index,
            point,
            written: txn.savepoint(),
            narrow,
            with_own,
        });
    }

    /// Makes the scan end when the session is killed, even while it skips many entries, and sets
    /// where the scan reports ranges of many tombstones.
    fn heed_interrupts(&mut self, txn: &Transaction) {
        let known = self.owner.as_ref();
        if !known.is_some_and(|owner| Arc::ptr_eq(owner, txn.owner())) {
            let owner = Arc::clone(txn.owner());
            self.owner = Some(Arc::clone(&owner));
            let interrupt = Arc::new(move || owner.is_interrupted());
            self.entries.set_interrupt(Some(interrupt));
            let tombstone_reports = Arc::clone(&txn.context().tombstone_reports);
            self.entries.set_tombstone_reports(Some(tombstone_reports));
        }
    }

    /// Moves to the next entry, which the scan must have checked in advance. Returns the read point
    /// of the scan, and the kind and value of the entry.
    #[inline]
    pub(super) fn next_without_key(&mut self) -> (&ReadPoint, Kind, Value<'_>) {
        let opened = self.opened.as_ref().expect("only an open scan knows rows");
        let (kind, value) = self.entries.next_without_key();
        (&opened.point, kind, value)
    }

    /// Moves one entry on in the open sources, at their read point.
    pub(super) fn step(&mut self, forward: bool) -> Result<bool> {
        match (self.entries.valid(), forward) {
            (false, _) => Ok(false),
            (true, true) => self.entries.next(),
            (true, false) => self.entries.prev(),
        }
    }

    /// Moves to the next entry in the scan's direction, including entries that others have
    /// committed since the last move.
    pub(super) fn step_following(&mut self, txn: &Transaction, forward: bool) -> Result<bool> {
        if !self.entries.valid() {
            return Ok(false);
        }
        let seqno = match txn.context().super_versions.freshness(self.point()) {
            Freshness::Latest => return self.step(forward),
            Freshness::Newer(seqno) if self.is_complete(self.opened()) => seqno,
            Freshness::Newer(_) | Freshness::Replaced => {
                let last = self.entries.user_key().to_vec();
                return self.resume(
                    txn,
                    match forward {
                        true => Resume::Above(&last),
                        false => Resume::Below(&last),
                    },
                );
            }
        };
        let since = self.advance_point(seqno);
        self.entries
            .move_at(seqno, !forward, |source| source.grew_after(since))
    }

    /// Sets the seqno of the scan's read point and returns the previous one.
    fn advance_point(&mut self, seqno: Seqno) -> Seqno {
        let opened = self.opened.as_mut().expect("open");
        std::mem::replace(&mut opened.point.seqno, seqno)
    }

    /// Opens sources at a new read point and seeks `at`. Keeps the bounds of the open scan.
    pub(super) fn resume(&mut self, txn: &Transaction, at: Resume<'_>) -> Result<bool> {
        let (index, narrow) = (self.opened().index, self.opened().narrow);
        self.open_sources(txn, index, txn.latest_point(), narrow);
        self.put_bounds_in_force();
        self.seek(at)
    }

    /// Seeks in the open sources, at their read point.
    pub(super) fn seek(&mut self, at: Resume<'_>) -> Result<bool> {
        match at {
            Resume::From(key) => self.entries.seek_ge(key),
            Resume::Above(key) => {
                copy(&mut self.above, key);
                self.above.push(0);
                self.entries.seek_ge(&self.above)
            }
            Resume::Below(key) => self.entries.seek_lt(key),
            Resume::UpTo(key) => {
                copy(&mut self.above, key);
                self.above.push(0);
                self.entries.seek_lt(&self.above)
            }
            Resume::Last => self.entries.last(),
        }
    }
}

/// Replaces the contents of `to` with `from`. The buffer grows only if `from` does not fit.
pub(super) fn copy(to: &mut Vec<u8>, from: &[u8]) {
    to.clear();
    to.extend_from_slice(from);
}
