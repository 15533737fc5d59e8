//! Gap locks: ranges of an index in which other transactions must not insert.

use super::gap_ranges::GapRanges;
use super::lock_owner::LockOwner;
use super::lock_request::{LockRequest, WaitOutcome};
use super::observer::{ObserverCell, WaitReports, report_wait};
pub use super::own_gaps::GapGrant;
use super::own_gaps::{Joined, OwnGaps, index_of};
use crate::base::IndexId;
use crate::txn::number_hasher::NumberHasher;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasherDefault;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

/// Slots of the table. An index uses the slot of its id modulo this number. At most 64, since
/// [`LockOwner`] has one bit for each.
const SLOTS: usize = 64;

/// A report lists at most this many owners that block one insert.
const OWNERS_LISTED: usize = 64;

/// Gap locks of all transactions, by index.
///
/// A gap lock is a range of keys, `lower ≤ key < upper`. Gap locks never conflict with each other
/// or with locks of rows. Only an insert of a new key waits, until no other owner has locked a
/// range with this key. The keys need not exist, so no lock has to be moved or inherited when a row
/// comes or goes.
///
/// An insert in a slot without gap locks pays one load. **No insert is overlooked**: a scan locks
/// its range, and then looks at the keys that other transactions have written and not committed; an
/// insert first writes its key, and then looks for gap locks. Both have a sequentially consistent
/// fence in between, so one of the two sees the other. If the insert sees the range, it removes its
/// key from its write set again, and waits.
///
/// Where the host has fixed the commit order of two transactions, an insert of the one does not
/// wait for gap locks of the other ([`ObserverCell::fixed_order`]).
///
/// Lock order: graph → an owner's `gaps` → a slot's `indexes` → an owner's host. The owner's thread
/// looks at its own ranges before it takes the mutex of the slot, for which all sessions that scan
/// the same index compete.
///
/// Rejected: locking the entry at the end of a gap, as InnoDB does. Keys that are inserted or
/// removed would have to inherit locks, and the memtable has no place for them.
pub(super) struct GapLockTable {
    slots: Box<[GapSlot]>,
    observer: Arc<ObserverCell>,
}

/// One slot. Aligned to a cache line, so that a change of one slot does not slow down readers of
/// another.
#[derive(Default)]
#[repr(align(64))]
struct GapSlot {
    /// Number of owners with gap locks in this slot, which is read without the lock of `indexes`.
    owners: AtomicUsize,
    indexes: Mutex<HashMap<IndexId, IndexGaps, BuildHasherDefault<NumberHasher>>>,
}

/// The gap locks of one index.
#[derive(Default)]
struct IndexGaps {
    /// The locked ranges of keys of all owners.
    ranges: GapRanges,
    /// Inserts that wait, by key.
    waiters: BTreeMap<Arc<[u8]>, Vec<Arc<LockRequest>>>,
}

impl IndexGaps {
    fn is_empty(&self) -> bool {
        self.ranges.is_empty() && self.waiters.is_empty()
    }

    /// Calls `f` with each owner whose gap locks an insert of `key` by `owner` has to wait for,
    /// until `f` returns true. Returns whether it did.
    fn any_blocker<'a>(
        &'a self,
        owner: &Arc<LockOwner>,
        key: &[u8],
        observer: &ObserverCell,
        mut f: impl FnMut(&'a Arc<LockOwner>) -> bool,
    ) -> bool {
        let mut fixed = None;
        self.ranges.any_with(key, |other| {
            let mut is_fixed = || fixed.get_or_insert_with(|| observer.fixed_order(owner))(other);
            !Arc::ptr_eq(other, owner) && !is_fixed() && f(other)
        })
    }

    /// The owners whose gap locks an insert of `key` by `owner` has to wait for, at most `limit`.
    fn blockers(
        &self,
        owner: &Arc<LockOwner>,
        key: &[u8],
        observer: &ObserverCell,
        limit: usize,
    ) -> Vec<&Arc<LockOwner>> {
        let mut blockers = Vec::new();
        self.any_blocker(owner, key, observer, |other| {
            blockers.push(other);
            blockers.len() == limit
        });
        blockers
    }

