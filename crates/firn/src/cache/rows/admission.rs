//! Who may enter a full cache: a row that is asked for a second time while its first time is remembered.

use super::shard::AVERAGE_ENTRY;
use std::sync::atomic::{AtomicU16, Ordering};

/// Fingerprints of rows that were asked for once, each in the only place it may have, until another
/// takes it. About as many places as the cache has rows: under uniform reads of ten times the
/// cache nine in ten are forgotten in time, and refusing them costs a load and a store.
///
/// Nothing here is exact: a lost or a false memory costs one fill too few or too many.
pub(super) struct Admission(Box<[AtomicU16]>);

impl Admission {
    pub(super) fn new(capacity: u64) -> Self {
        let places = (capacity / AVERAGE_ENTRY).next_power_of_two().max(16);
        Self((0..places).map(|_| AtomicU16::new(0)).collect())
    }

    /// Whether this is the second time.
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

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> u64 {
        (self.0.len() * size_of::<AtomicU16>()) as u64
    }
}
