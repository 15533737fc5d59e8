//! The steps of a locking scan between two entries: the scan waits for keys that other transactions
//! have inserted and not committed, and from REPEATABLE READ on it locks the gaps, so that no
//! transaction inserts into a gap that the scan has read.
//!
//! The rules are InnoDB's (`row_search_mvcc`):
//! - A scan locks each entry and the gap before it, the first entry beyond its range included.
//! - A scan of one prefix locks only the gap before the entry that ends it.
//! - At the end of the index a scan locks the gap there. A scan that begins downward also locks the
//!   gap above its first entry.
//! - A primary key that is sought whole, by `=` or as the first of `>=`, and found, has no gap
//!   locked before it. If it is not found, its gap is locked.
//! - Below REPEATABLE READ, and under a key prefix lock, the same rules hold without gaps.
//!
//! For each gap: lock it, and search it for uncommitted keys of other transactions. If there is
//! such a key, it is the next entry: lock the gap only up to this key, wait for the lock of its
//! row, and search again. Then check that no transaction has committed a key into the gap since the
//! scan read it.

use super::vacant_range::VacantRange;
use super::{Cursor, KeyImage, Resume, copy};
use crate::base::{IndexId, Result};
use crate::read::{Freshness, range_changed_since};
use crate::table::gap_bounds::{Neighbours, after, index_bounds};
use crate::txn::{GapGrant, LockMode, Nearest, Transaction};

/// The gaps that a locking scan has passed.
pub(super) struct GapScan {
    /// The end of the keys that the scan has passed and locked. A scan upward has passed all keys
    /// from its begin to below `edge`; a scan downward all keys from its begin down to `edge`,
    /// inclusive.
    edge: Vec<u8>,
    /// Whether `edge` has a value. It gets one when the scan passes its first entry, or finds the
    /// lower end of its first gap.
    begun: bool,
    forward: bool,
    /// The open scan is a locking one.
    on: bool,
    /// The range of keys that the last step has locked and that the transaction had not locked
    /// before: the gap, and the entry that the step reads. If that entry's row cannot be locked,
    /// the range is released, too, since InnoDB locks both or neither.
    newly: NewlyLocked,
    room: StepRoom,
    /// Looks for the entries beside a key.
    neighbours: Neighbours,
    vacant: VacantRange,
    /// The prefix of all keys that [`Cursor::lock_key_prefix`] has locked; `None` if the scan has
    /// no key prefix lock.
    locked_prefix: Option<Vec<u8>>,
}

/// A range of keys that a step has locked, and that the transaction had not locked before.
#[derive(Default)]
struct NewlyLocked {
    is_set: bool,
    lower: Vec<u8>,
    upper: Vec<u8>,
}

impl NewlyLocked {
    fn set(&mut self, lower: &[u8], upper: &[u8]) {
        copy(&mut self.lower, lower);
        copy(&mut self.upper, upper);
        self.is_set = true;
    }
}

/// Buffers for a step of an upward scan, kept so that a step allocates nothing.
#[derive(Default)]
struct StepRoom {
    /// Where the step's gap begins.
    lower: Vec<u8>,
    /// The entry that ends the gap, or the end of the index.
    upper: Vec<u8>,
    /// The end of the range to lock.
    end: Vec<u8>,
}

/// The next step of a scan that has passed a gap.
pub(super) enum GapStep {
    /// The scan reads the entry that it stands on.
    Read,
    /// The scan has moved to another position, because other transactions had uncommitted keys in
    /// the gap before the entry on which it stood. The value says whether the scan stands on an
    /// entry at the new position.
    Moved(bool),
    /// The scan ends.
    End,
}

impl GapScan {
    pub(super) fn new() -> Self {
        Self {
            edge: Vec::new(),
            begun: false,
            forward: true,
            on: false,
            newly: NewlyLocked::default(),
            room: StepRoom::default(),
            neighbours: Neighbours::new(),
            vacant: VacantRange::default(),
            locked_prefix: None,
        }
    }

