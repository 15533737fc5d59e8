//! Whether asking a node pays: a class whose share of hits on the node is p asks if p > P / L,
//! where
//! P is the time of an answer of the node and L the time of a read of the file.
//!
//! The share is the node's own, so one that came back empty does not spoil the others.

use crate::class::{CLASSES, Class};
use crate::latency::MeanLatency;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

/// A share of 1.
const ONE: u32 = 1 << 16;
/// Share of a new answer in the measured share of hits: 1/64.
const SHIFT: u32 = 6;
/// A class that does not pay asks once in so many times, to find out when that changes.
const TRIES: u32 = 32;

/// Shares of hits of one node, by class.
#[derive(Default)]
pub struct HitShares([HitShare; CLASSES]);

#[repr(align(64))]
struct HitShare {
    share: AtomicU32,
    refusals: AtomicU32,
}

/// Times of reads of files, by class.
#[derive(Default)]
pub struct FileTimes([FileTime; CLASSES]);

struct FileTime {
    us: MeanLatency,
    is_known: AtomicBool,
}

impl Default for HitShare {
    /// It hits until it is seen to miss.
    fn default() -> Self {
        Self {
            share: AtomicU32::new(ONE),
            refusals: AtomicU32::new(0),
        }
    }
}

impl Default for FileTime {
    fn default() -> Self {
        Self {
            us: MeanLatency::new(0),
            is_known: AtomicBool::new(false),
        }
    }
}

impl HitShares {
    /// The node has answered.
    pub fn on_answer(&self, class: Class, hit: bool) {
        let share = &self.0[class.index()].share;
        let old = share.load(Relaxed);
        let new = if hit {
            old + ((ONE - old) >> SHIFT)
        } else {
            old - (old >> SHIFT)
        };
        share.store(new, Relaxed);
    }

    /// Whether asking the node pays, which answers after `pool_us`.
    pub fn pays(&self, files: &FileTimes, class: Class, pool_us: f64) -> bool {
        let file = &files.0[class.index()];
        let share = f64::from(self.0[class.index()].share.load(Relaxed)) / f64::from(ONE);
        !file.is_known.load(Relaxed) || share * file.us.us() > pool_us
    }

    /// Whether the node is asked although it does not pay.
    pub fn tries(&self, class: Class) -> bool {
        self.0[class.index()].refusals.fetch_add(1, Relaxed) % TRIES == TRIES - 1
    }
}

impl FileTimes {
    /// A block was read from its file in so many microseconds.
    pub fn on_file_read(&self, class: Class, us: u64) {
        let file = &self.0[class.index()];
        if file.is_known.swap(true, Relaxed) {
            file.us.add(us);
        } else {
            file.us.set(us);
        }
    }
}

#[cfg(test)]
mod tests;
