//! Admission to a full cache: a row enters at its second use, while its first one is remembered.

use super::shard::AVERAGE_ENTRY;
use std::sync::atomic::{AtomicU16, Ordering};

/// Fingerprints of rows used once. Each hash has one slot, and a later row overwrites it. There are
/// about as many slots as the cache has rows: under uniform reads of ten times the cache, nine in
/// ten rows are forgotten in time, and refusing one costs a load and a store.
///
/// Exactness is not needed: a lost or a false fingerprint costs one fill too few or too many.
pub(super) struct Admission(Box<[AtomicU16]>);

impl Admission {
    pub(super) fn new(capacity: u64) -> Self {
        let places = (capacity / AVERAGE_ENTRY).next_power_of_two().max(16);
        Self((0..places).map(|_| AtomicU16::new(0)).collect())
    }

    /// Whether this is the second use of the row.
    #[inline]
    pub(super) fn admits(&self, hash: u64) -> bool {
        let place = &self.0[hash as usize & (self.0.len() - 1)];
        let fingerprint = (hash >> 48) as u16;
        if place.load(Ordering::Relaxed) == fingerprint {
            return true;
        }
        place.store(fingerprint, Ordering::Relaxed);
        false
    }

    /// Memory of the table, bytes.
    pub(super) fn bytes(&self) -> u64 {
        (self.0.len() * size_of::<AtomicU16>()) as u64
    }
}