    /// Forgets the scan, and lets go of its sources.
    pub(super) fn close(&mut self) {
        self.begun = false;
        self.on = false;
        self.locked_prefix = None;
        self.vacant.forget();
        self.neighbours.close();
    }

    /// As [`Self::close`], and frees the memory of the sources.
    pub(super) fn park(&mut self) {
        self.close();
        self.neighbours.park();
    }

    pub(super) fn turn(&mut self, on: bool) {
        self.on = on;
    }

    pub(super) fn is_on(&self) -> bool {
        self.on
    }

    /// A new scan begins.
    pub(super) fn restart(&mut self) {
        self.begun = false;
        self.vacant.forget();
    }

    /// Sets `edge`, the end of the keys that the locking scan has passed, so that the scan goes on
    /// behind the entry `last`, upward or downward as `forward` says.
    pub(super) fn go_on(&mut self, last: &[u8], forward: bool) {
        self.set_edge(last, forward);
        if forward {
            self.edge.push(0);
        }
    }

    fn set_edge(&mut self, edge: &[u8], forward: bool) {
        copy(&mut self.edge, edge);
        self.begun = true;
        self.forward = forward;
    }
}

impl Cursor {
    /// Whether the scan locks gaps.
    pub(super) fn locks_gaps(&self, txn: &Transaction) -> bool {
        self.fetch.is_locking() && txn.locks_gaps() && self.gaps.locked_prefix.is_none()
    }

    /// Takes one exclusive lock that stands for all keys that begin with `key`, until the
    /// transaction ends. The scan then reads these keys only, and locks no gaps, since a writer
    /// that locks the same prefix has to wait for this lock. The scan still waits for locked rows,
    /// and for keys that others have inserted and not committed.
    ///
    /// In the lock table, it is a lock of the encoded `key`. Entries have more columns, so it is
    /// never the lock of an entry. [`Cursor::reset`] ends its effect on the cursor.
    ///
    /// # Errors
    /// Those of lock waits. `InvalidArgument` if the key image is not one of the index.
    pub fn lock_key_prefix(&mut self, txn: &Transaction, key: KeyImage<'_>) -> Result<()> {
        let mut prefix = self.gaps.locked_prefix.take().unwrap_or_default();
        prefix.clear();
        self.fetch.index().seek_prefix(key.image, &mut prefix)?;
        txn.lock(&prefix, LockMode::Exclusive, None)?;
        self.gaps.locked_prefix = Some(prefix);
        Ok(())
    }

    /// Whether `key` is in the range of the scan: it begins with the sought prefix if the scan
    /// stays within that, and with the locked key prefix if there is one.
    fn reads(&self, key: &[u8], within_prefix: bool) -> bool {
        (!within_prefix || key.starts_with(&self.prefix))
            && self
                .gaps
                .locked_prefix
                .as_deref()
                .is_none_or(|prefix| key.starts_with(prefix))
    }

    /// Locks a range, if the scan locks gaps.
    fn lock_gap(&self, txn: &Transaction, lower: &[u8], upper: &[u8]) -> GapGrant {
        match self.locks_gaps(txn) {
            true => txn.lock_gap(lower, upper),
            false => GapGrant::Before,
        }
    }

    fn index_id(&self) -> IndexId {
        self.fetch.index().id()
    }

    /// Locks and checks the gap between the last entry and the next one. If `found`, the scan
    /// stands on the next entry; otherwise there is none, and the gap reaches to the end of the
    /// index in the scan's direction.
    pub(super) fn pass_gap(
        &mut self,
        txn: &Transaction,
        found: bool,
        forward: bool,
        within_prefix: bool,
    ) -> Result<GapStep> {
        self.gaps.newly.is_set = false;
        if self.gaps.begun && self.gaps.forward != forward {
            let last = self.fetch.last_entry();
            self.gaps.go_on(last, forward);
        }
        match forward {
            true => self.pass_gap_upward(txn, found, within_prefix),
            false => self.pass_gap_downward(txn, found, within_prefix),
        }
    }

