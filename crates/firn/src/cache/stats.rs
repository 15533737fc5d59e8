//! Counters of a cache. They are divided into stripes, so that hits on two cores seldom write to
//! the same cache line.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters and sizes of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheStats {
    /// Lookups that found their entry, or waited while another thread loaded it.
    pub hits: u64,
    /// Lookups that did not find their entry.
    pub misses: u64,
    /// Bytes of memory that the cache takes: its entries, and the tables that it needs for them.
    pub bytes: u64,
    /// Number of entries.
    pub entries: u64,
    /// Capacity for the entries in bytes.
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

    pub(super) fn hit(&self, at: usize) {
        self.0[at % STRIPES].hits.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn miss(&self, at: usize) {
        self.0[at % STRIPES].misses.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn sums(&self) -> (u64, u64) {
        let sum = |f: fn(&Stripe) -> &AtomicU64| {
            self.0.iter().map(|s| f(s).load(Ordering::Relaxed)).sum()
        };
        (sum(|s| &s.hits), sum(|s| &s.misses))
    }
}
