//! Visibility: the newest visible version of each user key.

mod saved_entry;

use super::merge::MergeIter;
use super::tombstone_reports::TombstoneReports;
use crate::base::key::{SEQNO_COMMITTED_MAX, SEQNO_MAX, UNCOMMITTED_BIT};
use crate::base::key_range::KeyRange;
use crate::base::{Error, ErrorKind, InternalIterator, Kind, Result, Seqno, Value, read_meter};
use saved_entry::SavedEntry;
use std::sync::Arc;

/// Number of steps that an iterator makes within one user key before it skips the rest of the key
/// with a seek.
const SKIPS_BEFORE_SEEK: u32 = 8;

/// Number of skipped entries after which an iterator calls its interrupt function.
const SKIPS_BETWEEN_CHECKS: u64 = 1024;

/// An iterator uses [rows ahead](InternalIterator::rows_ahead) only if there are at least this
/// many. For fewer rows, the search for them takes longer than the unchecked moves save.
const AHEAD_MIN: u32 = 4;

/// An iterator that has found fewer than [`AHEAD_MIN`] rows ahead passes this many keys before it
/// asks for rows ahead again. Each further failure in a row doubles the number, up to
/// [`PAUSE_MAX`].
const PAUSE_MIN: u32 = 4;
/// Largest number of keys that an iterator passes before it asks for rows ahead again.
const PAUSE_MAX: u32 = 64;

/// A function that an iterator calls now and then while it skips entries. If it returns `true`, the
/// move ends with [`ErrorKind::Interrupted`].
pub type Interrupt = Arc<dyn Fn() -> bool + Send + Sync>;

/// Which versions a reader sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadAt {
    /// Committed versions up to this seqno are visible.
    pub snapshot: Seqno,
    /// Own writes (seqnos with [`UNCOMMITTED_BIT`]) up to this one are visible.
    pub own_bound: Seqno,
}

impl ReadAt {
    /// Sees everything committed up to `snapshot`, and all own writes.
    pub fn snapshot(snapshot: Seqno) -> Self {
        Self {
            snapshot,
            own_bound: SEQNO_MAX,
        }
    }

    /// Sees the newest committed version of every key, and all own writes.
    pub fn latest() -> Self {
        Self::snapshot(SEQNO_COMMITTED_MAX)
    }

    /// Whether a version with this seqno is visible.
    pub fn sees(&self, seqno: Seqno) -> bool {
        if seqno & UNCOMMITTED_BIT != 0 {
            seqno <= self.own_bound
        } else {
            seqno <= self.snapshot
        }
    }

    /// The seqno at which a seek of a key finds the newest own write that is visible. (Own writes
    /// that the running statement itself has made may be invisible.) If the key has no such write,
    /// the seek finds the newest committed version, whether that is visible or not.
    fn newest_own(&self) -> Seqno {
        self.own_bound.max(SEQNO_COMMITTED_MAX)
    }

