//! What the lock table shows of itself.

use super::{LockMode, LockTable, Waiter};
use std::fmt::Write;
use std::sync::Arc;

/// A lock that is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockInfo {
    /// Id of the owner.
    pub owner: u64,
    /// The user key locked.
    pub key: Vec<u8>,
    /// How it is held.
    pub mode: LockMode,
}

/// A request that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitInfo {
    /// Id of the owner.
    pub owner: u64,
    /// The user key waited for.
    pub key: Vec<u8>,
    /// How it is wanted.
    pub mode: LockMode,
    /// Ids of those it waits for: requests ahead in the queue, then holders.
    pub blockers: Vec<u64>,
}

/// Counts since the table was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LockStats {
    /// Requests that slept.
    pub waits: u64,
    /// Waits whose time ran out.
    pub timeouts: u64,
    /// Deadlocks found.
    pub deadlocks: u64,
}

impl LockTable {
    /// All locks held, at most `max`; one shard after the other, so not one instant.
    pub fn locks(&self, max: usize) -> Vec<LockInfo> {
        let mut locks = Vec::new();
        for shard in &self.shards {
            for (key, row) in &shard.rows.lock().map {
                for holder in row.holders() {
                    if locks.len() == max {
                        return locks;
                    }
                    locks.push(LockInfo {
                        owner: holder.owner.id(),
                        key: key.to_vec(),
                        mode: holder.mode,
                    });
                }
            }
        }
        locks
    }

    /// All waiting requests, in queue order per key; one shard after the other, so not one instant.
    pub fn waits(&self) -> Vec<WaitInfo> {
        let mut waits = Vec::new();
        for shard in &self.shards {
            for row in shard.rows.lock().map.values() {
                waits.extend(row.queue().map(|waiter| WaitInfo {
                    owner: waiter.owner.id(),
                    key: waiter.key.to_vec(),
                    mode: waiter.mode,
                    blockers: row.blockers(waiter).iter().map(|o| o.id()).collect(),
                }));
            }
        }
        waits
    }

    /// The last deadlock in words: who waited for what, and who had to go.
    pub fn last_deadlock(&self) -> Option<String> {
        self.last_deadlock.lock().clone()
    }
}

/// The waits of a cycle, each for the next, in words.
pub(super) fn describe(cycle: &[Arc<Waiter>], victim: usize) -> String {
    let mut text = String::new();
    for (i, waiter) in cycle.iter().enumerate() {
        let next = &cycle[(i + 1) % cycle.len()];
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "transaction {} (weight {}) waits for {} lock on key {}, blocked by transaction {}{}",
            waiter.owner.id(),
            waiter.owner.weight(),
            waiter.mode.words(),
            hex(&waiter.key),
            next.owner.id(),
            if i == victim { "; rolled back" } else { "" },
        );
    }
    text
}

fn hex(key: &[u8]) -> String {
    const SHOWN: usize = 64;
    let mut text = String::with_capacity(2 * key.len().min(SHOWN) + 3);
    for byte in key.iter().take(SHOWN) {
        let _ = write!(text, "{byte:02x}");
    }
    if key.len() > SHOWN {
        text.push('…');
    }
    text
}
