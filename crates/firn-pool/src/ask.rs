//! Whether asking a node pays: a class whose share of hits on the node is p asks if p > P / L,
//! where P is the time of an answer of the node and L the time of a read of the file.
//!
//! A read of a scan or of a large value is many bytes in several answers. So P is the time that
//! such a read took from the pool, where the caller reports it, but never less than an answer.
//!
//! ```text
//! disk of 120 µs, window of 256 KiB: an answer 50 µs < L = 130 µs < the window 300 µs: the file
//! ```
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

/// The times of reads, from files and from the pool.
#[derive(Default)]
pub struct ReadCosts {
    /// From files.
    pub files: ReadTimes,
    /// From the pool: reads for which the caller would have read the file once.
    pub pool: ReadTimes,
}

/// Times of reads, by class.
#[derive(Default)]
pub struct ReadTimes([ReadTime; CLASSES]);

struct ReadTime {
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

impl Default for ReadTime {
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

    /// Whether asking the node pays, which answers after `answer_us`.
    pub fn pays(&self, costs: &ReadCosts, class: Class, answer_us: f64) -> bool {
        let share = f64::from(self.0[class.index()].share.load(Relaxed)) / f64::from(ONE);
        costs.pays(class, share, answer_us)
    }

    /// Whether the node is asked although it does not pay.
    pub fn tries(&self, class: Class) -> bool {
        self.0[class.index()].refusals.fetch_add(1, Relaxed) % TRIES == TRIES - 1
    }
}

impl ReadCosts {
    /// Whether asking a node pays that has this share of the blocks and answers after `answer_us`.
    pub fn pays(&self, class: Class, share: f64, answer_us: f64) -> bool {
        match (self.files.us(class), self.pool.us(class)) {
            (Some(file_us), pool_us) => share * file_us > pool_us.unwrap_or(0.0).max(answer_us),
            // The time of the file is not known. After the first measured read from the pool the
            // file is read: else a pool that has everything would never be compared.
            (None, pool_us) => pool_us.is_none(),
        }
    }
}

impl ReadTimes {
    fn us(&self, class: Class) -> Option<f64> {
        let time = &self.0[class.index()];
        time.is_known.load(Relaxed).then(|| time.us.us())
    }

    /// A read took so many microseconds.
    pub fn on_read(&self, class: Class, us: u64) {
        let time = &self.0[class.index()];
        if time.is_known.load(Relaxed) {
            time.us.add(us);
        } else {
            time.us.set(us);
            time.is_known.store(true, Relaxed);
        }
    }

    /// A class that does not pay has asked nevertheless. That was one block, so it does not show
    /// what a whole read takes now. Instead the old time fades until a whole read is made.
    pub fn on_try(&self, class: Class) {
        self.0[class.index()].us.fade();
    }
}

#[cfg(test)]
mod tests;
