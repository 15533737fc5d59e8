//! The lock of one key: its holders and the queue of waiting requests.

use super::lock_request::{LockRequest, WaitOutcome};
use super::{LockMode, LockOwner};
use crate::base::work_count;
use crate::txn::number_hasher::NumberHasher;
use indexmap::IndexMap;
use std::collections::{HashSet, VecDeque};
use std::hash::BuildHasherDefault;
use std::sync::Arc;

/// Number of requests at the front of a queue for which reports list all blockers; at most as many
/// blockers are reported to a host that wants to hear only of the nearest ones.
const BLOCKERS_LISTED: usize = 64;

pub(super) struct LockHolder {
    pub(super) owner: Arc<LockOwner>,
    pub(super) mode: LockMode,
}

/// Result of an attempt to lock without waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LockAttempt {
    /// The owner holds the row in this or a stronger mode already.
    Held,
    /// The owner's shared lock became exclusive.
    Upgraded,
    /// The owner did not hold the row and holds it now.
    Granted,
    /// The request has to wait.
    Blocked {
        /// Whether the owner holds the row shared, and requests it exclusive.
        upgrade: bool,
    },
}

/// The rows of which a deadlock search has visited all holders.
///
/// Exclusive requests for one row wait for the same holders. If ten thousand owners hold the row
/// shared and a thousand wait for it, a search without this set would visit the ten thousand
/// holders a thousand times.
#[derive(Default)]
pub(super) struct VisitedRows(HashSet<Arc<[u8]>>);

impl VisitedRows {
    /// Whether the search has visited all holders of the row of `waiter` by way of another request,
    /// so that it need not visit them for `waiter`. If `waiter` waits for all holders and the
    /// answer is false, the search visits them now, so the row is added to the set. For a request
    /// that does not wait for all holders the answer is always false: an upgrade does not wait for
    /// its own owner, and a shared request waits for one owner alone.
    ///
    /// The caller must hold the lock of the row's shard, and `waiter` must still wait: a victim has
    /// no blockers to visit, although its session may not have woken yet. Owners that are granted
    /// the row later are no part of a cycle: they run.
    pub(super) fn has_holders_for(&mut self, waiter: &LockRequest) -> bool {
        let waits_for_all = waiter.mode == LockMode::Exclusive && !waiter.upgrade;
        waits_for_all && !self.0.insert(Arc::clone(&waiter.key))
    }
}

/// Holders and waiting requests of a key.
///
/// Invariants:
/// - There is one exclusive holder, or any number of shared ones. So `first` tells the mode of all.
/// - The queue is first in, first out. A request joins it whenever it is not empty, even if the
///   request conflicts with no holder. So no request is overtaken, and no grant adds an edge to the
///   wait-for graph that no search has seen. Only upgrades go before the other requests: these wait
///   for the upgrader's shared lock anyway, directly or behind a request that does.
/// - A row without holders has no queue; the shard removes it.
///
/// Example: A holds S; B requests X and waits; C requests S and waits behind B, though S is
/// compatible with A. If A requests X, it is the only holder and gets it at once. If D held S, too,
/// A's upgrade would wait before B and C.
///
/// Most rows have one holder and nothing else; their lists are not allocated. A parent row of a
/// foreign key may have thousands of sharers, so no attempt and no release looks at all of them.
pub(super) struct LockQueue {
    /// `None` only if there is no holder at all.
    first: Option<LockHolder>,
    rare: Option<Box<Rare>>,
}

#[derive(Default)]
struct Rare {
    /// Shared holders other than `first`, by their addresses.
    sharers: IndexMap<usize, LockHolder, BuildHasherDefault<NumberHasher>>,
    queue: VecDeque<Arc<LockRequest>>,
}

/// The key of a holder in [`Rare::sharers`].
fn address(owner: &Arc<LockOwner>) -> usize {
    Arc::as_ptr(owner).addr()
}

