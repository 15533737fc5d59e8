//! The clock algorithm over the pins that can be given back: chooses which open file to evict.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Weak;

/// Something that holds a pin of a [`super::PinBudget`] and can give it back.
pub trait Evictable: Send + Sync {
    /// Whether it was used since the last call, or since it has the pin.
    fn take_used(&self) -> bool;

    /// Gives the pin back, unless somebody uses what it accounts for: then the memory would not
    /// become free.
    fn evict(&self) -> Eviction;
}

/// The result of [`Evictable::evict`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Eviction {
    /// The pin is given back.
    Evicted,
    /// Somebody uses the memory at this moment.
    InUse,
    /// There was no pin.
    Nothing,
}

/// The clock drops the entries of owners that are gone when it has twice as many entries as it kept
/// the last time, and this many more.
const DEAD_MAX: usize = 64;

/// The owners of pins that can be evicted, in the order of their turns.
#[derive(Default)]
pub(super) struct PinClock {
    queue: Mutex<Turns>,
}

#[derive(Default)]
struct Turns {
    owners: VecDeque<Weak<dyn Evictable>>,
    /// Number of entries at which those of dropped owners are removed.
    purge_at: usize,
}

/// How much a search for one victim, or several, may do.
pub(super) struct Search {
    /// Number of turns left.
    turns: usize,
    /// Number of turns in which an owner is spared because it was used. After them a used owner is
    /// evicted, too: otherwise nothing would be evicted while all are being used.
    spares: usize,
}

impl Search {
    /// A search of at most `turns` turns.
    pub(super) fn of(turns: usize) -> Self {
        Self {
            turns,
            spares: turns / 2,
        }
    }
}

impl PinClock {
    pub(super) fn add(&self, owner: Weak<dyn Evictable>) {
        let mut turns = self.queue.lock();
        turns.owners.push_back(owner);
        if turns.owners.len() >= turns.purge_at.max(DEAD_MAX) {
            turns.owners.retain(|owner| owner.strong_count() > 0);
            turns.purge_at = 2 * turns.owners.len() + DEAD_MAX;
        }
    }

    /// A search that gives each owner two turns.
    pub(super) fn two_rounds(&self) -> Search {
        Search::of(2 * self.queue.lock().owners.len())
    }

    /// Evicts one pin. Returns false if `search` ends before.
    pub(super) fn evict_one(&self, search: &mut Search) -> bool {
        while search.turns > 0 {
            search.turns -= 1;
            // No lock is held while an owner is asked or dropped: it takes locks of its own.
            let Some(next) = self.queue.lock().owners.pop_front() else {
                return false;
            };
            let Some(owner) = next.upgrade() else {
                continue;
            };
            let spared = search.spares > 0;
            search.spares = search.spares.saturating_sub(1);
            if spared && owner.take_used() {
                self.queue.lock().owners.push_back(next);
                continue;
            }
            match owner.evict() {
                Eviction::Evicted => return true,
                Eviction::InUse => self.queue.lock().owners.push_back(next),
                Eviction::Nothing => {}
            }
        }
        false
    }

    /// Number of owners, among them perhaps some that are gone.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.queue.lock().owners.len()
    }
}