    /// Whether an upward scan may read the entry that it stands on without a look at the gap before
    /// it: the scan locks no gaps, it need not wait for uncommitted inserts of others, and the
    /// entry is in its range.
    fn passes_freely(&self, txn: &Transaction, within_prefix: bool) -> bool {
        let entry = self.scan.entries().user_key();
        !self.locks_gaps(txn)
            && (self.passes_uncommitted() || !txn.others_insert(self.index_id()))
            && self.reads(entry, within_prefix)
            && (self.end.is_empty() || entry < &self.end[..])
    }

    /// Whether the scan passes over rows that others have inserted and not committed. A
    /// semi-consistent read does, since it shows rows as they were last committed.
    fn passes_uncommitted(&self) -> bool {
        self.fetch.on_clustered() && self.fetch.lock().tries_semi_consistent()
    }

    fn pass_gap_upward(
        &mut self,
        txn: &Transaction,
        found: bool,
        within_prefix: bool,
    ) -> Result<GapStep> {
        let mut room = std::mem::take(&mut self.gaps.room);
        let step = self.pass_gap_upward_in(&mut room, txn, found, within_prefix);
        self.gaps.room = room;
        step
    }

    fn pass_gap_upward_in(
        &mut self,
        room: &mut StepRoom,
        txn: &Transaction,
        found: bool,
        within_prefix: bool,
    ) -> Result<GapStep> {
        let index = self.index_id();
        if found && self.passes_freely(txn, within_prefix) {
            // The usual case below REPEATABLE READ.
            let entry = self.scan.entries().user_key();
            self.gaps.go_on(entry, true);
            return Ok(GapStep::Read);
        }
        let StepRoom { lower, upper, end } = room;
        match found {
            true => copy(upper, self.scan.entries().user_key()),
            false => *upper = index_bounds(index).1,
        }
        let begins = !self.gaps.begun;
        if begins {
            if self.skips_gap_before_key && found && upper == &self.prefix {
                self.gaps.go_on(&self.prefix, true);
                return Ok(GapStep::Read);
            }
            if self.locks_gaps(txn) {
                let neighbours = &mut self.gaps.neighbours;
                let lower = neighbours.gap_below(txn, index, &self.sought)?;
                self.gaps.set_edge(&lower, true);
            } else {
                self.gaps.set_edge(&self.sought, true);
            }
        }
        copy(lower, &self.gaps.edge);
        // If the scan has read no entry yet, the gap that it locks may begin below the key that it
        // seeks. Search for keys of others only from the sought key on, since the scan does not
        // read below it.
        let sought: Vec<u8>;
        let from = match self.at_start && *lower < self.sought {
            true => {
                sought = self.sought.clone();
                &sought[..]
            }
            false => &lower[..],
        };
        let (lower, upper) = (&lower[..], &upper[..]);
        let reads = found && self.reads(upper, within_prefix);
        if upper < lower && reads {
            // The scan has passed the gap before this entry already, has then waited for the
            // entry's lock, and has gone back to the entry. So the gap is locked and checked.
            return Ok(GapStep::Read);
        }
        copy(end, upper);
        if reads {
            end.push(0);
        }
        let grant = self.lock_gap(txn, lower, end);
        // An uncommitted key of another transaction between the last committed entry and the sought
        // key bounds the first gap, as a committed entry does.
        let bound: Vec<u8>;
        let mut lower = lower;
        if begins
            && lower < from
            && grant == GapGrant::Newly
            && let Some(key) = txn.key_of_others(index, lower, from, Nearest::Largest)?
        {
            self.gaps.go_on(&key, true);
            txn.unlock_gap(lower, &self.gaps.edge);
            bound = self.gaps.edge.clone();
            lower = &bound;
        }
        let of_other = match self.passes_uncommitted() {
            true => None,
            false => self.gaps.vacant.first_key(txn, index, from, upper)?,
        };
        if let Some(key) = of_other {
            // Keep the part of the new gap lock that lies below the other transaction's key, and
            // release the rest, from that key on. The insert of the key may not have looked for gap
            // locks yet, and must not wait for this scan, which is about to wait for the insert.
            if grant == GapGrant::Newly {
                txn.unlock_gap(&key, end);
                self.gaps.newly.set(lower, &key);
            }
            return match self.reads(&key, within_prefix) {
                true => self.await_key_of_other(txn, &key, true),
                false => Ok(GapStep::End),
            };
        }
        if self.is_changed(txn, from, upper) {
            let found = self.scan.resume(txn, Resume::From(from))?;
            let entry = found.then(|| self.scan.entries().user_key());
            if entry.unwrap_or(&index_bounds(index).1) != upper {
                return Ok(GapStep::Moved(found));
            }
        }
        if !reads {
            return Ok(GapStep::End);
        }
        if grant == GapGrant::Newly {
            self.gaps.newly.set(lower, end);
        }
        self.gaps.set_edge(end, true);
        if !self.end.is_empty() && upper >= &self.end[..] {
            return self.lock_beyond(txn, upper);
        }
        Ok(GapStep::Read)
    }

