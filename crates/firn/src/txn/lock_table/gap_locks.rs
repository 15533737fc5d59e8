//! Gap locks: ranges of an index in which other transactions must not insert.

use super::lock_owner::LockOwner;
use super::lock_request::{LockRequest, WaitOutcome};
use super::observer::{ObserverCell, report_wait};
use crate::base::IndexId;
use crate::base::key::index_id_of;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
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
/// wait for gap locks of the other ([`ObserverCell::is_order_fixed`]).
///
/// Lock order: graph → a slot's `indexes` → an owner's `gaps`, or its host.
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
    indexes: Mutex<HashMap<IndexId, IndexGaps>>,
}

/// The gap locks of one index.
#[derive(Default)]
struct IndexGaps {
    /// The locked ranges of keys, cut into pieces that do not overlap, by the lower bound of each
    /// piece. Where the ranges of two owners overlap, the piece belongs to both owners.
    segments: BTreeMap<Box<[u8]>, GapSegment>,
    /// Inserts that wait, by key.
    waiters: BTreeMap<Arc<[u8]>, Vec<Arc<LockRequest>>>,
}

/// Keys that the same owners have locked.
#[derive(Clone)]
struct GapSegment {
    upper: Vec<u8>,
    owners: Vec<Arc<LockOwner>>,
}

impl GapSegment {
    fn is_of(&self, owner: &Arc<LockOwner>) -> bool {
        self.owners.iter().any(|other| Arc::ptr_eq(other, owner))
    }

    fn others<'a>(&'a self, owner: &'a Arc<LockOwner>) -> impl Iterator<Item = &'a Arc<LockOwner>> {
        let others = self.owners.iter();
        others.filter(move |other| !Arc::ptr_eq(other, owner))
    }
}

impl IndexGaps {
    fn is_empty(&self) -> bool {
        self.segments.is_empty() && self.waiters.is_empty()
    }

    /// The segment with `key`.
    fn segment_at(&self, key: &[u8]) -> Option<&GapSegment> {
        let until = (Bound::Unbounded, Bound::Included(key));
        let (_, segment) = self.segments.range::<[u8], _>(until).next_back()?;
        (key < &segment.upper[..]).then_some(segment)
    }

