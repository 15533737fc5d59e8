//! The lock of one key: holders and queue.

use super::waiter::{LockWaiter, WaitOutcome};
use super::{LockMode, LockOwner};
use std::collections::VecDeque;
use std::sync::Arc;

pub(super) struct LockHolder {
    pub(super) owner: Arc<LockOwner>,
    pub(super) mode: LockMode,
}

/// Result of an attempt to lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LockAttempt {
    /// The owner holds as much already.
    Held,
    /// The owner's shared lock became exclusive.
    Upgraded,
    /// The owner holds the row now.
    Granted,
    /// It has to wait.
    Blocked {
        /// The owner holds the row shared.
        upgrade: bool,
    },
}

/// Holders and waiting requests of a key.
///
/// Rules:
/// - Either one holder, or any number of shared ones.
/// - The queue is first in, first out, and a request joins it whenever it is not empty, even one
///   that the holders would admit; so nobody is overtaken, and no grant adds an edge to the
///   wait-for graph that a search has not seen. Upgrades alone go before the other requests: those
///   wait for the upgrader's shared lock anyway.
/// - A row without holders has no queue; it is removed.
///
/// The common row has one holder and nothing else, and keeps its lists unallocated.
pub(super) struct LockQueue {
    first: Option<LockHolder>,
    rare: Option<Box<Rare>>,
}

#[derive(Default)]
struct Rare {
    sharers: Vec<LockHolder>,
    queue: VecDeque<Arc<LockWaiter>>,
}