    fn pass_gap_downward(
        &mut self,
        txn: &Transaction,
        found: bool,
        within_prefix: bool,
    ) -> Result<GapStep> {
        let index = self.index_id();
        let (first, last) = index_bounds(index);
        let entry = found.then(|| self.scan.entries().user_key().to_vec());
        let above = entry.as_deref().map_or(first, after);
        let begins = !self.gaps.begun;
        let from = match (begins, self.sought.is_empty()) {
            (true, true) => last,
            (true, false) => self.sought.clone(),
            (false, _) => self.gaps.edge.clone(),
        };
        if above > from {
            // The scan has waited for this entry before and has gone back to it, so what lies above
            // the entry is locked already. Lock only the gap below it.
            return self.lock_gap_below(txn, entry.as_deref(), within_prefix);
        }
        // The upper end of the range to lock: the edge of the scan, or, for the first entry, the
        // next entry above the scan's begin.
        let upper = match begins && self.locks_gaps(txn) {
            true => self.gaps.neighbours.gap_above(txn, index, &from)?,
            false => from.clone(),
        };
        let grant = self.lock_gap(txn, &above, &upper);
        if grant == GapGrant::Newly
            && let Some(key) = txn.key_of_others(index, &from, &upper, Nearest::Smallest)?
        {
            txn.unlock_gap(&key, &upper);
        }
        let of_other = match self.passes_uncommitted() {
            true => None,
            false => self.gaps.vacant.last_key(txn, index, &above, &from)?,
        };
        if let Some(key) = of_other {
            if grant == GapGrant::Newly {
                txn.unlock_gap(&above, &after(&key));
            }
            self.gaps.set_edge(&from, false);
            return match self.reads(&key, within_prefix) {
                true => self.await_key_of_other(txn, &key, false),
                false => Ok(GapStep::End),
            };
        }
        if self.is_changed(txn, &above, &from) {
            let found = self.scan.resume(txn, Resume::Below(&from))?;
            let now = found.then(|| self.scan.entries().user_key());
            if now != entry.as_deref() {
                return Ok(GapStep::Moved(found));
            }
        }
        self.gaps.set_edge(&above, false);
        self.lock_gap_below(txn, entry.as_deref(), within_prefix)
    }

    /// Locks the gap before the entry of a scan downward. If another transaction has written an
    /// uncommitted key in the gap, that key is the next entry, for which the next step waits.
    fn lock_gap_below(
        &mut self,
        txn: &Transaction,
        entry: Option<&[u8]>,
        within_prefix: bool,
    ) -> Result<GapStep> {
        let index = self.index_id();
        let Some(entry) = entry else {
            return Ok(GapStep::End);
        };
        let reads = !within_prefix || entry.starts_with(&self.prefix);
        let end = if reads { after(entry) } else { entry.to_vec() };
        if !self.locks_gaps(txn) {
            self.gaps.set_edge(entry, false);
        }
        while self.locks_gaps(txn) {
            let lower = self.gaps.neighbours.gap_below(txn, index, entry)?;
            let grant = txn.lock_gap(&lower, &end);
            if grant == GapGrant::Newly && reads {
                self.gaps.newly.set(&lower, &end);
            }
            let of_other = self.gaps.vacant.last_key(txn, index, &lower, entry)?;
            if let (Some(key), GapGrant::Newly) = (&of_other, grant) {
                txn.unlock_gap(&lower, &after(key));
            }
            let edge = of_other.map_or(lower, |key| after(&key));
            self.gaps.set_edge(&edge, false);
            if self.gaps.neighbours.is_latest(txn)
                || self.gaps.neighbours.gap_below(txn, index, entry)? <= edge
            {
                break;
            }
        }
        Ok(match reads {
            true => GapStep::Read,
            false => GapStep::End,
        })
    }

