//! The block cache: keeps decoded data blocks and index partitions of SSTs.

use super::pin_budget::PinBudget;
use super::stats::{CacheStats, Striped};
use crate::base::Result;
use quick_cache::sync::{Cache, DefaultLifecycle, GuardResult};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};
use std::sync::Arc;
use std::thread::available_parallelism;

/// Identifies a block for ever, because SSTs never change and file ids are never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockKey {
    /// Id of the SST.
    pub file_id: u64,
    /// Offset of the stored block in the file.
    pub offset: u64,
}

impl BlockKey {
    /// The number of the stripe of the hit counters that counts lookups of this block. It leaves
    /// out the lowest 11 bits of the offset: neighbouring blocks lie a few KiB apart, so they still
    /// get different numbers.
    fn stripe(&self) -> usize {
        ((self.offset >> 11) ^ self.file_id) as usize
    }
}

/// A value that the block cache can hold. Each lookup clones the value, so cloning must be cheap.
pub trait Weighted {
    /// Bytes of memory that the value takes.
    fn weight(&self) -> u64;
}

#[derive(Clone)]
struct ByWeight;

/// Bytes of memory that a cached block takes besides its value: slot, hash table entry, share of
/// the ghost entries (keys of evicted blocks), reference counts, allocator headers.
const ENTRY_OVERHEAD: u64 = 160;

impl<V: Weighted> Weighter<BlockKey, V> for ByWeight {
    fn weight(&self, _key: &BlockKey, value: &V) -> u64 {
        value.weight() + ENTRY_OVERHEAD
    }
}

type Inner<V> = Cache<BlockKey, V, ByWeight, DefaultHashBuilder, DefaultLifecycle<BlockKey, V>>;

/// A cache of immutable blocks, weighted by their memory.
///
/// Invariants: a cached value never changes, so no coherence protocol is needed. If several threads
/// miss the same block, one loads it and the others wait. The sum of weights stays within the
/// capacity, apart from evicted blocks that readers still hold. A block heavier than a quarter of a
/// shard is returned but not cached, because it would evict most of its shard.
///
/// The policy is that of `quick_cache`: a block enters a probationary queue and is promoted when it
/// is used again, so a scan that uses each block once does not displace the blocks in use.
///
/// Rejected: a second cache of stored (compressed) blocks, because the operating system's page
/// cache already is one.
/// Rejected: LRU, because one large scan evicts everything.
pub struct BlockCache<V> {
    inner: Arc<Inner<V>>,
    pins: Arc<PinBudget>,
    stats: Striped,
}

const AVERAGE_BLOCK: u64 = 8 << 10;
const HEAVIEST_SHARE: u64 = 4;
const SHARDS_PER_CORE: u64 = 4;
/// Smallest capacity of a shard in bytes; a smaller one would refuse ordinary blocks.
const SHARD_MIN: u64 = 1 << 20;

impl<V: Weighted + Clone + Send + Sync + 'static> BlockCache<V> {
    /// Creates a cache with a capacity of `capacity` bytes.
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

    /// The block with key `key`; if it is not cached, `load` loads it. With `fill`, the loaded
    /// block is put into the cache. Without (for compactions), it is not, and the call changes
    /// nothing in the cache.
    ///
    /// # Errors
    /// Those of `load`. Then nothing is cached, and each thread that waited calls its own `load`.
    pub fn get_or_load(
        &self,
        key: BlockKey,
        fill: bool,
        load: impl FnOnce() -> Result<V>,
    ) -> Result<V> {
        let mut hit = true;
        let block = self.get_or_load_uncounted(key, fill, || {
            hit = false;
            self.stats.miss(key.stripe());
            load()
        })?;
        if hit {
            self.stats.hit(key.stripe());
        }
        Ok(block)
    }

    /// As [`Self::get_or_load`], but counts neither as a hit nor as a miss: for what `load` of a
    /// block needs beside the block.
    ///
    /// # Errors
    /// As [`Self::get_or_load`].
    #[inline]
    pub fn get_or_load_uncounted(
        &self,
        key: BlockKey,
        fill: bool,
        load: impl FnOnce() -> Result<V>,
    ) -> Result<V> {
        if !fill {
            return match self.inner.peek(&key) {
                Some(block) => Ok(block),
                None => load(),
            };
        }
        match self.inner.get_value_or_guard(&key, None) {
            GuardResult::Value(block) => Ok(block),
            GuardResult::Guard(guard) => {
                let block = load()?;
                if self.fits(block.weight()) {
                    // Ignore an error: the insert fails only if another thread removed the block's
                    // key from the cache meanwhile, and the caller has its block anyway.
                    let _ = guard.insert(block.clone());
                }
                Ok(block)
            }
            GuardResult::Timeout => unreachable!("no timeout was given"),
        }
    }

    /// The block with key `key` if it is cached. Counts neither as a use nor as a hit or miss.
    pub fn peek(&self, key: BlockKey) -> Option<V> {
        self.inner.peek(&key)
    }

    /// Caches a block. The cache handover calls this when a compaction has replaced files whose
    /// blocks were cached.
    pub fn insert(&self, key: BlockKey, block: V) {
        if self.fits(block.weight()) {
            self.inner.insert(key, block);
        }
    }

    /// Removes a block that nobody will request again.
    pub fn remove(&self, key: BlockKey) {
        self.inner.remove(&key);
    }

    /// The budget for the memory that open SSTs pin.
    pub fn pins(&self) -> &Arc<PinBudget> {
        &self.pins
    }

    /// Sets the capacity for blocks to `capacity` bytes, which pins do not share. If more blocks
    /// are cached, evicts some. From this call until [`Self::set_room`], the memory that open SSTs
    /// pin does not reduce the capacity, and [`PinBudget::grant`] grants every pin.
    pub fn set_capacity(&self, capacity: u64) {
        self.pins.set_limit(u64::MAX);
        self.pins.set_room(None);
        self.inner.set_capacity(capacity);
    }

    /// Makes the cached blocks and the memory that open SSTs pin share `room` bytes: the more is
    /// pinned, the less the blocks get. [`PinBudget::grant`] refuses a pin that would bring the
    /// pinned memory above `pins` bytes.
    pub fn set_room(&self, room: u64, pins: u64) {
        self.pins.set_limit(pins);
        self.pins.set_room(Some(room));
    }

    /// Counters and sizes of the cache.
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
