//! Zeros that are written behind the last blob of a file, to make syncs cheaper.
//!
//! When a file has grown, its sync also waits for the file system's journal, because the file's
//! length and blocks are new. The same holds if the blocks were only allocated before, because the
//! journal records that they are written now. Only if all blocks were written before, the device
//! needs one write and one flush for a sync; otherwise it needs two of each, for the file and for
//! the journal. So zeros are written ahead of the blobs. They need no sync of their own: the next
//! sync of the file makes them durable, and waits for the journal once.
//!
//! With zeros, each byte of the file is written twice, but each sync that leaves out the journal
//! saves 12 to 20 KiB of writes and a flush. So zeros are written only where syncs carry few bytes:
//! with single commits of small values. They do not help with bulk loads, many clients or large
//! values.

use crate::env::BLOCK;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// No zeros are written if [`ZeroFill::sync_bytes`] is above this.
const SYNC_BYTES_MAX: u64 = 48 << 10;

/// Each fill writes zeros for about this many syncs of average size. The first of these syncs waits
/// for the journal, the others do not.
const SYNCS_AHEAD: u64 = 32;

/// The state of the zero fill of one file.
///
/// Rejected: `fallocate`. In measurements, syncs still waited for the journal, though fewer bytes
/// went there.
/// Rejected: a thread of its own that writes the zeros, as the log has one. A file gets at most 1.5
/// MiB of zeros at once, and they go only to the page cache, so a writer of blobs hardly waits for
/// them.
/// Rejected: to write new blobs over garbage, in blocks that were written before. A write that a
/// crash tears is harmless only because each span is written once.
#[derive(Default)]
pub(super) struct ZeroFill {
    /// Offset where the zeros end; 0 if there are none.
    zeroed: AtomicU64,
    /// Moving average of the bytes that one sync of the file makes durable; the latest sync has a
    /// weight of 1/4. 0 before the first sync.
    sync_bytes: AtomicU64,
    /// Writing zeros has failed, for example on a full disk, and is not tried again.
    given_up: AtomicBool,
}

impl ZeroFill {
    /// Records that a sync made `bytes` bytes of blobs durable, for the average by which fills are
    /// sized. Calls must not overlap.
    pub(super) fn synced(&self, bytes: u64) {
        let recent = match self.sync_bytes.load(Ordering::Relaxed) {
            0 => bytes,
            recent => (3 * recent + bytes) / 4,
        };
        self.sync_bytes.store(recent, Ordering::Relaxed);
    }

    /// The range to fill with zeros, when a span that ends at `next` has been reserved in a file
    /// with size limit `limit`; `None` if no zeros are needed. The callers of this method and of
    /// the methods below hold the store's `active` mutex, or `linking` write-locked if the file is
    /// sealed.
    pub(super) fn next_fill(&self, next: u64, limit: u64) -> Option<Range<u64>> {
        let bytes = self.sync_bytes.load(Ordering::Relaxed);
        let few = (1..=SYNC_BYTES_MAX).contains(&bytes);
        if !few || next <= self.zeroed() || self.given_up.load(Ordering::Relaxed) {
            return None;
        }
        let end = next + bytes * SYNCS_AHEAD;
        let end = end.next_multiple_of(BLOCK as u64).min(limit);
        (next < end).then_some(next..end)
    }

    /// Records the offset `end` at which the zeros now end; 0 says that there are none any more.
    pub(super) fn filled(&self, end: u64) {
        self.zeroed.store(end, Ordering::Relaxed);
    }

    /// Ends the zero fill of this file for good.
    pub(super) fn give_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
    }

    /// Offset where the zeros end; 0 if there are none.
    pub(super) fn zeroed(&self) -> u64 {
        self.zeroed.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests;