impl LockQueue {
    /// A row without holder. The caller adds a holder before it unlocks the shard.
    pub(super) fn empty() -> Self {
        Self {
            first: None,
            rare: None,
        }
    }

    pub(super) fn new(owner: &Arc<LockOwner>, mode: LockMode) -> Self {
        Self {
            first: Some(LockHolder {
                owner: Arc::clone(owner),
                mode,
            }),
            rare: None,
        }
    }

    pub(super) fn holders(&self) -> impl Iterator<Item = &LockHolder> {
        let sharers = self.rare.iter().flat_map(|rare| rare.sharers.values());
        let holders = self.first.iter().chain(sharers);
        holders.inspect(|_| work_count::holder_seen())
    }

    pub(super) fn queue(&self) -> impl DoubleEndedIterator<Item = &Arc<LockRequest>> {
        let queue = self.rare.iter().flat_map(|rare| &rare.queue);
        queue.inspect(|_| work_count::waiter_seen())
    }

    fn is_first(&self, owner: &Arc<LockOwner>) -> bool {
        let first = self.first.as_ref();
        first.is_some_and(|first| Arc::ptr_eq(&first.owner, owner))
    }

    pub(super) fn mode_of(&self, owner: &Arc<LockOwner>) -> Option<LockMode> {
        if self.is_first(owner) {
            return self.first.as_ref().map(|first| first.mode);
        }
        let sharer = self.rare.as_ref()?.sharers.get(&address(owner))?;
        Some(sharer.mode)
    }

    /// Makes the shared lock of `owner`, which must be the only holder, exclusive.
    fn upgrade(&mut self, owner: &Arc<LockOwner>) {
        let first = self.first.as_mut().filter(|f| Arc::ptr_eq(&f.owner, owner));
        first.expect("it holds the row alone").mode = LockMode::Exclusive;
    }

    /// Makes the lock of `owner` shared. Returns whether it holds the row. Call
    /// [`LockQueue::grant`] afterwards.
    pub(super) fn share(&mut self, owner: &Arc<LockOwner>) -> bool {
        if let Some(first) = &mut self.first
            && Arc::ptr_eq(&first.owner, owner)
        {
            first.mode = LockMode::Shared;
        }
        self.mode_of(owner).is_some()
    }

    /// Adds `owner`, which does not hold the row, to the holders.
    pub(super) fn add_holder(&mut self, owner: &Arc<LockOwner>, mode: LockMode) {
        let holder = LockHolder {
            owner: Arc::clone(owner),
            mode,
        };
        let mut others = self.first.iter();
        debug_assert!(others.all(|first| !first.mode.conflicts(mode)));
        if self.first.is_none() {
            self.first = Some(holder);
        } else {
            let sharers = &mut self.rare.get_or_insert_default().sharers;
            sharers.insert(address(owner), holder);
        }
    }

    /// Whether another owner holds the row in a mode that conflicts with `mode`.
    fn blocked_by_holders(&self, owner: &Arc<LockOwner>, mode: LockMode) -> bool {
        let Some(first) = &self.first else {
            return false;
        };
        let others = self
            .rare
            .as_ref()
            .is_some_and(|rare| !rare.sharers.is_empty());
        (others || !self.is_first(owner)) && first.mode.conflicts(mode)
    }

    /// Locks the row if that needs no wait.
    pub(super) fn attempt(&mut self, owner: &Arc<LockOwner>, mode: LockMode) -> LockAttempt {
        match self.mode_of(owner) {
            Some(held) if held >= mode => LockAttempt::Held,
            Some(_) if self.blocked_by_holders(owner, mode) => {
                LockAttempt::Blocked { upgrade: true }
            }
            Some(_) => {
                self.upgrade(owner);
                LockAttempt::Upgraded
            }
            None if self.queue().next().is_some() || self.blocked_by_holders(owner, mode) => {
                LockAttempt::Blocked { upgrade: false }
            }
            None => {
                self.add_holder(owner, mode);
                LockAttempt::Granted
            }
        }
    }