    fn is_locked_against(
        &self,
        owner: &Arc<LockOwner>,
        key: &[u8],
        observer: &ObserverCell,
    ) -> bool {
        self.any_blocker(owner, key, observer, |_| true)
    }

    /// Reports to the host that the inserts which wait in the range now wait for `owner`, too, if
    /// it wants to hear of it.
    fn report_waiters(
        &self,
        owner: &Arc<LockOwner>,
        lower: &[u8],
        upper: &[u8],
        observer: &ObserverCell,
    ) {
        if self.waiters.is_empty() {
            return;
        }
        let Some(host) = observer.get() else {
            return;
        };
        let blocking = owner.host();
        let within = (Bound::Included(lower), Bound::Excluded(upper));
        for waiter in self.waiters.range::<[u8], _>(within).flat_map(|(_, w)| w) {
            let other = &waiter.owner;
            if waiter.reports != WaitReports::None
                && !Arc::ptr_eq(other, owner)
                && !observer.fixed_order(other)(owner)
            {
                report_wait(&*host, waiter, blocking);
            }
        }
    }

    /// Locks the range from `lower` on for `owner`, whose ranges are `own`, together with the
    /// ranges that it is joined with.
    fn lock(&mut self, owner: &Arc<LockOwner>, own: &mut OwnGaps, lower: &[u8], joined: Joined) {
        for start in &joined.swallowed {
            self.ranges.remove(owner, start);
            own.ranges.remove(start);
        }
        match joined.continued {
            Some(start) => {
                self.ranges.set_upper(owner, &start, &joined.upper);
                own.ranges.insert(start, joined.upper);
            }
            None => {
                self.ranges.insert(owner, lower, &joined.upper);
                own.ranges.insert(lower.into(), joined.upper);
            }
        }
    }

    /// Removes the keys of the range from the ranges of `owner`, which are `own`.
    fn unlock(&mut self, owner: &Arc<LockOwner>, own: &mut OwnGaps, lower: &[u8], upper: &[u8]) {
        for (start, end) in own.overlapping(lower, upper) {
            if start[..] < *lower {
                self.ranges.set_upper(owner, &start, lower);
                own.ranges.insert(start, lower.to_vec());
            } else {
                self.ranges.remove(owner, &start);
                own.ranges.remove(&start);
            }
            if *upper < end[..] {
                self.ranges.insert(owner, upper, &end);
                own.ranges.insert(upper.into(), end);
            }
        }
    }

    /// Ends the waits of inserts in the range that no other owner blocks.
    fn grant(
        &mut self,
        lower: &[u8],
        upper: &[u8],
        observer: &ObserverCell,
        woken: &mut Vec<Arc<LockRequest>>,
    ) {
        if lower >= upper || self.waiters.is_empty() {
            return;
        }
        let mut waiters = std::mem::take(&mut self.waiters);
        let mut decided = Vec::new();
        let within = (Bound::Included(lower), Bound::Excluded(upper));
        for (key, waiting) in waiters.range_mut::<[u8], _>(within) {
            waiting.retain(|waiter| {
                let stays = self.is_locked_against(&waiter.owner, key, observer);
                if !stays {
                    waiter.decide(WaitOutcome::Granted);
                    woken.push(Arc::clone(waiter));
                }
                stays
            });
            if waiting.is_empty() {
                decided.push(Arc::clone(key));
            }
        }
        for key in &decided {
            waiters.remove(key);
        }
        self.waiters = waiters;
    }
}

impl GapLockTable {
    pub(super) fn new(observer: Arc<ObserverCell>) -> Self {
        Self {
            slots: (0..SLOTS).map(|_| GapSlot::default()).collect(),
            observer,
        }
    }

    fn slot_number(index: IndexId) -> usize {
        index as usize % SLOTS
    }

    fn slot(&self, index: IndexId) -> &GapSlot {
        &self.slots[Self::slot_number(index)]
    }

