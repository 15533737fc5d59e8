//! Zeros ahead of what a file holds.
//!
//! The sync of a file that grows waits for the file system's journal, too: its length and its blocks are new. So
//! does one into blocks that were only set aside, which become written ones. Only into written blocks a sync
//! is a write and one flush of the device, not two. So zeros are written ahead, by the way: the next sync
//! that would have waited for the journal makes them durable with its own bytes.
//!
//! They cost a byte each, and a sync without the journal saves some 12 to 20 KiB and a flush. So they are
//! written where syncs come with few bytes: of lone commits of small values. Loads, many clients and
//! large values need none.

use crate::env::BLOCK;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// No zeros where syncs have more bytes than this each.
const SYNC_BYTES_MAX: u64 = 48 << 10;

/// Zeros for so many syncs: one in so many waits for the journal.
const SYNCS_AHEAD: u64 = 32;

/// How far a file was filled ahead, and whether it should be.
///
/// Rejected: `fallocate` (measured: the journal is waited for as before, only fewer bytes go there); zeros by a
/// thread, as for the log (a file takes at most 1.5 MiB of them, into the page cache); using the room of garbage again
/// (a span is written once: that is what makes a torn one harmless).
#[derive(Default)]
pub(super) struct Ahead {
    /// The end of the zeros; 0 without any.
    zeroed: AtomicU64,
    /// Bytes that a sync has, of late; 0 before the first.
    sync_bytes: AtomicU64,
    /// The disk was too full.
    given_up: AtomicBool,
}

impl Ahead {
    /// A sync made so many bytes durable. One at a time.
    pub(super) fn synced(&self, bytes: u64) {
        let recent = match self.sync_bytes.load(Ordering::Relaxed) {
            0 => bytes,
            recent => (3 * recent + bytes) / 4,
        };
        self.sync_bytes.store(recent, Ordering::Relaxed);
    }

    /// What is to be filled before a span that ends at `next` is written to a file that is full at `limit`.
    /// Under the mutex that guards who may grow the file, as the calls below.
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

    /// It was filled up to `end`.
    pub(super) fn filled(&self, end: u64) {
        self.zeroed.store(end, Ordering::Relaxed);
    }

    /// It cannot be filled, and is not asked for any more.
    pub(super) fn give_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
    }

    /// Where the zeros end; 0 without any.
    pub(super) fn zeroed(&self) -> u64 {
        self.zeroed.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests;