    pub(super) fn enqueue(&mut self, waiter: &Arc<LockRequest>) {
        let queue = &mut self.rare.get_or_insert_default().queue;
        let at = match waiter.upgrade {
            true => queue.iter().take_while(|ahead| ahead.upgrade).count(),
            false => queue.len(),
        };
        queue.insert(at, Arc::clone(waiter));
    }

    /// Removes `waiter` from the queue. Call [`LockQueue::grant`] afterwards.
    pub(super) fn remove_waiter(&mut self, waiter: &Arc<LockRequest>) {
        let queue = &mut self.rare.as_mut().expect("has a queue").queue;
        let at = queue.iter().position(|other| Arc::ptr_eq(other, waiter));
        queue.remove(at.expect("in the queue"));
    }

    /// Removes `owner` from the holders. Returns whether it was one. Call [`LockQueue::grant`]
    /// afterwards.
    pub(super) fn remove_holder(&mut self, owner: &Arc<LockOwner>) -> bool {
        let is_first = self.is_first(owner);
        let sharers = self.rare.as_mut().map(|rare| &mut rare.sharers);
        if is_first {
            self.first = sharers.and_then(|sharers| Some(sharers.pop()?.1));
            return true;
        }
        sharers.is_some_and(|sharers| sharers.swap_remove(&address(owner)).is_some())
    }

    /// Whether the queue has a first request, and no holder blocks it.
    fn front_is_free(&self) -> bool {
        let mut queue = self.queue();
        let front = queue.next();
        front.is_some_and(|front| !self.blocked_by_holders(&front.owner, front.mode))
    }

    /// Grants requests from the front of the queue until a holder blocks one, and adds them to
    /// `woken`. The caller notifies these once it has unlocked the shard.
    pub(super) fn grant(&mut self, woken: &mut Vec<Arc<LockRequest>>) {
        while self.front_is_free() {
            let rare = self.rare.as_mut().expect("has a queue");
            let front = rare.queue.pop_front().expect("has a front");
            if front.upgrade {
                self.upgrade(&front.owner);
            } else {
                self.add_holder(&front.owner, front.mode);
            }
            front.decide(WaitOutcome::Granted);
            woken.push(front);
        }
        let unused = |rare: &Rare| rare.sharers.is_empty() && rare.queue.is_empty();
        if self.rare.as_deref().is_some_and(unused) {
            self.rare = None;
        }
    }

    /// Whether the row has no holder. Such a row has no queue either.
    pub(super) fn is_free(&self) -> bool {
        self.first.is_none()
    }

    /// All owners that `waiter` waits for: those of conflicting requests ahead of it, then
    /// conflicting holders.
    pub(super) fn blockers(&self, waiter: &Arc<LockRequest>) -> Vec<Arc<LockOwner>> {
        let ahead = self.queue().take_while(|other| !Arc::ptr_eq(other, waiter));
        let ahead = ahead.filter(|other| other.mode.conflicts(waiter.mode));
        let mut blockers: Vec<_> = ahead.map(|other| Arc::clone(&other.owner)).collect();
        blockers.extend(self.holders_against(waiter));
        blockers
    }

    /// The conflicting requests right ahead of `waiter`, which has joined the queue just now, up to
    /// the first exclusive one, and the conflicting holders; at most [`BLOCKERS_LISTED`] of each,
    /// and at least one. So if each request reports them, each that another one waits for is
    /// reported.
    pub(super) fn right_ahead(&self, waiter: &Arc<LockRequest>) -> Vec<Arc<LockOwner>> {
        let mut blockers = Vec::new();
        let mut visit = |other: &Arc<LockRequest>| {
            if other.mode.conflicts(waiter.mode) {
                blockers.push(Arc::clone(&other.owner));
            }
            other.mode == LockMode::Exclusive
        };
        if waiter.upgrade {
            // Only other upgrades are ahead of it, at the front.
            let ahead = self.queue().take_while(|other| !Arc::ptr_eq(other, waiter));
            ahead.take(BLOCKERS_LISTED).last().map(&mut visit);
        } else {
            let mut from_end = self.queue().rev();
            let _ = from_end.find(|other| Arc::ptr_eq(other, waiter));
            let _ = from_end.take(BLOCKERS_LISTED).any(visit);
        }
        blockers.extend(self.holders_against(waiter).take(BLOCKERS_LISTED));
        if blockers.is_empty() {
            // A shared request far behind the exclusive one that all shared holders block.
            blockers.extend(self.queue().next().map(|front| Arc::clone(&front.owner)));
        }
        blockers
    }

