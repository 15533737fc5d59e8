//! The blocks that the pool probably has: two generations of the table of fingerprints.
//!
//! Nodes evict without a word, so a table only grows until it is full. Then it becomes the older
//! generation, and an empty one takes what comes; both are asked, and what hits moves over. So a
//! block is forgotten once as many others as the nodes hold were put after its last hit. A table
//! never grows, since it does not know the names: when the memory of the nodes changes, one of
//! another size takes over in the same way.

use crate::fingerprints::Fingerprints;
use arc_swap::ArcSwap;
use std::sync::Arc;

/// A table for fewer blocks is not worth its header.
const BLOCKS_MIN: u64 = 4096;

/// The generations.
pub struct Known {
    tables: ArcSwap<Generations>,
    blocks_max: u64,
}

struct Generations {
    current: Arc<Fingerprints>,
    previous: Option<Arc<Fingerprints>>,
}

impl Known {
    /// An empty table of the smallest size. Each generation will have at most `bytes_max`.
    pub fn new(bytes_max: u64) -> Self {
        let current = Arc::new(Fingerprints::new(BLOCKS_MIN).unwrap_or_default());
        let tables = ArcSwap::from_pointee(Generations {
            current,
            previous: None,
        });
        Self {
            tables,
            blocks_max: (bytes_max * 9 / 20).max(BLOCKS_MIN),
        }
    }

    /// The generations, the current one first.
    pub fn tables(&self) -> Vec<Arc<Fingerprints>> {
        let tables = self.tables.load();
        std::iter::once(&tables.current)
            .chain(&tables.previous)
            .cloned()
            .collect()
    }

    /// Whether the pool probably has a block.
    pub fn contains(&self, short: u64) -> bool {
        let tables = self.tables.load();
        tables.current.contains(short)
            || tables
                .previous
                .as_ref()
                .is_some_and(|previous| previous.contains(short))
    }

    /// The pool has a block. Called by the background thread only.
    pub fn insert(&self, short: u64) {
        let tables = self.tables.load();
        if tables.current.insert(short) {
            return;
        }
        // No memory for another one: the old fingerprints make room one by one.
        if let Some(new) = Fingerprints::with_buckets(tables.current.buckets()) {
            let previous = Some(tables.current.clone());
            new.insert(short);
            self.tables.store(Arc::new(Generations {
                current: Arc::new(new),
                previous,
            }));
        }
    }

    /// A node has answered with the block: it is known for another generation.
    pub fn on_hit(&self, short: u64) {
        let tables = self.tables.load();
        if tables.previous.is_some() {
            tables.current.insert_if_room(short);
        }
    }

    /// The pool does not have a block any more.
    pub fn remove(&self, short: u64) {
        let tables = self.tables.load();
        tables.current.remove(short);
        if let Some(previous) = &tables.previous {
            previous.remove(short);
        }
    }

    /// The size of a table for so many blocks, which [`Self::resize`] takes.
    pub fn rounded(&self, blocks: u64) -> u64 {
        rounded(blocks.clamp(BLOCKS_MIN, self.blocks_max))
    }

    /// Makes room for `blocks`, a number from [`Self::rounded`]. Returns whether this has changed
    /// the
    /// table; without memory it stays as it is.
    pub fn resize(&self, blocks: u64) -> bool {
        let current = self.tables.load().current.clone();
        if Fingerprints::buckets_for(blocks) == current.buckets() {
            return false;
        }
        let Some(new) = Fingerprints::new(blocks) else {
            return false;
        };
        let previous = (current.len() > 0).then_some(current);
        self.tables.store(Arc::new(Generations {
            current: Arc::new(new),
            previous,
        }));
        true
    }

    /// Fingerprints and bytes.
    pub fn size(&self) -> (u64, u64) {
        let sizes = self
            .tables()
            .into_iter()
            .map(|table| (table.len(), table.bytes()));
        sizes.fold((0, 0), |sum, size| (sum.0 + size.0, sum.1 + size.1))
    }
}

/// The next of 8, 9, 10, … 15 times a power of two. So servers whose nodes report nearly the same
/// memory have tables of one size, and read each other's images.
fn rounded(blocks: u64) -> u64 {
    let step = 1u64 << (63 - (blocks | 1).leading_zeros()).saturating_sub(3);
    blocks.next_multiple_of(step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::mixed;

    #[test]
    fn a_new_table_forgets_nothing_until_the_next() {
        let known = Known::new(1 << 20);
        (1..=1000).for_each(|short| known.insert(mixed(short)));
        assert!(known.resize(50_000) && !known.resize(50_000));
        let count = || {
            (1..=1000)
                .filter(|short| known.contains(mixed(*short)))
                .count()
        };
        assert_eq!(count(), 1000);
        (1..=500).for_each(|short| known.on_hit(mixed(short)));
        known.remove(mixed(1));
        assert_eq!(count(), 999);
        assert!(known.resize(100_000));
        assert_eq!(count(), 499);
    }

    #[test]
    fn after_ten_times_as_many_blocks_the_newest_are_known() {
        let known = Known::new(1 << 20);
        let blocks = known.rounded(20_000);
        known.resize(blocks);
        for short in 1..=10 * blocks {
            known.insert(mixed(short));
            // One block is asked for all the time.
            if short % 1000 == 0 && known.contains(mixed(1)) {
                known.on_hit(mixed(1));
            }
        }
        let newest = 9 * blocks + 1..=10 * blocks;
        let lost = newest
            .filter(|short| !known.contains(mixed(*short)))
            .count();
        assert!(lost < 5, "{lost}");
        assert!(known.contains(mixed(1)), "what hits stays");
        let (len, bytes) = known.size();
        assert!(
            len <= 2 * blocks && bytes < blocks * 43 / 10,
            "{len} {bytes}"
        );
    }

    #[test]
    fn sizes_are_near_bounded_and_never_overflow() {
        let known = Known::new(1 << 20);
        assert_eq!(
            (rounded(4096), rounded(4097), rounded(9_000_000)),
            (4096, 4608, 9_437_184)
        );
        for blocks in [0, 1, 1 << 40, u64::MAX] {
            known.resize(known.rounded(blocks));
            assert!(known.tables()[0].bytes() < 5 << 18, "{blocks}");
        }
    }
}