    /// Gives back the gap that was locked with a row whose lock was not granted. The gap before an
    /// entry of a secondary index stays locked: InnoDB locks it with the entry, before the row.
    pub(super) fn give_back_gap(&mut self, txn: &Transaction) {
        let newly = &mut self.gaps.newly;
        if std::mem::take(&mut newly.is_set) && self.fetch.on_clustered() {
            txn.unlock_gap(&newly.lower, &newly.upper);
        }
    }

    /// Whether others may have committed keys from `lower` to below `upper` that the scan does not
    /// see.
    fn is_changed(&self, txn: &Transaction, lower: &[u8], upper: &[u8]) -> bool {
        if !self.locks_gaps(txn) {
            return false;
        }
        let point = self.scan.point();
        match txn.context().super_versions.freshness(point) {
            Freshness::Latest => false,
            Freshness::Replaced => true,
            Freshness::Newer(_) => {
                range_changed_since(&point.super_version, lower, upper, point.seqno)
            }
        }
    }

    /// Waits for the outcome of `key`, which another transaction has written and not committed, and
    /// then lets the scan look again. In a unique index it waits for the lock of the values that
    /// must be unique, otherwise for the lock of the row.
    fn await_key_of_other(
        &mut self,
        txn: &Transaction,
        key: &[u8],
        forward: bool,
    ) -> Result<GapStep> {
        let declared = self.fetch.unique_len(key)?.map(|len| &key[..len]);
        let entry = match declared {
            Some(declared) => self.fetch.lock().wait_for(txn, declared)?,
            None => None,
        };
        // Another transaction has inserted an entry here and not committed it. If the scan had to
        // wait for the lock of the entry's unique values, it looks again. If that lock was granted
        // at once, the other transaction has not locked the values (for example because it runs
        // without unique checks), so wait for the lock of its row instead.
        let (key_to_lock, lock) = match (declared, entry) {
            (Some(declared), None) => (declared.to_vec(), None),
            (Some(declared), Some(granted)) if granted.waited => (declared.to_vec(), Some(granted)),
            _ => {
                let row_key = self.fetch.row_key_of_entry(key)?;
                let lock = self.fetch.lock().wait_for(txn, &row_key)?;
                (row_key, lock)
            }
        };
        if lock.is_none() {
            // The cursor skips locked rows, so the scan passes the key.
            let edge = if forward { after(key) } else { key.to_vec() };
            self.gaps.set_edge(&edge, forward);
        }
        let edge = self.gaps.edge.clone();
        let found = match (forward, self.gaps.begun && !self.at_start || lock.is_none()) {
            (true, true) => self.scan.resume(txn, Resume::From(&edge))?,
            (false, true) => self.scan.resume(txn, Resume::Below(&edge))?,
            (_, false) => {
                let sought = Self::start(&self.sought, forward);
                self.scan.resume(txn, sought)?
            }
        };
        let stands = found && self.scan.entries().user_key() == key;
        if let (Some(declared), Some(granted)) = (declared, entry)
            && granted.newly
            && !granted.waited
        {
            match stands {
                true => self.fetch.lock_mut().will_meet(declared),
                false => txn.unlock(declared),
            }
        }
        if lock.is_some_and(|granted| granted.newly) {
            match stands {
                true => self.fetch.lock_mut().will_meet(&key_to_lock),
                false => txn.unlock(&key_to_lock),
            }
        }
        let waited = [entry, lock]
            .iter()
            .any(|lock| lock.is_some_and(|granted| granted.waited));
        if lock.is_some() && !waited && !stands && self.is_beyond(key, found, forward) {
            return self.pass_key_of_other(txn, key, &key_to_lock, forward);
        }
        Ok(GapStep::Moved(found))
    }