    /// Owners for which `waiter` waits, from which a deadlock search reaches each of
    /// [`LockQueue::blockers`] that can be part of a cycle. Their number does not grow with the
    /// queue.
    ///
    /// A request ahead waits for nothing but requests ahead of itself and for holders. So a path
    /// through the queue leaves it through a holder, and the search may go to the holders at once:
    /// - An exclusive request waits for all of them.
    /// - A shared request waits for an exclusive holder, which is then the only one.
    /// - If all holders are shared, the first request of the queue is exclusive, since a shared one
    ///   would have been granted. A shared request waits for it, and it waits for all holders but
    ///   its own owner.
    ///
    /// So a cycle names no request that stands in between: with such a request as the victim, the
    /// others would still wait in a circle.
    ///
    /// A path to the requester ends at a holder, too: only an upgrade has requests behind it when
    /// its wait begins, and an upgrader holds the row. If detection was off when the wait began, a
    /// search that begins later may miss a cycle through its own request, because the path to it
    /// ends at a request. But then the search for the request behind it finds a shorter cycle.
    pub(super) fn nearest_blockers(&self, waiter: &Arc<LockRequest>) -> Vec<Arc<LockOwner>> {
        let holders: Vec<_> = self.holders_against(waiter).collect();
        if waiter.mode == LockMode::Exclusive || !holders.is_empty() {
            return holders;
        }
        let front = self.queue().next();
        debug_assert!(front.is_some_and(|front| front.mode == LockMode::Exclusive));
        front
            .map(|front| Arc::clone(&front.owner))
            .into_iter()
            .collect()
    }

    /// Calls `f` with each request of the queue and with the ids of its [blockers](Self::blockers),
    /// for reports. Behind the first [`BLOCKERS_LISTED`] requests only the nearest blockers count:
    /// otherwise a queue of n requests would make n² ids under the shard's lock.
    pub(super) fn for_each_wait(&self, mut f: impl FnMut(&Arc<LockRequest>, Vec<u64>)) {
        // The requests before `waiter` that it waits for directly: those from the last exclusive
        // one on.
        let mut nearest: Vec<&Arc<LockRequest>> = Vec::new();
        for (at, waiter) in self.queue().enumerate() {
            let blockers = match at < BLOCKERS_LISTED {
                true => self.blockers(waiter),
                false => {
                    let ahead = nearest.iter().filter(|a| a.mode.conflicts(waiter.mode));
                    let mut blockers: Vec<_> = ahead.map(|a| Arc::clone(&a.owner)).collect();
                    if nearest.first().is_none_or(|a| a.mode == LockMode::Shared) {
                        blockers.extend(self.holders_against(waiter));
                    }
                    blockers
                }
            };
            f(waiter, blockers.iter().map(|owner| owner.id()).collect());
            if waiter.mode == LockMode::Exclusive {
                nearest.clear();
            }
            nearest.push(waiter);
        }
    }

    /// Owners that hold the row in a mode that conflicts with the request `waiter`.
    fn holders_against(&self, waiter: &Arc<LockRequest>) -> impl Iterator<Item = Arc<LockOwner>> {
        let holders = self.holders().filter(|holder| {
            !Arc::ptr_eq(&holder.owner, &waiter.owner) && holder.mode.conflicts(waiter.mode)
        });
        holders.map(|holder| Arc::clone(&holder.owner))
    }
}
