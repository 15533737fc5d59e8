//! Counters of the pool, and the figures that reports show.

use crate::class::{CLASSES, Class};
use crate::latency::{BUCKETS, Histogram};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Defines counters and their snapshot with the same fields.
macro_rules! counters {
    ($(#[$of:meta])* $name:ident, $(#[$snap:meta])* $snapshot:ident { $($(#[$doc:meta])* $field:ident,)* }) => {
        $(#[$of])*
        #[derive(Default)]
        #[repr(align(64))]
        pub struct $name { $($(#[$doc])* pub $field: AtomicU64,)* }

        $(#[$snap])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct $snapshot { $($(#[$doc])* pub $field: u64,)* }

        impl $name {
            /// The figures of now.
            pub fn snapshot(&self) -> $snapshot {
                $snapshot { $($field: self.$field.load(Relaxed),)* }
            }
        }
    };
}

counters! {
    /// Counts of one class on one node.
    ClassCounters,
    /// Figures of one class on one node.
    ClassStats {
        /// Blocks that the node was asked for.
        gets,
        /// Blocks that it had.
        hits,
        /// Blocks that it did not have.
        misses,
        /// Blocks whose answer missed the deadline.
        late,
        /// Blocks whose connection broke.
        broken,
        /// Values that were not what was put: wrong name, length, key or checksum.
        lying,
        /// Stored bytes of the hits.
        hit_bytes,
        /// Blocks that were put.
        puts,
        /// Stored bytes of the puts.
        put_bytes,
        /// Puts that were given up: queue full, breaker open, broken connection, refused.
        dropped_puts,
    }
}

counters! {
    /// Blocks of one class for which no node was asked.
    SkipCounters,
    /// Figures of blocks of one class for which no node was asked.
    SkipStats {
        /// Not in the fingerprint table.
        unknown,
        /// The class hits too rarely for what an answer costs.
        unprofitable,
        /// The breaker of the node is open.
        open_breaker,
        /// The node owes a late answer, or the call has no time left.
        silent,
        /// All connections to the node are in use.
        busy,
    }
}

/// Counters of one node.
#[derive(Default)]
pub struct NodeCounters {
    /// By class.
    pub classes: [ClassCounters; CLASSES],
    /// Times of answers that came before the deadline.
    pub latency: Histogram,
}

impl NodeCounters {
    /// The counters of a class.
    pub fn of(&self, class: Class) -> &ClassCounters {
        &self.classes[class.index()]
    }
}

/// Adds to a counter.
pub(crate) fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Relaxed);
}

/// Figures of a node.
#[derive(Clone, PartialEq, Debug)]
pub struct NodeStats {
    /// Address as in the list.
    pub address: String,
    /// Weight in the list.
    pub weight: u32,
    /// Whether the breaker is open.
    pub breaker_open: bool,
    /// How often the breaker has opened.
    pub breaker_opened: u64,
    /// Why the last connect has failed; empty if it has not.
    pub connect_error: String,
    /// Bytes that the node uses for values, when it was last asked.
    pub used_bytes: u64,
    /// Bytes that it may use.
    pub limit_bytes: u64,
    /// Values that it has.
    pub items: u64,
    /// Values that it has evicted.
    pub evictions: u64,
    /// Mean time of an answer, microseconds.
    pub latency_us: f64,
    /// Counts of times of answers; see [`Histogram`].
    pub latency_counts: [u64; BUCKETS],
    /// By class, in the order of [`Class::ALL`].
    pub classes: [ClassStats; CLASSES],
}

/// Figures of the pool.
#[derive(Clone, PartialEq, Debug)]
pub struct PoolStats {
    /// By node.
    pub nodes: Vec<NodeStats>,
    /// By class, in the order of [`Class::ALL`].
    pub skips: [SkipStats; CLASSES],
    /// Fingerprints in the table.
    pub fingerprints: u64,
    /// Bytes of the table.
    pub fingerprint_bytes: u64,
    /// Values that wait to be put.
    pub queued_puts: u64,
    /// Their bytes.
    pub queued_bytes: u64,
    /// Hot blocks that have a second copy.
    pub hot_blocks: u64,
}