    /// Locks the range from `lower` to below `upper`, which lies in one index, and reports that
    /// inserts of others which wait in the range now wait for `owner`, too.
    pub(super) fn lock(&self, owner: &Arc<LockOwner>, lower: &[u8], upper: &[u8]) -> GapGrant {
        if lower >= upper {
            return GapGrant::Before;
        }
        let index = index_of(lower);
        let slot = self.slot(index);
        let mut own = owner.gaps.lock();
        let mut grant = GapGrant::Before;
        if let Some((start, end)) = own.continued_only(lower, upper) {
            // The usual case: a scan goes on where it is.
            let mut indexes = slot.indexes.lock();
            let gaps = indexes.entry(index).or_default();
            gaps.ranges.set_upper(owner, start, upper);
            gaps.report_waiters(owner, lower, upper, &self.observer);
            drop(indexes);
            end.clear();
            end.extend_from_slice(upper);
            grant = GapGrant::Newly;
        } else if !own.has_all(lower, upper) {
            let joined = own.joined(lower, upper);
            grant = joined.grant;
            let bit = 1 << Self::slot_number(index);
            if own.slots & bit == 0 {
                own.slots |= bit;
                slot.owners.fetch_add(1, Ordering::SeqCst);
            }
            let mut indexes = slot.indexes.lock();
            let gaps = indexes.entry(index).or_default();
            gaps.lock(owner, &mut own, lower, joined);
            gaps.report_waiters(owner, lower, upper, &self.observer);
        }
        drop(own);
        // The lock must be visible before the caller looks at the uncommitted keys of other owners.
        fence(Ordering::SeqCst);
        grant
    }

    /// Gives back a part of a range. The grant of the range must have been [`GapGrant::Newly`];
    /// otherwise this would also release what the owner had locked before.
    pub(super) fn unlock(&self, owner: &Arc<LockOwner>, lower: &[u8], upper: &[u8]) {
        if lower >= upper {
            return;
        }
        let mut woken = Vec::new();
        let index = index_of(lower);
        let mut own = owner.gaps.lock();
        let mut indexes = self.slot(index).indexes.lock();
        if let Some(gaps) = indexes.get_mut(&index) {
            gaps.unlock(owner, &mut own, lower, upper);
            gaps.grant(lower, upper, &self.observer, &mut woken);
            if gaps.is_empty() {
                indexes.remove(&index);
            }
        }
        drop(indexes);
        drop(own);
        woken.iter().for_each(|waiter| waiter.notify());
    }

    /// Releases all gap locks of `owner`, and wakes inserts that waited for them.
    pub(super) fn release_all(&self, owner: &Arc<LockOwner>) {
        let own = std::mem::take(&mut *owner.gaps.lock());
        if own.slots == 0 {
            return;
        }
        let mut woken = Vec::new();
        for (lower, upper) in &own.ranges {
            let index = index_of(lower);
            let mut indexes = self.slot(index).indexes.lock();
            if let Some(gaps) = indexes.get_mut(&index) {
                gaps.ranges.remove(owner, lower);
                gaps.grant(lower, upper, &self.observer, &mut woken);
                if gaps.is_empty() {
                    indexes.remove(&index);
                }
            }
        }
        for (number, slot) in self.slots.iter().enumerate() {
            if own.slots & 1 << number != 0 {
                slot.owners.fetch_sub(1, Ordering::Release);
            }
        }
        woken.iter().for_each(|waiter| waiter.notify());
    }

    /// Whether an insert of `key` by `owner` has to wait. To be called before the key is written,
    /// so that an insert that waits has left no key that blocks others; and again after the write,
    /// because a scan may have locked the gap in between.
    #[inline]
    pub(super) fn is_locked_against(&self, owner: &Arc<LockOwner>, key: &[u8]) -> bool {
        let index = index_of(key);
        let slot = self.slot(index);
        // Order this check behind the write of the key.
        fence(Ordering::SeqCst);
        if slot.owners.load(Ordering::Acquire) == 0 {
            return false;
        }
        let indexes = slot.indexes.lock();
        let gaps = indexes.get(&index);
        gaps.is_some_and(|gaps| gaps.is_locked_against(owner, key, &self.observer))
    }

    /// Whether any owner may have locked a range of `index`. If not, a scan that locks a range
    /// later finds all new keys that the caller listed before this call.
    pub(super) fn may_lock(&self, index: IndexId) -> bool {
        fence(Ordering::SeqCst);
        self.slot(index).owners.load(Ordering::Acquire) != 0
    }