    /// Passes `key`, which another transaction has written in an optimistic table and has yet to
    /// validate. No transaction holds `key_to_lock` until that validation, so looking again would
    /// not make progress.
    ///
    /// The scan locks the gap at the key, which the validation then finds. The validation may have
    /// looked for gap locks before; if so, it holds the lock of the key until its commit is
    /// visible. So the scan asks for that lock again, and reads the key again after that.
    fn pass_key_of_other(
        &mut self,
        txn: &Transaction,
        key: &[u8],
        key_to_lock: &[u8],
        forward: bool,
    ) -> Result<GapStep> {
        let above = after(key);
        if self.locks_gaps(txn) {
            txn.lock_gap(key, &above);
            let again = self.fetch.lock().wait_for(txn, key_to_lock)?;
            let found = match forward {
                true => self.scan.resume(txn, Resume::From(key))?,
                false => self.scan.resume(txn, Resume::Below(&above))?,
            };
            let stands = found && self.scan.entries().user_key() == key;
            if again.is_some_and(|granted| granted.newly) {
                match stands {
                    true => self.fetch.lock_mut().will_meet(key_to_lock),
                    false => txn.unlock(key_to_lock),
                }
            }
            if stands || again.is_some_and(|granted| granted.waited) {
                return Ok(GapStep::Moved(found));
            }
        }
        let edge = if forward { above } else { key.to_vec() };
        self.gaps.set_edge(&edge, forward);
        let found = match forward {
            true => self.scan.resume(txn, Resume::From(&edge))?,
            false => self.scan.resume(txn, Resume::Below(&edge))?,
        };
        Ok(GapStep::Moved(found))
    }

    /// Whether the scan's position is beyond `key` in its direction, so that passing the key misses
    /// no entry. `found` says whether the scan stands on an entry.
    fn is_beyond(&self, key: &[u8], found: bool, forward: bool) -> bool {
        let entry = || self.scan.entries().user_key();
        !found
            || match forward {
                true => entry() > key,
                false => entry() < key,
            }
    }

    /// Locks the first entry beyond the range, as InnoDB does: its declared columns in a unique
    /// index, and its row. Then ends the scan. Where gaps are not locked, a scan of the clustered
    /// index releases the row's lock again, because the row is outside the range. A semi-consistent
    /// scan of the clustered index does not lock the row at all, so it does not wait for it either.
    fn lock_beyond(&mut self, txn: &Transaction, entry: &[u8]) -> Result<GapStep> {
        if self.passes_uncommitted() {
            return Ok(GapStep::End);
        }
        if let Some(len) = self.fetch.unique_len(entry)? {
            let locked = self.fetch.lock().wait_for(txn, &entry[..len])?;
            if locked.is_none() || self.fetch.locks_entries_only() {
                return Ok(GapStep::End);
            }
        }
        let row_key = self.fetch.row_key_of_entry(entry)?;
        let lock = self.fetch.lock().wait_for(txn, &row_key)?;
        let newly = lock.is_some_and(|granted| granted.newly);
        if newly && self.fetch.on_clustered() && !self.locks_gaps(txn) {
            txn.unlock(&row_key);
        }
        Ok(GapStep::End)
    }

    /// Locks the gap around the row key that was sought and not found. The caller must hold the
    /// lock of the key, so no other transaction inserts it meanwhile.
    pub(super) fn lock_gap_of_missing_row(&mut self, txn: &Transaction) -> Result<()> {
        let (index, key) = (self.index_id(), self.fetch.row_key());
        self.gaps.neighbours.lock_gap_around(txn, index, key, key)
    }
}
