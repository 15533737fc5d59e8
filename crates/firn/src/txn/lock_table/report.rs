//! Statistics of the lock table, for status variables.

use super::key_set::{KeySet, same_index};
use super::{LockMode, LockTable, LockWaiter};
use std::fmt::Write;
use std::sync::Arc;

/// A lock that is held, or many of one owner in one index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockInfo {
    /// Id of the owner.
    pub owner: u64,
    /// The user key locked, the first of many.
    pub key: Vec<u8>,
    /// The last of many; keys between that are not among the rows are free.
    pub last: Option<Vec<u8>>,
    /// Number of keys.
    pub rows: u64,
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

/// Number and memory of the locks held at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LockMemory {
    /// Keys locked one by one; a key that several share counts once.
    pub rows: u64,
    /// Keys locked as parts of sorted sets, each for its owner.
    pub merged_rows: u64,
    /// Memory of those sets, bytes.
    pub merged_bytes: u64,
}

impl LockTable {
    /// All locks held, at most `max`; those that large statements have taken in one index make one
    /// entry. One shard after the other, so not one instant.
    pub fn locks(&self, max: usize) -> Vec<LockInfo> {
        let mut locks = Vec::new();
        for owner in self.registry.owners() {
            let merged = owner.merged.lock();
            for mode in [LockMode::Shared, LockMode::Exclusive] {
                if locks.len() >= max {
                    return locks;
                }
                push_spans(&mut locks, max, owner.id(), mode, merged.set(mode));
            }
        }
        for shard in &self.shards {
            for (key, row) in &shard.rows.lock().map {
                for holder in row.holders() {
                    if locks.len() >= max {
                        return locks;
                    }
                    locks.push(LockInfo {
                        owner: holder.owner.id(),
                        key: key.to_vec(),
                        last: None,
                        rows: 1,
                        mode: holder.mode,
                    });
                }
            }
        }
        locks
    }

    /// How many keys are locked and what the sorted sets among them take; one shard and one owner
    /// after the other, so not one instant.
    pub fn memory(&self) -> LockMemory {
        let mut memory = LockMemory::default();
        for shard in &self.shards {
            memory.rows += shard.rows.lock().map.len() as u64;
        }
        for owner in self.registry.owners() {
            let merged = owner.merged.lock();
            memory.merged_rows += merged.len();
            memory.merged_bytes += merged.bytes();
        }
        memory
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

/// Adds an entry for each index in `set`.
fn push_spans(locks: &mut Vec<LockInfo>, max: usize, owner: u64, mode: LockMode, set: &KeySet) {
    let begin = locks.len();
    for (first, last, rows) in set.spans() {
        let full = locks.len() >= max;
        let before = locks[begin..].last_mut();
        if let Some(before) = before.filter(|before| same_index(&before.key, first)) {
            before.last = Some(last.to_vec());
            before.rows += rows;
        } else if full {
            return;
        } else {
            locks.push(LockInfo {
                owner,
                key: first.to_vec(),
                last: (rows > 1).then(|| last.to_vec()),
                rows,
                mode,
            });
        }
    }
}

/// The waits of a cycle, each for the next, in words.
pub(super) fn describe(cycle: &[Arc<LockWaiter>], victim: usize) -> String {
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
