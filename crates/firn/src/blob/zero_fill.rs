//! Zeros written ahead of a file's data, so that syncs get cheaper.
//!
//! The sync of a file that grows also waits for the file system's journal, because length and
//! blocks are new. So does a sync into blocks that were only allocated, since they become written
//! ones. Only a sync into written blocks is one write and one flush of the device instead of two.
//! So zeros are written ahead, without a sync of their own: the next sync that would have waited
//! for the journal makes them durable with its own bytes.
//!
//! Zeros cost as many bytes again, and a sync without the journal saves some 12 to 20 KiB and a
//! flush. So they are written only where syncs carry few bytes: lone commits of small values.
//! Loads, many clients and large values need none.

use crate::env::BLOCK;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// No zeros are written where syncs carry more bytes than this.
const SYNC_BYTES_MAX: u64 = 48 << 10;

/// Zeros are written for this many syncs; one of them waits for the journal.
const SYNCS_AHEAD: u64 = 32;

/// The state of a file's zeros.
///
/// Rejected: `fallocate` (measured: syncs still wait for the journal, only fewer bytes go there); a
/// thread that writes zeros, as for the log (a file takes at most 1.5 MiB of them, into the page
/// cache); reuse of garbage's room (a span is written once: that makes a torn span harmless).
#[derive(Default)]
pub(super) struct ZeroFill {
    /// End offset of the zeros; 0 without any.
    zeroed: AtomicU64,
    /// Moving average of the bytes per sync; 0 before the first sync.
    sync_bytes: AtomicU64,
    /// Writing zeros has failed, on a full disk say.
    given_up: AtomicBool,
}

impl ZeroFill {
    /// Records a sync of `bytes` bytes. Calls must not overlap.
    pub(super) fn synced(&self, bytes: u64) {
        let recent = match self.sync_bytes.load(Ordering::Relaxed) {
            0 => bytes,
            recent => (3 * recent + bytes) / 4,
        };
        self.sync_bytes.store(recent, Ordering::Relaxed);
    }

    /// The range to fill with zeros before a span that ends at `next` is written to a file with
    /// size limit `limit`. The caller of this and the calls below holds the mutex that guards the
    /// growth of the file.
    pub(super) fn wanted(&self, next: u64, limit: u64) -> Option<Range<u64>> {
        let bytes = self.sync_bytes.load(Ordering::Relaxed);
        let few = (1..=SYNC_BYTES_MAX).contains(&bytes);
        if !few || next <= self.zeroed() || self.given_up.load(Ordering::Relaxed) {
            return None;
        }
        let end = next + bytes * SYNCS_AHEAD;
        let end = end.next_multiple_of(BLOCK as u64).min(limit);
        (next < end).then_some(next..end)
    }

    /// Records zeros up to `end`.
    pub(super) fn filled(&self, end: u64) {
        self.zeroed.store(end, Ordering::Relaxed);
    }

    /// Stops writing zeros for good.
    pub(super) fn give_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
    }

    /// End offset of the zeros; 0 without any.
    pub(super) fn zeroed(&self) -> u64 {
        self.zeroed.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests;