impl LockQueue {
    /// A row that gets a holder before its shard is unlocked.
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
        let sharers = self.rare.iter().flat_map(|rare| &rare.sharers);
        self.first.iter().chain(sharers)
    }

    pub(super) fn queue(&self) -> impl DoubleEndedIterator<Item = &Arc<LockWaiter>> {
        self.rare.iter().flat_map(|rare| &rare.queue)
    }

    fn holder_mut(&mut self, owner: &Arc<LockOwner>) -> Option<&mut LockHolder> {
        let sharers = self.rare.iter_mut().flat_map(|rare| &mut rare.sharers);
        let mut holders = self.first.iter_mut().chain(sharers);
        holders.find(|holder| Arc::ptr_eq(&holder.owner, owner))
    }

    pub(super) fn mode_of(&self, owner: &Arc<LockOwner>) -> Option<LockMode> {
        let mut holders = self.holders();
        let holder = holders.find(|holder| Arc::ptr_eq(&holder.owner, owner))?;
        Some(holder.mode)
    }

    /// Adds a holder who is not among them.
    pub(super) fn add_holder(&mut self, owner: &Arc<LockOwner>, mode: LockMode) {
        let holder = LockHolder {
            owner: Arc::clone(owner),
            mode,
        };
        if self.first.is_none() {
            self.first = Some(holder);
        } else {
            self.rare.get_or_insert_default().sharers.push(holder);
        }
    }

    /// Whether another owner's hold keeps `owner` from `mode`.
    fn blocked_by_holders(&self, owner: &Arc<LockOwner>, mode: LockMode) -> bool {
        self.holders()
            .any(|holder| !Arc::ptr_eq(&holder.owner, owner) && holder.mode.conflicts(mode))
    }

    /// Locks if it can be had at once.
    pub(super) fn attempt(&mut self, owner: &Arc<LockOwner>, mode: LockMode) -> LockAttempt {
        match self.mode_of(owner) {
            Some(held) if held >= mode => LockAttempt::Held,
            Some(_) if self.blocked_by_holders(owner, mode) => {
                LockAttempt::Blocked { upgrade: true }
            }
            Some(_) => {
                self.holder_mut(owner).expect("holds it").mode = mode;
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

    pub(super) fn enqueue(&mut self, waiter: &Arc<LockWaiter>) {
        let queue = &mut self.rare.get_or_insert_default().queue;
        let at = match waiter.upgrade {
            true => queue.iter().take_while(|ahead| ahead.upgrade).count(),
            false => queue.len(),
        };
        queue.insert(at, Arc::clone(waiter));
    }

    /// Takes `waiter` out of the queue. Call [`LockQueue::grant`] afterwards.
    pub(super) fn remove_waiter(&mut self, waiter: &Arc<LockWaiter>) {
        let queue = &mut self.rare.as_mut().expect("has a queue").queue;
        let at = queue.iter().position(|other| Arc::ptr_eq(other, waiter));
        queue.remove(at.expect("in the queue"));
    }

    /// Takes the hold of `owner` away. Returns whether there was one. Call [`LockQueue::grant`]
    /// afterwards.
    pub(super) fn remove_holder(&mut self, owner: &Arc<LockOwner>) -> bool {
        let is_owner = |holder: &LockHolder| Arc::ptr_eq(&holder.owner, owner);
        if self.first.as_ref().is_some_and(is_owner) {
            self.first = self.rare.as_mut().and_then(|rare| rare.sharers.pop());
            return true;
        }
        let Some(rare) = &mut self.rare else {
            return false;
        };
        let Some(at) = rare.sharers.iter().position(is_owner) else {
            return false;
        };
        rare.sharers.swap_remove(at);
        true
    }

    /// Whether somebody waits whom no holder blocks.
    fn front_is_free(&self) -> bool {
        let mut queue = self.queue();
        let front = queue.next();
        front.is_some_and(|front| !self.blocked_by_holders(&front.owner, front.mode))
    }

    /// Grants from the front of the queue what can be had, and adds it to `woken`.
    pub(super) fn grant(&mut self, woken: &mut Vec<Arc<LockWaiter>>) {
        while self.front_is_free() {
            let rare = self.rare.as_mut().expect("has a queue");
            let front = rare.queue.pop_front().expect("has a front");
            if front.upgrade {
                let holder = self.holder_mut(&front.owner);
                holder.expect("an upgrader holds it").mode = front.mode;
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

    /// Whether nobody holds it; then nobody waits for it either.
    pub(super) fn is_free(&self) -> bool {
        self.first.is_none()
    }

    /// Everyone `waiter` waits for: conflicting requests ahead of it, then conflicting holders.
    pub(super) fn blockers(&self, waiter: &Arc<LockWaiter>) -> Vec<Arc<LockOwner>> {
        let ahead = self.queue().take_while(|other| !Arc::ptr_eq(other, waiter));
        let ahead = ahead.filter(|other| other.mode.conflicts(waiter.mode));
        let mut blockers: Vec<_> = ahead.map(|other| Arc::clone(&other.owner)).collect();
        blockers.extend(self.holders_against(waiter));
        blockers
    }

    /// Enough of [`LockQueue::blockers`] to reach all of them: an exclusive request ahead waits
    /// itself for everything before it, so the nearest one stands for the rest. Keeps a search
    /// through a queue of n at n edges instead of n².
    pub(super) fn nearest_blockers(&self, waiter: &Arc<LockWaiter>) -> Vec<Arc<LockOwner>> {
        let mut blockers = Vec::new();
        let behind = self.queue().rev();
        let ahead = behind
            .skip_while(|other| !Arc::ptr_eq(other, waiter))
            .skip(1);
        for other in ahead {
            if other.mode.conflicts(waiter.mode) {
                blockers.push(Arc::clone(&other.owner));
            }
            if other.mode == LockMode::Exclusive {
                return blockers;
            }
        }
        blockers.extend(self.holders_against(waiter));
        blockers
    }

    fn holders_against(&self, waiter: &Arc<LockWaiter>) -> impl Iterator<Item = Arc<LockOwner>> {
        let holders = self.holders().filter(|holder| {
            !Arc::ptr_eq(&holder.owner, &waiter.owner) && holder.mode.conflicts(waiter.mode)
        });
        holders.map(|holder| Arc::clone(&holder.owner))
    }
}
