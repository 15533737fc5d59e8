//! Reports on locks, for `information_schema` and `SHOW ENGINE STATUS`: locks held, waits, memory,
//! deadlocks.

use super::key_set::{KeySet, same_index};
use super::{Deadlock, LockMode, LockOwner, LockRequest, LockTable};
use std::sync::Arc;

/// One held lock, or all merged locks of one owner, index and mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockInfo {
    /// Id of the owner.
    pub owner: u64,
    /// The locked user key. If this stands for several merged locks or for a gap lock: the first
    /// key.
    pub key: Vec<u8>,
    /// If this stands for several merged locks: the last key; keys between `key` and `last` may be
    /// unlocked. For a gap lock: the end of the range, which is not locked itself.
    pub last: Option<Vec<u8>>,
    /// Number of locked keys.
    pub rows: u64,
    /// Mode of all the locks.
    pub mode: LockMode,
    /// Whether this is a gap lock: inserts of keys from `key` to below `last` wait. `rows` is 0
    /// then.
    pub is_gap: bool,
}

/// A waiting request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitInfo {
    /// Id of the owner.
    pub owner: u64,
    /// The user key to lock.
    pub key: Vec<u8>,
    /// The requested mode.
    pub mode: LockMode,
    /// Whether the request is an insert of the key, which waits for gap locks.
    pub is_insert: bool,
    /// When the wait began, microseconds since 1970.
    pub since_us: u64,
    /// Ids of the owners for which the request waits: first owners of requests ahead in the queue,
    /// then holders. For a request far behind in a long queue these are the nearest owners only,
    /// which wait for the rest.
    pub blockers: Vec<u64>,
}

impl WaitInfo {
    /// The kind of lock that the request waits for, in words.
    pub fn words(&self) -> &'static str {
        lock_words(self.is_insert, self.mode)
    }
}

/// A requested lock in words.
pub(super) fn lock_words(is_insert: bool, mode: LockMode) -> &'static str {
    match (is_insert, mode) {
        (true, _) => "insert intention",
        (false, LockMode::Shared) => "shared lock",
        (false, LockMode::Exclusive) => "exclusive lock",
    }
}

/// Counts since the lock table was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LockStats {
    /// Requests that joined a queue.
    pub waits: u64,
    /// Requests that failed because their timeout expired, a timeout of 0 included.
    pub timeouts: u64,
    /// Deadlocks found.
    pub deadlocks: u64,
    /// Transactions whose validation failed because another transaction was first.
    pub conflicts: u64,
}

/// Number and memory of the locks held at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LockMemory {
    /// Rows of the hash table; a row with several holders counts once.
    pub rows: u64,
    /// Merged locks; a key counts once per owner.
    pub merged_rows: u64,
    /// Memory of the merged locks, in bytes.
    pub merged_bytes: u64,
    /// Number of gap locks. A range of keys that several owners have locked counts once for each of
    /// them. Ranges of one owner that overlap or adjoin count as one.
    pub gaps: u64,
    /// Memory of the bounds of these ranges, in bytes.
    pub gap_bytes: u64,
}

impl LockTable {
    /// At most `max` entries for held locks; the merged locks of an owner in one index and mode
    /// make one entry. Not a consistent snapshot: it locks one shard or owner after the other.
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
                        is_gap: false,
                    });
                }
            }
        }
        let add = |lower: &[u8], upper: &[u8], owner: &Arc<LockOwner>| {
            if locks.len() < max {
                locks.push(LockInfo {
                    owner: owner.id(),
                    key: lower.to_vec(),
                    last: Some(upper.to_vec()),
                    rows: 0,
                    mode: LockMode::Shared,
                    is_gap: true,
                });
            }
        };
        self.gaps.for_each_range(add);
        locks
    }

    /// Number and memory of the held locks. Not a consistent snapshot, as [`Self::locks`].
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
        let count = |lower: &[u8], upper: &[u8], _: &Arc<LockOwner>| {
            memory.gaps += 1;
            memory.gap_bytes += (lower.len() + upper.len()) as u64;
        };
        self.gaps.for_each_range(count);
        memory
    }

    /// All waiting requests, in queue order per key. Not a consistent snapshot, as [`Self::locks`].
    pub fn waits(&self) -> Vec<WaitInfo> {
        let mut waits = Vec::new();
        for shard in &self.shards {
            for row in shard.rows.lock().map.values() {
                row.for_each_wait(|waiter, blockers| {
                    waits.push(WaitInfo {
                        owner: waiter.owner.id(),
                        key: waiter.key.to_vec(),
                        mode: waiter.mode,
                        is_insert: false,
                        since_us: waiter.since_us,
                        blockers,
                    });
                });
            }
        }
        let add = |waiter: &Arc<LockRequest>, blockers| {
            waits.push(WaitInfo {
                owner: waiter.owner.id(),
                key: waiter.key.to_vec(),
                mode: waiter.mode,
                is_insert: true,
                since_us: waiter.since_us,
                blockers,
            });
        };
        self.gaps.for_each_wait(add);
        waits
    }

    /// The last ten deadlocks, oldest first.
    pub fn deadlocks(&self) -> Vec<Arc<Deadlock>> {
        self.deadlocks.kept()
    }
}

/// Adds an entry for each index of which `set` has keys.
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
                is_gap: false,
            });
        }
    }
}