    /// If another owner has locked a range with `key`, adds the insert of `key` by `owner` to the
    /// inserts that wait, and returns its request. The caller must hold the graph lock.
    pub(super) fn enqueue(&self, owner: &Arc<LockOwner>, key: &[u8]) -> Option<Arc<LockRequest>> {
        let index = index_of(key);
        let mut indexes = self.slot(index).indexes.lock();
        let gaps = indexes.get_mut(&index)?;
        if !gaps.is_locked_against(owner, key, &self.observer) {
            return None;
        }
        let reports = self.observer.wanted_reports(owner);
        let waiter = LockRequest::for_gap(owner, key, reports);
        let waiting = gaps.waiters.entry(Arc::clone(&waiter.key)).or_default();
        waiting.push(Arc::clone(&waiter));
        Some(waiter)
    }

    /// Gives `waiter` the outcome `outcome`, if it still waits: removes it from the inserts that
    /// wait and wakes it. Returns the outcome that `waiter` has now. The caller must hold the graph
    /// lock.
    pub(super) fn decide(&self, waiter: &Arc<LockRequest>, outcome: WaitOutcome) -> WaitOutcome {
        let index = index_of(&waiter.key);
        {
            let mut indexes = self.slot(index).indexes.lock();
            let decided = waiter.outcome();
            if decided != WaitOutcome::Waiting {
                return decided;
            }
            let gaps = indexes.get_mut(&index).expect("it has a waiter");
            let waiting = gaps.waiters.get_mut(&waiter.key).expect("it waits");
            waiting.retain(|other| !Arc::ptr_eq(other, waiter));
            if waiting.is_empty() {
                gaps.waiters.remove(&waiter.key);
            }
            waiter.decide(outcome);
        }
        waiter.notify();
        outcome
    }

    /// The owners that `waiter` waits for; none if it does not wait any more.
    pub(super) fn blockers(&self, waiter: &Arc<LockRequest>) -> Vec<Arc<LockOwner>> {
        let index = index_of(&waiter.key);
        let indexes = self.slot(index).indexes.lock();
        if waiter.outcome() != WaitOutcome::Waiting {
            return Vec::new();
        }
        let blockers = indexes.get(&index).map(|gaps| {
            let blockers = gaps.blockers(&waiter.owner, &waiter.key, &self.observer, usize::MAX);
            blockers.into_iter().cloned().collect()
        });
        blockers.unwrap_or_default()
    }

    /// Calls `f` with the owners that `waiter` waits for and of which the host wants to hear; not
    /// at all if `waiter` does not wait any more. None of these owners releases its gap locks while
    /// `f` runs.
    pub(super) fn for_each_reported(
        &self,
        waiter: &Arc<LockRequest>,
        mut f: impl FnMut(&Arc<LockOwner>),
    ) {
        let limit = match waiter.reports {
            WaitReports::None => return,
            WaitReports::Nearest => OWNERS_LISTED,
            WaitReports::All => usize::MAX,
        };
        let index = index_of(&waiter.key);
        let indexes = self.slot(index).indexes.lock();
        if waiter.outcome() == WaitOutcome::Waiting
            && let Some(gaps) = indexes.get(&index)
        {
            let mut left = limit;
            gaps.any_blocker(&waiter.owner, &waiter.key, &self.observer, |owner| {
                f(owner);
                left -= 1;
                left == 0
            });
        }
    }

    /// Calls `held` with the bounds and the owner of each locked range of keys.
    pub(super) fn for_each_range(&self, mut held: impl FnMut(&[u8], &[u8], &Arc<LockOwner>)) {
        for slot in &self.slots {
            for gaps in slot.indexes.lock().values() {
                gaps.ranges.for_each(&mut held);
            }
        }
    }

    /// Calls `waits` with each insert that waits, and with the ids of at most [`OWNERS_LISTED`]
    /// owners that block it.
    pub(super) fn for_each_wait(&self, mut waits: impl FnMut(&Arc<LockRequest>, Vec<u64>)) {
        for slot in &self.slots {
            for gaps in slot.indexes.lock().values() {
                for waiter in gaps.waiters.values().flatten() {
                    let (owner, key) = (&waiter.owner, &waiter.key);
                    let blockers = gaps.blockers(owner, key, &self.observer, OWNERS_LISTED);
                    waits(waiter, blockers.iter().map(|owner| owner.id()).collect());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
