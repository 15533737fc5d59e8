//! Blocks that are asked for so often that one node would become the bottleneck.
//!
//! A sketch counts some of the gets of the 1,024 blocks that are asked for most. A block with more
//! than 1 / (8 n) of the gets of n nodes is hot: it gets a copy on its second node. At most 8 n
//! blocks are hot at a time, and with many nodes at most 64: a short list holds them.

use crate::random::mixed;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Blocks that are hot at a time, at most.
const HOT_MAX: usize = 64;
/// One get in so many is counted.
const SAMPLING: u64 = 4;
const SETS: usize = 256;
const WAYS: usize = 4;
/// Counted gets before any block is hot.
const TOTAL_MIN: u64 = 512;
/// Counted gets after which all counts are halved.
const TOTAL_MAX: u64 = 16_384;

/// Whether a block is hot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heat {
    /// It is not.
    Cold,
    /// It is, and its second node has no copy yet.
    Hot,
    /// It is, and the copy is on its way.
    Ordered,
    /// It is, and its second node has taken a copy.
    Copied,
}

/// The sketch, and the list of hot blocks.
pub struct HotBlocks {
    gets: AtomicU64,
    sketch: Mutex<Sketch>,
    /// Blocks by [`crate::name::Name::short`]; 0 is an empty place.
    hot: [AtomicU64; HOT_MAX],
    /// A bit for each place of `hot`: a copy is on its way.
    ordered: AtomicU64,
    /// As `ordered`: the second node has a copy.
    copied: AtomicU64,
    /// Places in use; a get looks no further while there are none.
    count: AtomicU64,
}

struct Sketch {
    sets: Vec<[(u64, u32); WAYS]>,
    total: u64,
}

impl HotBlocks {
    /// Nothing is hot.
    pub fn new() -> Self {
        Self {
            gets: AtomicU64::new(0),
            sketch: Mutex::new(Sketch {
                sets: vec![[(0, 0); WAYS]; SETS],
                total: 0,
            }),
            hot: std::array::from_fn(|_| AtomicU64::new(0)),
            ordered: AtomicU64::new(0),
            copied: AtomicU64::new(0),
            count: AtomicU64::new(0),
        }
    }

    /// Blocks that are hot and have a copy.
    pub fn copied(&self) -> u64 {
        u64::from(self.copied.load(Relaxed).count_ones())
    }

    /// Whether a block is hot.
    pub fn heat(&self, short: u64) -> Heat {
        match self.place_of(short) {
            None => Heat::Cold,
            Some(place) if self.copied.load(Relaxed) >> place & 1 == 1 => Heat::Copied,
            Some(place) if self.ordered.load(Relaxed) >> place & 1 == 1 => Heat::Ordered,
            Some(_) => Heat::Hot,
        }
    }

    /// Notes how far the copy of a block is, if the block is hot.
    pub fn set_heat(&self, short: u64, heat: Heat) {
        let Some(place) = self.place_of(short) else {
            return;
        };
        for (bits, is_set) in [
            (&self.ordered, heat == Heat::Ordered),
            (&self.copied, heat == Heat::Copied),
        ] {
            match is_set {
                true => bits.fetch_or(1 << place, Relaxed),
                false => bits.fetch_and(!(1 << place), Relaxed),
            };
        }
    }

    /// Marks a hot block as ordered. Returns whether the caller is the one to order the copy.
    pub fn claim(&self, short: u64) -> bool {
        let Some(place) = self.place_of(short) else {
            return false;
        };
        let bit = 1 << place;
        self.copied.load(Relaxed) & bit == 0 && self.ordered.fetch_or(bit, Relaxed) & bit == 0
    }

    /// The copies that are on their way will not come.
    pub fn forget_orders(&self) {
        self.ordered.store(0, Relaxed);
    }

    /// Counts a get, if it is one of those that are counted and no other thread counts just now.
    pub fn note(&self, short: u64, nodes: usize) {
        // Mixed, so that no rhythm of the queries hides a block.
        let turn = mixed(self.gets.fetch_add(1, Relaxed));
        if nodes < 2 || !turn.is_multiple_of(SAMPLING) {
            return;
        }
        let Some(mut sketch) = self.sketch.try_lock() else {
            return;
        };
        let count = sketch.count(short);
        let share = |count: u32| u64::from(count) * 8 * nodes as u64;
        if sketch.total >= TOTAL_MIN && share(count) > sketch.total {
            self.add(short);
        }
        if sketch.total >= TOTAL_MAX {
            for place in 0..HOT_MAX {
                let short = self.hot[place].load(Relaxed);
                // A block leaves at half of the share at which it came.
                if short != 0 && share(sketch.count_of(short)) * 2 < sketch.total {
                    self.remove(place);
                }
            }
            sketch.halve();
        }
    }

    fn place_of(&self, short: u64) -> Option<usize> {
        if self.count.load(Relaxed) == 0 || short == 0 {
            return None;
        }
        self.hot.iter().position(|hot| hot.load(Relaxed) == short)
    }

    /// Called with the sketch locked, as [`Self::remove`].
    fn add(&self, short: u64) {
        if self.place_of(short).is_some() {
            return;
        }
        if let Some(place) = self.hot.iter().position(|hot| hot.load(Relaxed) == 0) {
            self.hot[place].store(short, Relaxed);
            self.count.fetch_add(1, Relaxed);
        }
    }

    fn remove(&self, place: usize) {
        for bits in [&self.ordered, &self.copied] {
            bits.fetch_and(!(1 << place), Relaxed);
        }
        self.hot[place].store(0, Relaxed);
        self.count.fetch_sub(1, Relaxed);
    }
}

impl Sketch {
    fn set(short: u64) -> usize {
        mixed(short) as usize % SETS
    }

    /// Counts a get. A block without a place takes one from the block of the smallest count once
    /// it has brought that to zero, so the ones that are asked for most stay.
    fn count(&mut self, short: u64) -> u32 {
        self.total += 1;
        let set = &mut self.sets[Self::set(short)];
        if let Some(place) = set.iter_mut().find(|place| place.0 == short) {
            place.1 += 1;
            return place.1;
        }
        let Some(least) = set.iter_mut().min_by_key(|place| place.1) else {
            return 0;
        };
        if least.1 > 0 {
            least.1 -= 1;
            return 0;
        }
        *least = (short, 1);
        1
    }

    fn count_of(&self, short: u64) -> u32 {
        let set = &self.sets[Self::set(short)];
        set.iter()
            .find(|place| place.0 == short)
            .map_or(0, |place| place.1)
    }

    fn halve(&mut self) {
        self.total /= 2;
        for place in self.sets.iter_mut().flatten() {
            place.1 /= 2;
        }
    }
}

#[cfg(test)]
mod tests;
