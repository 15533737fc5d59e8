//! Block cache: decoded blocks, sharded, scan-resistant. Row cache: single rows.

mod pin_budget;
mod row_cache;
mod stats;

use crate::base::Result;
use quick_cache::sync::{Cache, DefaultLifecycle, GuardResult};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};
use stats::Striped;
use std::sync::Arc;
use std::thread::available_parallelism;

pub use pin_budget::{Pin, PinBudget};
pub use row_cache::{KeyHash, RowCache, SealPoint};
pub use stats::CacheStats;

/// Identifies a block for ever: SSTs never change, and file ids are never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockKey {
    /// Id of the file.
    pub file_id: u64,
    /// Offset of the stored block in the file.
    pub offset: u64,
}

impl BlockKey {
    /// The stripe of the counters. Neighbouring blocks lie a few KiB apart, so the offset's bits
    /// from 2 KiB on are used.
    fn stripe(&self) -> usize {
        ((self.offset >> 11) ^ self.file_id) as usize
    }
}

/// A value that a cache can hold. Each reader gets a clone, so it must be cheap to clone.
pub trait Weighted {
    /// Bytes of memory the value takes.
    fn weight(&self) -> u64;
}

#[derive(Clone)]
struct ByWeight;

/// Memory of an entry beside its value, bytes: slot, hash table, its share of the ghost entries,
/// reference counts, allocator headers.
const ENTRY_OVERHEAD: u64 = 160;

impl<V: Weighted> Weighter<BlockKey, V> for ByWeight {
    fn weight(&self, _key: &BlockKey, value: &V) -> u64 {
        value.weight() + ENTRY_OVERHEAD
    }
}

type Inner<V> = Cache<BlockKey, V, ByWeight, DefaultHashBuilder, DefaultLifecycle<BlockKey, V>>;

/// A cache of immutable blocks, weighted by their memory.
///
/// Invariants: A cached value never changes, so no coherence is needed. A missing block is read by
/// one thread while the others wait for it. The sum of weights stays within the capacity, apart
/// from evicted blocks that readers still hold. A block heavier than a quarter of a shard is handed
/// out but not kept, because it would empty its shard.
///
/// The policy is that of `quick_cache`: a block enters a probationary queue and is promoted when it
/// is used again, so a scan that uses each block once does not displace the blocks in use.
///
/// Rejected: a second cache of stored (compressed) blocks (the operating system's page cache is one
/// already); LRU (one scan empties it).
pub struct BlockCache<V> {
    inner: Arc<Inner<V>>,
    pins: Arc<PinBudget>,
    stats: Striped,
}

const AVERAGE_BLOCK: u64 = 8 << 10;
const HEAVIEST_SHARE: u64 = 4;
const SHARDS_PER_CORE: u64 = 4;
/// A shard smaller than this would refuse ordinary blocks.
const SHARD_MIN: u64 = 1 << 20;

impl<V: Weighted + Clone + Send + Sync + 'static> BlockCache<V> {
    /// A cache with a capacity of `capacity` bytes.
    #[allow(clippy::missing_panics_doc)] // No caller can cause it.
    pub fn new(capacity: u64) -> Self {
        let cores = available_parallelism().map_or(1, |n| n.get() as u64);
        let shards = (cores * SHARDS_PER_CORE).min(capacity / SHARD_MIN).max(1);
        let options = OptionsBuilder::new()
            .shards(shards as usize)
            .estimated_items_capacity((capacity / AVERAGE_BLOCK).max(1) as usize)
            .weight_capacity(capacity)
            .build()
            .expect("all required options are set");
        let inner = Cache::with_options(
            options,
            ByWeight,
            DefaultHashBuilder::default(),
            DefaultLifecycle::default(),
        );
        let inner = Arc::new(inner);
        let resized = Arc::clone(&inner);
        Self {
            inner,
            pins: PinBudget::unlimited(Box::new(move |capacity| resized.set_capacity(capacity))),
            stats: Striped::new(),
        }
    }

    /// The block of `key`; `load` loads it if it is missing. With `fill` the loaded block stays in
    /// the cache. Without `fill` (compaction) the cache is read but not changed.
    ///
    /// # Errors
    /// Those of `load`; nothing is cached then, and each waiting thread loads for itself.
    pub fn get_or_load(
        &self,
        key: BlockKey,
        fill: bool,
        load: impl FnOnce() -> Result<V>,
    ) -> Result<V> {
        if !fill {
            if let Some(block) = self.inner.peek(&key) {
                self.stats.hit(key.stripe());
                return Ok(block);
            }
            self.stats.miss(key.stripe());
            return load();
        }
        match self.inner.get_value_or_guard(&key, None) {
            GuardResult::Value(block) => {
                self.stats.hit(key.stripe());
                Ok(block)
            }
            GuardResult::Guard(guard) => {
                self.stats.miss(key.stripe());
                let block = load()?;
                if self.fits(block.weight()) {
                    // Fails only if the entry was removed meanwhile; the caller has its block
                    // anyway.
                    let _ = guard.insert(block.clone());
                }
                Ok(block)
            }
            GuardResult::Timeout => unreachable!("no timeout was given"),
        }
    }

    /// The block of `key` if it is cached. Counts neither as use nor as miss.
    pub fn peek(&self, key: BlockKey) -> Option<V> {
        self.inner.peek(&key)
    }

    /// Inserts a block. Compactions call this so that the successors of cached blocks are cached,
    /// too.
    pub fn insert(&self, key: BlockKey, block: V) {
        if self.fits(block.weight()) {
            self.inner.insert(key, block);
        }
    }

    /// Removes a block that nobody will request again.
    pub fn remove(&self, key: BlockKey) {
        self.inner.remove(&key);
    }

    /// The budget for the memory that the files of the blocks pin.
    pub fn pins(&self) -> &Arc<PinBudget> {
        &self.pins
    }

    /// Changes the capacity, bytes; a smaller one evicts. Pins are not counted in it, and have no
    /// limit.
    pub fn set_capacity(&self, capacity: u64) {
        self.pins.set_limit(u64::MAX);
        self.pins.set_room(None);
        self.inner.set_capacity(capacity);
    }

    /// Blocks and pins share `room` bytes; the memory pinned by choice gets at most `pins` of them.
    pub fn set_room(&self, room: u64, pins: u64) {
        self.pins.set_limit(pins);
        self.pins.set_room(Some(room));
    }

    /// Counters and sizes.
    pub fn stats(&self) -> CacheStats {
        let (hits, misses) = self.stats.sums();
        CacheStats {
            hits,
            misses,
            bytes: self.inner.weight(),
            entries: self.inner.len() as u64,
            capacity: self.inner.capacity(),
        }
    }

    fn fits(&self, weight: u64) -> bool {
        weight <= self.inner.shard_capacity() / HEAVIEST_SHARE
    }
}

#[cfg(test)]
mod tests;