    /// The seqno at which a seek of a key goes on from an invisible version that has `seqno`. From
    /// an own write, such a seek skips all invisible own writes; from a committed version, all
    /// committed versions above the snapshot. It skips no visible version.
    fn past_invisible(&self, seqno: Seqno) -> Seqno {
        if seqno & UNCOMMITTED_BIT != 0 {
            self.newest_own()
        } else {
            self.snapshot
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Position {
    Nowhere,
    /// On the same entry as the inner iterator.
    Inner,
    /// On the copied entry in `saved`. The inner iterator stands on the entry before all versions
    /// of that user key, or nowhere if there is none.
    Saved,
}

/// An iterator over the visible puts of an [`InternalIterator`] (the inner iterator), one per user
/// key.
///
/// Forwards, the versions of a user key come newest first: the first visible one decides, the rest
/// is skipped, and the entry is read in place. Backwards, they come oldest first: each visible one
/// is copied, and the last copy wins. Own writes sort above everything committed, so the visible
/// versions need not be adjacent: a committed version newer than the snapshot may lie between two
/// visible ones. So all versions are examined.
///
/// After a few steps within one user key, the iterator skips the key's remaining versions with a
/// seek.
///
/// Forwards, the iterator asks the inner iterator for rows ahead: entries of one source, below the
/// keys of all other sources and below the upper bound, each a visible put of another key. It moves
/// through them without a check of order, bound or visibility.
///
/// Example: with snapshot 10 and the versions a@12, a@9, a@3, b@7 (delete), c@10, a forward scan
/// returns a@9 and c@10.
///
/// Every move returns whether the iterator stands on an entry. After `false` or an error it is
/// unpositioned and only a seek may follow.
///
/// Rejected: stopping at the first invisible version when moving backwards (wrong, since a visible
/// own write may follow), and merging own writes above this iterator instead of below it (two
/// merges, twice the code).
pub struct MvccIter<I> {
    inner: I,
    read_at: ReadAt,
    /// The lower bound, inclusive.
    lower: Option<Vec<u8>>,
    /// The upper bound, exclusive.
    upper: Option<Vec<u8>>,
    interrupt: Option<Interrupt>,
    tombstone_reports: Option<Arc<TombstoneReports>>,
    position: Position,
    /// Number of rows ahead that the iterator has not passed yet.
    known_rows_ahead: u32,
    /// Whether the last move was [`Self::next_without_key`], so that the inner iterator cannot give
    /// its key before [`Self::restore_key`]. Only with `Position::Inner`.
    key_is_stale: bool,
    /// Number of keys that the iterator still passes before it asks for rows ahead again.
    pause: u32,
    pause_next: u32,
    /// In a forward move, the user key whose remaining versions are skipped.
    skip: Vec<u8>,
    saved: SavedEntry,
    tombstones: u64,
    skipped: u64,
    /// Number of entries to skip before the next check.
    until_check: u64,
    /// Entries skipped before this move.
    skipped_before: u64,
    /// The key at which the last tombstone report of this move was made; empty if there was none.
    reported: Vec<u8>,
}

impl<I: InternalIterator> MvccIter<I> {
    /// An iterator over the entries of `inner` that are visible at `read_at`; unpositioned, without
    /// bounds.
    pub fn new(inner: I, read_at: ReadAt) -> Self {
        Self {
            inner,
            read_at,
            lower: None,
            upper: None,
            interrupt: None,
            tombstone_reports: None,
            position: Position::Nowhere,
            known_rows_ahead: 0,
            key_is_stale: false,
            pause: 0,
            pause_next: PAUSE_MIN,
            skip: Vec::new(),
            saved: SavedEntry::default(),
            tombstones: 0,
            skipped: 0,
            until_check: SKIPS_BETWEEN_CHECKS,
            skipped_before: 0,
            reported: Vec::new(),
        }
    }

    /// Gives the position up.
    fn leave(&mut self) {
        self.position = Position::Nowhere;
        self.known_rows_ahead = 0;
        self.key_is_stale = false;
    }

    /// Sets the bounds on user keys, `lower` inclusive and `upper` exclusive. Moves end there and
    /// read no further. The iterator has no position afterwards.
    pub fn set_bounds(&mut self, lower: Option<&[u8]>, upper: Option<&[u8]>) {
        self.leave();
        copy_bound(&mut self.lower, lower);
        copy_bound(&mut self.upper, upper);
    }

    /// Sets the interrupt, which the iterator calls after every 1024 skipped entries.
    pub fn set_interrupt(&mut self, interrupt: Option<Interrupt>) {
        self.interrupt = interrupt;
    }

    /// Makes the iterator call its interrupt after 1024 more skipped entries, however many it has
    /// skipped since the last call.
    pub fn postpone_interrupt(&mut self) {
        self.until_check = SKIPS_BETWEEN_CHECKS;
    }

    /// Sets the collector of tombstone reports. If a single move skips more than a thousand
    /// entries, the iterator reports the range of keys among them.
    pub fn set_tombstone_reports(&mut self, tombstone_reports: Option<Arc<TombstoneReports>>) {
        self.tombstone_reports = tombstone_reports;
    }

    /// Changes which versions are visible. The iterator has no position afterwards.
    pub fn set_read_at(&mut self, read_at: ReadAt) {
        self.leave();
        self.read_at = read_at;
    }

    /// The visible versions.
    pub fn read_at(&self) -> ReadAt {
        self.read_at
    }

    /// The inner iterator.
    pub fn inner(&self) -> &I {
        &self.inner
    }

    /// The inner iterator, so that the caller can move it or exchange its sources. The iterator has
    /// no position afterwards.
    pub fn inner_mut(&mut self) -> &mut I {
        self.leave();
        &mut self.inner
    }

    /// Number of deletions that hid a key from this iterator so far.
    pub fn skipped_tombstones(&self) -> u64 {
        self.tombstones
    }

    /// Number of entries skipped so far, tombstones included.
    pub fn skipped_entries(&self) -> u64 {
        self.skipped
    }

    /// Whether the iterator stands on an entry.
    pub fn valid(&self) -> bool {
        self.position != Position::Nowhere
    }

    /// The user key of the current entry. Call it only when positioned, and not between
    /// [`Self::next_without_key`] and [`Self::restore_key`].
    pub fn user_key(&self) -> &[u8] {
        debug_assert!(!self.key_is_stale);
        match self.position {
            Position::Saved => self.saved.user_key(),
            _ => self.inner.key().user_key,
        }
    }

    /// The seqno of the current entry, committed or of an own write. Call it only when positioned,
    /// and not between [`Self::next_without_key`] and [`Self::restore_key`].
    pub fn seqno(&self) -> Seqno {
        match self.position {
            Position::Saved => self.saved.seqno(),
            _ => self.inner.key().seqno,
        }
    }

    /// The kind of the current entry, one of the put kinds. Call it only when positioned, and not
    /// between [`Self::next_without_key`] and [`Self::restore_key`].
    pub fn kind(&self) -> Kind {
        match self.position {
            Position::Saved => self.saved.kind(),
            _ => self.inner.key().kind,
        }
    }

    /// The value of the current entry. Call it only when positioned.
    pub fn value(&self) -> Value<'_> {
        match self.position {
            Position::Saved => self.saved.value(),
            _ => self.inner.value(),
        }
    }

    /// Moves to the first key.
    ///
    /// # Errors
    /// Those of the inner iterator (`Corruption`, `Io`); `Interrupted` if the interrupt returns
    /// `true`; `Unsupported` for a range deletion.
    pub fn first(&mut self) -> Result<bool> {
        self.leave();
        let on = match &self.lower {
            Some(lower) => self.inner.seek(lower, SEQNO_MAX)?,
            None => self.inner.seek_to_first()?,
        };
        self.forward(on, false)
    }

    /// Moves to the last key.
    ///
    /// # Errors
    /// As [`Self::first`].
    pub fn last(&mut self) -> Result<bool> {
        self.leave();
        let on = match &self.upper {
            Some(upper) => self.inner.seek_before(upper)?,
            None => self.inner.seek_to_last()?,
        };
        self.backward(on)
    }

    /// Moves to the first key at or above `user_key`.
    ///
    /// # Errors
    /// As [`Self::first`].
    pub fn seek_ge(&mut self, user_key: &[u8]) -> Result<bool> {
        self.leave();
        if self.above_upper(user_key) {
            return Ok(false);
        }
        if self.below_lower(user_key) {
            return self.first();
        }
        let on = self.inner.seek(user_key, SEQNO_MAX)?;
        self.forward(on, false)
    }

    /// Moves to the last key below `user_key`.
    ///
    /// # Errors
    /// As [`Self::first`].
    pub fn seek_lt(&mut self, user_key: &[u8]) -> Result<bool> {
        self.leave();
        if self.lower.as_deref().is_some_and(|lower| user_key <= lower) {
            return Ok(false);
        }
        if self.above_upper(user_key) {
            return self.last();
        }
        let on = self.inner.seek_before(user_key)?;
        self.backward(on)
    }

    /// Moves to the next key. Call it only when positioned.
    ///
    /// # Errors
    /// As [`Self::first`].
    ///
    /// # Panics
    /// If not positioned.
    // `Iterator::next` cannot replace this: an iterator also moves backwards, and lends its entry.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<bool> {
        if self.rows_ahead() {
            self.next_unchecked();
            return Ok(true);
        }
        self.restore_key();
        let position = std::mem::replace(&mut self.position, Position::Nowhere);
        match position {
            Position::Nowhere => panic!("next on a cursor that stands nowhere"),
            Position::Inner => {
                self.skip.clear();
                self.skip.extend_from_slice(self.inner.key().user_key);
                let on = self.inner.next_past_versions()?;
                self.forward(on, true)
            }
            Position::Saved => {
                self.skip.clear();
                self.skip.extend_from_slice(self.saved.user_key());
                let on = self.seek_past_skip()?;
                self.forward(on, false)
            }
        }
    }

    /// Moves to the previous key. Call it only when positioned.
    ///
    /// # Errors
    /// As [`Self::first`].
    ///
    /// # Panics
    /// If not positioned.
    pub fn prev(&mut self) -> Result<bool> {
        self.restore_key();
        let position = self.position;
        self.leave();
        match position {
            Position::Nowhere => panic!("prev on a cursor that stands nowhere"),
            Position::Inner => {
                self.skip.clear();
                self.skip.extend_from_slice(self.inner.key().user_key);
                let on = self.inner.seek_before(&self.skip)?;
                self.backward(on)
            }
            Position::Saved => self.backward(self.inner.valid()),
        }
    }

    /// Whether [`Self::next_unchecked`] may be called.
    #[inline]
    pub fn rows_ahead(&mut self) -> bool {
        self.known_rows_ahead > 0 || (self.position == Position::Inner && self.look_ahead())
    }

    /// Moves to the next key. Call it only after [`Self::rows_ahead`] has returned `true`.
    #[inline]
    pub fn next_unchecked(&mut self) {
        self.known_rows_ahead -= 1;
        self.key_is_stale = false;
        self.inner.next_unchecked();
    }

    /// Number of rows ahead that the iterator has found and not passed yet: this many calls of
    /// [`Self::next_without_key`] may follow.
    #[inline]
    pub fn known_ahead(&self) -> u32 {
        self.known_rows_ahead
    }

    /// Moves to the next key, and returns kind and value of its entry. Call it only after
    /// [`Self::rows_ahead`] has returned `true`. It saves the time to assemble the key, which is
    /// not available until [`Self::restore_key`] or another move.
    #[inline]
    pub fn next_without_key(&mut self) -> (Kind, Value<'_>) {
        self.known_rows_ahead -= 1;
        self.key_is_stale = true;
        self.inner.next_without_key()
    }

    /// Makes the key available again after [`Self::next_without_key`]; the iterator does not move.
    pub fn restore_key(&mut self) {
        if std::mem::take(&mut self.key_is_stale) {
            self.inner.restore_key();
        }
    }

    /// Moves forward by up to `most` rows at once and reads only the last of them. Returns the
    /// number of rows; without rows ahead that is 0, and the iterator does not move.
    pub fn pass_rows(&mut self, most: u64) -> u32 {
        if most == 0 || !self.rows_ahead() {
            return 0;
        }
        let rows = self
            .known_rows_ahead
            .min(u32::try_from(most).unwrap_or(u32::MAX));
        self.known_rows_ahead -= rows;
        self.key_is_stale = false;
        self.inner.skip_unchecked(rows);
        rows
    }

    /// As [`InternalIterator::peek`], but shows only keys below the upper bound.
    pub fn peek(&self, count: usize, show: &mut dyn FnMut(&[u8])) {
        if self.position == Position::Inner {
            self.inner.peek(count, &mut |user_key| {
                if !self.above_upper(user_key) {
                    show(user_key);
                }
            });
        }
    }

    fn look_ahead(&mut self) -> bool {
        if let Some(pause) = self.pause.checked_sub(1) {
            self.pause = pause;
            return false;
        }
        let rows = self
            .inner
            .rows_ahead(self.upper.as_deref(), self.read_at.snapshot);
        if rows < AHEAD_MIN {
            self.pause = self.pause_next;
            self.pause_next = (self.pause_next * 2).min(PAUSE_MAX);
            return false;
        }
        self.pause_next = PAUSE_MIN;
        self.known_rows_ahead = rows;
        true
    }

    fn below_lower(&self, user_key: &[u8]) -> bool {
        self.lower.as_deref().is_some_and(|lower| user_key < lower)
    }

    fn above_upper(&self, user_key: &[u8]) -> bool {
        self.upper.as_deref().is_some_and(|upper| user_key >= upper)
    }

    /// Moves the inner iterator past all versions of the user key in `skip`: to the first entry
    /// with a greater user key.
    fn seek_past_skip(&mut self) -> Result<bool> {
        self.skip.push(0);
        let on = self.inner.seek(&self.skip, SEQNO_MAX);
        self.skip.pop();
        on
    }

    /// Counts the current entry of the inner iterator as skipped, and at every 1024th one reports
    /// tombstones and calls the interrupt.
    fn count_skip(&mut self) -> Result<()> {
        self.skipped += 1;
        read_meter::count_passed_over();
        self.until_check -= 1;
        if self.until_check == 0 {
            self.until_check = SKIPS_BETWEEN_CHECKS;
            self.check()?;
        }
        Ok(())
    }

    #[cold]
    fn check(&mut self) -> Result<()> {
        if let Some(tombstone_reports) = &self.tombstone_reports
            && self.skipped - self.skipped_before >= SKIPS_BETWEEN_CHECKS
            && self.inner.valid()
        {
            let key = self.inner.key().user_key.to_vec();
            let mut range = KeyRange {
                smallest: key.clone(),
                largest: key.clone(),
            };
            let last = std::mem::replace(&mut self.reported, key);
            if !last.is_empty() {
                // Backwards, the last report was made at a larger key.
                range.extend(&KeyRange {
                    smallest: last.clone(),
                    largest: last,
                });
            }
            tombstone_reports.report(range);
        }
        if self.interrupt.as_ref().is_some_and(|interrupt| interrupt()) {
            return Err(Error::new(ErrorKind::Interrupted, "while reading a range"));
        }
        Ok(())
    }

    /// Moves forwards to the first visible put at or after the inner iterator's entry. `on` says
    /// whether the inner iterator stands on an entry. If `skipping`, skips the entries of the user
    /// key in `skip`. Returns whether there is such a put.
    fn forward(&mut self, mut on: bool, mut skipping: bool) -> Result<bool> {
        self.skipped_before = self.skipped;
        self.reported.clear();
        // Steps since `skip` was set.
        let mut steps = 0;
        while on {
            let key = self.inner.key();
            if self.above_upper(key.user_key) {
                break;
            }
            let same = (skipping || steps > 0) && key.user_key == self.skip;
            if same && skipping {
                steps += 1;
                self.count_skip()?;
                on = if steps < SKIPS_BEFORE_SEEK {
                    self.inner.next_past_versions()?
                } else {
                    self.seek_past_skip()?
                };
                continue;
            }
            check_kind(key.kind)?;
            let visible = self.read_at.sees(key.seqno);
            if visible && key.kind.is_put() {
                self.position = Position::Inner;
                return Ok(true);
            }
            if !same {
                self.skip.clear();
                self.skip.extend_from_slice(key.user_key);
                steps = 0;
            }
            skipping = visible;
            self.tombstones += u64::from(visible);
            steps = if visible { 0 } else { steps + 1 };
            let bound = self.read_at.past_invisible(key.seqno);
            self.count_skip()?;
            on = if visible {
                self.inner.next_past_versions()?
            } else if steps < SKIPS_BEFORE_SEEK {
                self.inner.next()?
            } else {
                steps = 1;
                self.inner.seek(&self.skip, bound)?
            };
        }
        Ok(false)
    }

    /// Moves backwards, from the inner iterator's entry on, to the next key whose newest visible
    /// version is a put. `on` says whether the inner iterator stands on an entry; that must be the
    /// oldest version of its user key. Returns whether there is such a key.
    fn backward(&mut self, mut on: bool) -> Result<bool> {
        self.skipped_before = self.skipped;
        self.reported.clear();
        while on {
            let user_key = self.inner.key().user_key;
            if self.below_lower(user_key) {
                break;
            }
            self.saved.start(user_key);
            let mut steps = 0;
            while on {
                let key = self.inner.key();
                if key.user_key != self.saved.user_key() {
                    break;
                }
                if steps == SKIPS_BEFORE_SEEK {
                    self.save_newest()?;
                    on = self.inner.seek_before(self.saved.user_key())?;
                    break;
                }
                steps += 1;
                check_kind(key.kind)?;
                if self.read_at.sees(key.seqno) {
                    if self.saved.is_set() {
                        self.count_skip()?;
                    }
                    self.saved.set(self.inner.key(), self.inner.value());
                } else {
                    self.count_skip()?;
                }
                on = self.inner.prev()?;
            }
            if self.saved.is_put() {
                self.position = Position::Saved;
                return Ok(true);
            }
            if self.saved.is_set() {
                self.tombstones += 1;
                self.count_skip()?;
            }
        }
        Ok(false)
    }

    /// Seeks the newest visible version of the user key in `saved`, and copies it there.
    fn save_newest(&mut self) -> Result<()> {
        let mut seek_at = self.read_at.newest_own();
        loop {
            self.count_skip()?;
            if !self.inner.seek(self.saved.user_key(), seek_at)? {
                return Ok(());
            }
            let key = self.inner.key();
            if key.user_key != self.saved.user_key() {
                return Ok(());
            }
            check_kind(key.kind)?;
            if self.read_at.sees(key.seqno) {
                self.saved.set(key, self.inner.value());
                return Ok(());
            }
            // Continue behind the invisible own writes, or behind the committed versions above the
            // snapshot.
            seek_at = self.read_at.past_invisible(key.seqno);
        }
    }
}

impl<I: InternalIterator> MvccIter<MergeIter<I>> {
    /// Raises the snapshot to `snapshot`, then moves as [`Self::next`] or, if `backward`, as
    /// [`Self::prev`]. `grown` tells which sources may have gained entries since the last move.
    /// Only these sources are sought again, unless the direction changes: then all are.
    ///
    /// # Errors
    /// As [`Self::first`].
    ///
    /// # Panics
    /// If not positioned.
    pub fn move_at(
        &mut self,
        snapshot: Seqno,
        backward: bool,
        grown: impl Fn(&I) -> bool,
    ) -> Result<bool> {
        self.restore_key();
        let position = self.position;
        self.leave();
        self.read_at.snapshot = snapshot;
        self.skip.clear();
        match position {
            Position::Nowhere => panic!("a move of a cursor that stands nowhere"),
            Position::Inner => self.skip.extend_from_slice(self.inner.key().user_key),
            Position::Saved => self.skip.extend_from_slice(self.saved.user_key()),
        }
        let turns = backward != (position == Position::Saved);
        if backward {
            let last = &self.skip;
            let on = match turns {
                true => self.inner.seek_before(last)?,
                false => self.inner.catch_up(true, |source| {
                    if grown(source) {
                        source.seek_before(last)?;
                    }
                    Ok(())
                })?,
            };
            return self.backward(on);
        }
        if turns {
            let on = self.seek_past_skip()?;
            return self.forward(on, false);
        }
        self.skip.push(0);
        let above = &self.skip;
        let on = self.inner.catch_up(false, |source| {
            if grown(source) {
                source.seek(above, SEQNO_MAX)?;
            }
            Ok(())
        });
        self.skip.pop();
        // Only the sources that have gained entries were sought again. If the source with the
        // current entry was not among them, it still stands on a version of the key that this move
        // leaves. So skip the remaining versions of that key.
        self.forward(on?, true)
    }
}

/// Copies a bound and reuses the memory of the old one.
fn copy_bound(to: &mut Option<Vec<u8>>, from: Option<&[u8]>) {
    match (to.as_mut(), from) {
        (Some(to), Some(from)) => {
            to.clear();
            to.extend_from_slice(from);
        }
        (_, from) => *to = from.map(<[u8]>::to_vec),
    }
}

fn check_kind(kind: Kind) -> Result<()> {
    match kind {
        Kind::Put | Kind::PutBlobs | Kind::Delete => Ok(()),
        Kind::RangeDelete => Err(Error::unsupported("range delete in a read")),
    }
}
