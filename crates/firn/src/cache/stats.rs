//! Counters of a cache, striped so that hits on two cores do not share a cache line.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters and sizes of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheStats {
    /// Lookups that found their entry, including those that waited for another reader to load it.
    pub hits: u64,
    /// Lookups that did not find it.
    pub misses: u64,
    /// Memory of the entries and of the cache's own structures, bytes.
    pub bytes: u64,
    /// Number of entries.
    pub entries: u64,
    /// Capacity for the entries, bytes.
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
