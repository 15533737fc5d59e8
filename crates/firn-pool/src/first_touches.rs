//! The sketch of first touches: which blocks were loaded from a file lately. A block that is
//! loaded a second time is one that the block cache could not hold.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Two loads within this time, seconds, count as a second load.
pub const WINDOW_S: u64 = 600;

/// Places that a block may take.
const WAYS: usize = 4;

/// A sketch: 4 bytes a touch, a tag of the block and the second of its touch. It may forget a
/// touch when it is full, and takes one of 8,000 first touches for a second one.
pub struct FirstTouches {
    sets: usize,
    /// Made at the first touch: a pool that is off takes no memory for it.
    table: OnceLock<Box<[[AtomicU32; WAYS]]>>,
}

impl FirstTouches {
    /// A sketch with room for `touches`.
    pub fn new(touches: u64) -> Self {
        Self {
            sets: (touches / WAYS as u64).max(16) as usize,
            table: OnceLock::new(),
        }
    }

    /// Notes a load at `now_s`. Returns whether it is the second one within the window; the block
    /// then counts as not loaded yet.
    pub fn is_second(&self, short: u64, now_s: u64) -> bool {
        let empty = || (0..self.sets).map(|_| Default::default()).collect();
        let table = self.table.get_or_init(empty);
        let set = (u128::from(short << 16) * table.len() as u128) >> 64;
        let set = &table[set as usize];
        // Times wrap after 18 hours; 0 is an empty place.
        let (tag, time) = ((short >> 48) as u32, (now_s % 0xffff) as u32 + 1);
        let age = |place: u32| match place & 0xffff {
            0 => u32::MAX,
            then => (time + 0xffff - then) % 0xffff,
        };
        let mut oldest = (0, 0);
        for (way, place) in set.iter().enumerate() {
            let value = place.load(Relaxed);
            let age = age(value);
            if value >> 16 == tag && u64::from(age) <= WINDOW_S {
                place.store(0, Relaxed);
                return true;
            }
            if age >= oldest.1 {
                oldest = (way, age);
            }
        }
        set[oldest.0].store(tag << 16 | time, Relaxed);
        false
    }
}

#[cfg(test)]
mod tests;
