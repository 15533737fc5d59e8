//! The breaker of a node: open, nobody asks the node.
//!
//! It opens when a connection breaks, when answers miss their deadlines three times in a row, or
//! when a probe is not answered. It is open for 100 ms; then the background thread sends a probe,
//! and each one that fails doubles the time up to 5 s. It begins open, with a probe due at once: so
//! no query waits for a first connection.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Missed deadlines in a row that open the breaker.
const LATE_MAX: u32 = 3;
/// The shortest time that it is open, microseconds.
pub const OPEN_US_MIN: u64 = 100_000;
/// The longest time between two probes, microseconds.
pub const OPEN_US_MAX: u64 = 5_000_000;
/// A breaker that breaks this many times its last pause after it was closed begins anew with the
/// shortest one.
const CALM: u64 = 10;

/// Whether a node may be asked.
pub struct Breaker {
    closed: AtomicBool,
    late: AtomicU32,
    /// When the last late answer was noticed.
    late_at_us: AtomicU64,
    opened: AtomicU64,
    pause: Mutex<ProbePause>,
}

struct ProbePause {
    pause_us: u64,
    probe_at_us: u64,
    closed_at_us: u64,
}

impl Breaker {
    /// Open, with a probe due.
    pub fn new() -> Self {
        let pause = ProbePause {
            pause_us: OPEN_US_MIN,
            probe_at_us: 0,
            closed_at_us: 0,
        };
        Self {
            closed: AtomicBool::new(false),
            late: AtomicU32::new(0),
            late_at_us: AtomicU64::new(0),
            opened: AtomicU64::new(0),
            pause: Mutex::new(pause),
        }
    }

    /// Whether the node may be asked.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    /// How often it has opened.
    pub fn opened(&self) -> u64 {
        self.opened.load(Relaxed)
    }

    /// An answer came in time.
    pub fn on_time(&self) {
        if self.late.load(Relaxed) != 0 {
            self.late.store(0, Relaxed);
        }
    }

    /// The answer to a request that was sent at `sent_us` missed its deadline. Requests that were
    /// under way when another one was found late count with that one: one hiccup of the node, or of
    /// this machine, is one. Returns whether this has opened the breaker.
    pub fn on_late(&self, sent_us: u64, now_us: u64) -> bool {
        if sent_us <= self.late_at_us.swap(now_us, Relaxed) {
            return false;
        }
        self.late.fetch_add(1, Relaxed) + 1 >= LATE_MAX && self.open(now_us, false)
    }

    /// A probe missed its deadline while others waited. Returns as [`Self::on_late`].
    pub fn on_silent(&self, now_us: u64) -> bool {
        self.open(now_us, false)
    }

    /// A connection broke. Returns whether this has opened the breaker.
    pub fn on_broken(&self, now_us: u64) -> bool {
        self.open(now_us, true)
    }

    /// Only what breaks again soon after a probe waits longer each time; lateness alone does not.
    fn open(&self, now_us: u64, doubles: bool) -> bool {
        let mut pause = self.pause.lock();
        if !self.closed.swap(false, Relaxed) {
            return false;
        }
        self.opened.fetch_add(1, Relaxed);
        let calm = now_us.saturating_sub(pause.closed_at_us) >= pause.pause_us * CALM;
        pause.pause_us = if calm || !doubles {
            OPEN_US_MIN
        } else {
            (pause.pause_us * 2).min(OPEN_US_MAX)
        };
        pause.probe_at_us = now_us + pause.pause_us;
        true
    }

    /// When the next probe is due; none while it is closed.
    pub fn probe_at_us(&self) -> Option<u64> {
        let pause = self.pause.lock();
        (!self.is_closed()).then_some(pause.probe_at_us)
    }

    /// A probe was not answered.
    pub fn probe_failed(&self, now_us: u64) {
        let mut pause = self.pause.lock();
        pause.probe_at_us = now_us + pause.pause_us;
        pause.pause_us = (pause.pause_us * 2).min(OPEN_US_MAX);
    }

    /// A probe was answered: the breaker closes.
    pub fn close(&self, now_us: u64) {
        let mut pause = self.pause.lock();
        pause.closed_at_us = now_us;
        self.late.store(0, Relaxed);
        self.closed.store(true, Relaxed);
    }
}

#[cfg(test)]
mod tests;
