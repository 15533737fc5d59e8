//! Admission to a full row cache: a row is cached at its second use, if its first use is still
//! remembered.

use super::shard::AVERAGE_ENTRY;
use std::sync::atomic::{AtomicU16, Ordering};

/// Fingerprints of the rows that were used once. The hash of a row selects one slot, and a later
/// row with that slot overwrites the fingerprint. There are about as many slots as rows fit into
/// the cache. So if reads spread uniformly over ten times that many rows, nine in ten rows are
/// forgotten before their second use. To refuse a row costs one load and one store.
///
/// The table need not be exact: a lost or wrong fingerprint only means that one row is cached later
/// or earlier than it should be.
pub(super) struct Admission(Box<[AtomicU16]>);

impl Admission {
    pub(super) fn new(capacity: u64) -> Self {
        let places = (capacity / AVERAGE_ENTRY).next_power_of_two().max(16);
        Self((0..places).map(|_| AtomicU16::new(0)).collect())
    }

    /// Whether an earlier use of the row with this hash is remembered. If not, remembers this use.
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

    /// Bytes of memory that the table takes.
    pub(super) fn bytes(&self) -> u64 {
        (self.0.len() * size_of::<AtomicU16>()) as u64
    }
}