    /// The owners whose gap locks an insert of `key` by `owner` has to wait for.
    fn blockers<'a>(
        &'a self,
        owner: &'a Arc<LockOwner>,
        key: &[u8],
        observer: &'a ObserverCell,
    ) -> impl Iterator<Item = &'a Arc<LockOwner>> {
        let segment = self.segment_at(key).into_iter();
        let others = segment.flat_map(move |segment| segment.others(owner));
        others.filter(move |other| !observer.is_order_fixed(owner, other))
    }

    fn is_locked_against(
        &self,
        owner: &Arc<LockOwner>,
        key: &[u8],
        observer: &ObserverCell,
    ) -> bool {
        self.blockers(owner, key, observer).next().is_some()
    }

    /// Reports to the host that the inserts which wait in the range now wait for `owner`, too.
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
            if !Arc::ptr_eq(other, owner) && !observer.is_order_fixed(other, owner) {
                report_wait(&*host, waiter, blocking);
            }
        }
    }

    /// Splits the range of keys in which `key` lies, if owners have locked it, so that one of its
    /// two parts begins at `key`. Both parts have the same owners.
    fn split(&mut self, key: &[u8]) {
        let below = (Bound::Unbounded, Bound::Excluded(key));
        let Some((_, left)) = self.segments.range_mut::<[u8], _>(below).next_back() else {
            return;
        };
        if key < &left.upper[..] {
            let right = left.clone();
            left.upper = key.to_vec();
            self.segments.insert(key.into(), right);
        }
    }

    /// Adds `owner` to the owners of all keys in the range.
    fn lock(&mut self, owner: &Arc<LockOwner>, lower: &[u8], upper: &[u8]) -> GapGrant {
        if let Some(grant) = self.extend(owner, lower, upper) {
            return grant;
        }
        if self.has_all(owner, lower, upper) {
            return GapGrant::Before;
        }
        self.split(lower);
        self.split(upper);
        let mut own_before = false;
        let mut holes = Vec::new();
        let mut end = lower.to_vec();
        let within = (Bound::Included(lower), Bound::Excluded(upper));
        for (start, segment) in self.segments.range_mut::<[u8], _>(within) {
            if end[..] < start[..] {
                holes.push((std::mem::take(&mut end), start.to_vec()));
            }
            end.clone_from(&segment.upper);
            match segment.is_of(owner) {
                true => own_before = true,
                false => segment.owners.push(Arc::clone(owner)),
            }
        }
        if &end[..] < upper {
            holes.push((end, upper.to_vec()));
        }
        for (start, upper) in holes {
            let owners = vec![Arc::clone(owner)];
            self.segments
                .insert(start.into(), GapSegment { upper, owners });
        }
        match own_before {
            true => GapGrant::Partly,
            false => GapGrant::Newly,
        }
    }

    /// Whether `owner` has locked all keys of the range. A transaction that repeats a statement
    /// locks a range again. The locked ranges are stored as disjoint segments of keys, and those of
    /// this transaction may have been divided at the bounds of other owners' ranges. The repetition
    /// must not divide them further, nor add the range to the owner's list of ranges again.
    fn has_all(&self, owner: &Arc<LockOwner>, lower: &[u8], upper: &[u8]) -> bool {
        let until = (Bound::Unbounded, Bound::Included(lower));
        let first = self.segments.range::<[u8], _>(until).next_back();
        let Some((_, first)) = first.filter(|(_, first)| lower < &first.upper[..]) else {
            return false;
        };
        let mut end = &first.upper;
        let mut all = first.is_of(owner);
        let within = (Bound::Excluded(lower), Bound::Excluded(upper));
        for (start, segment) in self.segments.range::<[u8], _>(within) {
            all = all && start[..] == end[..] && segment.is_of(owner);
            if !all {
                break;
            }
            end = &segment.upper;
        }
        all && upper <= &end[..]
    }

    /// Locks the range in the two usual cases of a scan: the range begins where a key segment that
    /// `owner` alone has locked ends, or `owner` has locked the range already. `None` in all other
    /// cases, with no change.
    fn extend(&mut self, owner: &Arc<LockOwner>, lower: &[u8], upper: &[u8]) -> Option<GapGrant> {
        let until = (Bound::Unbounded, Bound::Included(lower));
        let beyond = (Bound::Excluded(lower), Bound::Excluded(upper));
        let is_free = self.segments.range::<[u8], _>(beyond).next().is_none();
        let (_, segment) = self.segments.range_mut::<[u8], _>(until).next_back()?;
        if upper <= &segment.upper[..] && segment.is_of(owner) {
            return Some(GapGrant::Before);
        }
        let alone = segment.owners.len() == 1 && segment.is_of(owner);
        if !alone || segment.upper != lower || !is_free {
            return None;
        }
        segment.upper.clear();
        segment.upper.extend_from_slice(upper);
        Some(GapGrant::Newly)
    }

    /// Removes `owner` from the keys of the range, and collects the inserts that need not wait any
    /// more.
    fn unlock(
        &mut self,
        owner: &Arc<LockOwner>,
        lower: &[u8],
        upper: &[u8],
        observer: &ObserverCell,
        woken: &mut Vec<Arc<LockRequest>>,
    ) {
        let mut free = Vec::new();
        let mut end = lower.to_vec();
        let within = (Bound::Included(lower), Bound::Excluded(upper));
        for (start, segment) in self.segments.range_mut::<[u8], _>(within) {
            end.clone_from(&segment.upper);
            segment.owners.retain(|other| !Arc::ptr_eq(other, owner));
            if segment.owners.is_empty() {
                free.push(start.clone());
            }
        }
        for start in &free {
            self.segments.remove(start);
        }
        if !self.waiters.is_empty() {
            self.grant(lower, &end, observer, woken);
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
        if lower >= upper {
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

/// How a gap lock was granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GapGrant {
    /// The owner had locked the whole range before.
    Before,
    /// The owner had locked some keys of the range before, but not all.
    Partly,
    /// The owner had locked no key of the range before.
    Newly,
}

/// The index of `key`. Keys of user tables always have one.
fn index_of(key: &[u8]) -> IndexId {
    index_id_of(key).unwrap_or_default()
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
        let grant = {
            let mut indexes = slot.indexes.lock();
            let gaps = indexes.entry(index).or_default();
            let grant = gaps.lock(owner, lower, upper);
            if grant != GapGrant::Before {
                gaps.report_waiters(owner, lower, upper, &self.observer);
                let mut own = owner.gaps.lock();
                let bit = 1 << Self::slot_number(index);
                if own.slots & bit == 0 {
                    own.slots |= bit;
                    slot.owners.fetch_add(1, Ordering::SeqCst);
                }
                match own.ranges.last_mut() {
                    // Join adjoining ranges only if they lie in one index. The end of an index
                    // equals the start of the next one, but a release looks up a range only in the
                    // index of its lower bound.
                    Some((first, last)) if *last == lower && index_of(first) == index => {
                        last.clear();
                        last.extend_from_slice(upper);
                    }
                    _ => own.ranges.push((lower.into(), upper.to_vec())),
                }
            }
            grant
        };
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
        let mut indexes = self.slot(index).indexes.lock();
        if let Some(gaps) = indexes.get_mut(&index) {
            gaps.split(lower);
            gaps.split(upper);
            gaps.unlock(owner, lower, upper, &self.observer, &mut woken);
            if gaps.is_empty() {
                indexes.remove(&index);
            }
        }
        drop(indexes);
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
                gaps.unlock(owner, lower, upper, &self.observer, &mut woken);
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
        let waiter = LockRequest::for_gap(owner, key);
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
        let gaps = indexes.get(&index).into_iter();
        let blockers =
            gaps.flat_map(|gaps| gaps.blockers(&waiter.owner, &waiter.key, &self.observer));
        blockers.cloned().collect()
    }

    /// Calls `f` with each owner that `waiter` waits for; not at all if `waiter` does not wait any
    /// more. None of these owners releases its gap locks while `f` runs.
    pub(super) fn for_each_blocker(
        &self,
        waiter: &Arc<LockRequest>,
        f: impl FnMut(&Arc<LockOwner>),
    ) {
        let index = index_of(&waiter.key);
        let indexes = self.slot(index).indexes.lock();
        if waiter.outcome() == WaitOutcome::Waiting
            && let Some(gaps) = indexes.get(&index)
        {
            let blockers = gaps.blockers(&waiter.owner, &waiter.key, &self.observer);
            blockers.for_each(f);
        }
    }

    /// Calls `held` with the bounds of each locked range of keys, once for each of its owners.
    /// Calls `waits` with each insert that waits, and with the ids of at most [`OWNERS_LISTED`]
    /// owners that block it.
    pub(super) fn for_each(
        &self,
        mut held: impl FnMut(&[u8], &[u8], &Arc<LockOwner>),
        mut waits: impl FnMut(&Arc<LockRequest>, Vec<u64>),
    ) {
        for slot in &self.slots {
            for gaps in slot.indexes.lock().values() {
                for (lower, segment) in &gaps.segments {
                    for owner in &segment.owners {
                        held(lower, &segment.upper, owner);
                    }
                }
                for waiter in gaps.waiters.values().flatten() {
                    let blockers = gaps.blockers(&waiter.owner, &waiter.key, &self.observer);
                    let blockers = blockers.take(OWNERS_LISTED);
                    waits(waiter, blockers.map(|owner| owner.id()).collect());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
