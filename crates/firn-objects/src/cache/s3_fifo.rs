//! S3-FIFO (SOSP 2023): which chunk leaves.
//!
//! New chunks queue in a small queue of a tenth. Those that were touched meanwhile move to the main
//! queue, others leave, and a ghost remembers them for a while: if such a chunk comes back, it goes
//! to the main queue at once. A chunk of the main queue leaves when it reaches the head without a
//! touch since it was queued.

use std::collections::{HashSet, VecDeque};

/// The share of the small queue is one in this many.
const SMALL_SHARE: usize = 10;

/// So many chunks that stay are passed to find one that leaves. When all of a large cache have been
/// touched, the search would pass millions of them, and every miss waits for it.
const PASSED_MAX: usize = 1024;

/// A chunk in a queue.
pub type Key = (u64, u32);

/// The verdict of the chunks' owner on the one at the head of a queue.
pub enum Fate {
    /// It is not there any more, or in no queue.
    Gone,
    /// It has been touched.
    Stays,
    /// It has not.
    Leaves,
}

/// The queues; entries are `(key, tag)`, of which only the owner knows whether they are current.
pub struct S3Fifo<T> {
    small: VecDeque<(Key, T)>,
    main: VecDeque<(Key, T)>,
    ghost: VecDeque<Key>,
    in_ghost: HashSet<Key>,
}

impl<T> Default for S3Fifo<T> {
    fn default() -> Self {
        Self {
            small: VecDeque::new(),
            main: VecDeque::new(),
            ghost: VecDeque::new(),
            in_ghost: HashSet::new(),
        }
    }
}

impl<T> S3Fifo<T> {
    /// Entries of both queues, those that are gone included.
    pub fn len(&self) -> usize {
        self.small.len() + self.main.len()
    }

    /// Queues a chunk that has come.
    pub fn push(&mut self, key: Key, tag: T) {
        if self.in_ghost.remove(&key) {
            self.main.push_back((key, tag));
        } else {
            self.small.push_back((key, tag));
        }
    }

    /// Takes out the chunk that is to leave. None if all are gone.
    ///
    /// `fate` is asked for chunks at the head of a queue; one that stays has its touches reduced by
    /// the owner. After many of those, the next one leaves all the same.
    pub fn pop(&mut self, mut fate: impl FnMut(&Key, &T) -> Fate) -> Option<(Key, T)> {
        let mut passed = 0;
        loop {
            let is_small = self.small.len() * SMALL_SHARE >= self.len() || self.main.is_empty();
            let queue = if is_small {
                &mut self.small
            } else {
                &mut self.main
            };
            let (key, tag) = queue.pop_front()?;
            match fate(&key, &tag) {
                Fate::Gone => {}
                Fate::Stays if passed < PASSED_MAX => {
                    self.main.push_back((key, tag));
                    passed += 1;
                }
                Fate::Stays | Fate::Leaves => {
                    if is_small {
                        self.remember(key);
                    }
                    return Some((key, tag));
                }
            }
        }
    }

    /// As many as the main queue holds.
    fn remember(&mut self, key: Key) {
        if self.in_ghost.insert(key) {
            self.ghost.push_back(key);
        }
        while self.ghost.len() > self.main.len().max(16) {
            if let Some(oldest) = self.ghost.pop_front() {
                self.in_ghost.remove(&oldest);
            }
        }
    }

    /// Drops entries that are gone.
    pub fn retain(&mut self, mut is_current: impl FnMut(&Key, &T) -> bool) {
        self.small.retain(|(key, tag)| is_current(key, tag));
        self.main.retain(|(key, tag)| is_current(key, tag));
    }
}

#[cfg(test)]
mod tests;
