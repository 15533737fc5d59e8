//! Counters of the cache, striped so that hits on two cores do not share a cache line.

use super::BlockKey;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a cache has done and holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheStats {
    /// Lookups that found their block, those that waited for another reader included.
    pub hits: u64,
    /// Lookups that had to load their block.
    pub misses: u64,
    /// Memory of the cached blocks.
    pub bytes: u64,
    /// Number of cached blocks.
    pub blocks: u64,
    /// Memory the cached blocks may take.
    pub capacity: u64,
}

const STRIPES: usize = 16;

#[derive(Default)]
#[repr(align(64))]
struct Stripe {
    hits: AtomicU64,
    misses: AtomicU64,
}

pub(super) struct Striped([Stripe; STRIPES]);

impl Striped {
    pub(super) fn new() -> Self {
        Self(Default::default())
    }

    // Neighbouring blocks lie a few KiB apart, so the bits above that spread.
    fn of(&self, key: &BlockKey) -> &Stripe {
        &self.0[((key.offset >> 11) ^ key.file_id) as usize % STRIPES]
    }

    pub(super) fn hit(&self, key: &BlockKey) {
        self.of(key).hits.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn miss(&self, key: &BlockKey) {
        self.of(key).misses.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn sums(&self) -> (u64, u64) {
        let sum = |f: fn(&Stripe) -> &AtomicU64| {
            self.0.iter().map(|s| f(s).load(Ordering::Relaxed)).sum()
        };
        (sum(|s| &s.hits), sum(|s| &s.misses))
    }
}
