//! A clock that moves when somebody sleeps.

use crate::env::Clock;
use crate::random::SplitMix64;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// The first time that the clock shows, seconds since 1970.
const START_S: u64 = 1_700_000_000;

/// Begins at zero.
pub struct VirtualClock {
    now_us: AtomicU64,
    random: Mutex<SplitMix64>,
}

impl VirtualClock {
    /// A clock whose random numbers depend on the seed.
    pub fn new(seed: u64) -> Self {
        Self {
            now_us: AtomicU64::new(0),
            random: Mutex::new(SplitMix64::new(seed)),
        }
    }
}

impl Clock for VirtualClock {
    fn now_us(&self) -> u64 {
        self.now_us.load(SeqCst)
    }

    fn unix_s(&self) -> u64 {
        START_S + self.now_us() / 1_000_000
    }

    fn sleep_us(&self, us: u64) {
        self.now_us.fetch_add(us, SeqCst);
    }

    fn random(&self) -> u64 {
        self.random.lock().draw()
    }
}
