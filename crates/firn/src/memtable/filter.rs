//! A whole-key filter of fixed size, without removal.
//!
//! Each key sets a few bits in one cache line with relaxed ORs, so a probe costs one cache miss.
//! Bits and entry need no mutual ordering: a reader that must see an entry has read the visible
//! seqno, which was published after the insert, before it probes the filter.

use std::sync::atomic::{AtomicU64, Ordering};

const WORDS_PER_LINE: usize = 8;
const PROBES: u32 = 6;

#[repr(align(64))]
struct Line([AtomicU64; WORDS_PER_LINE]);

/// A concurrent Bloom filter, one cache line per key.
pub(super) struct Filter {
    lines: Box<[Line]>,
}

impl Filter {
    /// A filter of about `bytes` bytes, at least one line.
    pub(super) fn new(bytes: usize) -> Self {
        let lines = (bytes / size_of::<Line>()).max(1);
        Self {
            lines: (0..lines)
                .map(|_| Line([const { AtomicU64::new(0) }; WORDS_PER_LINE]))
                .collect(),
        }
    }

    pub(super) fn size_bytes(&self) -> usize {
        self.lines.len() * size_of::<Line>()
    }

    /// Adds the keys with these hashes.
    ///
    /// The lines are seldom in the processor's caches, and the ORs of one key would wait for its
    /// line before those of the next key begin. So one word of each line is loaded first: these
    /// loads do not depend on each other, and their cache misses overlap.
    pub(super) fn insert_all(&self, hashes: &[u64]) {
        let first_word = |hash: &u64| self.place(*hash).0.0[0].load(Ordering::Relaxed);
        std::hint::black_box(
            hashes
                .iter()
                .map(first_word)
                .fold(0, |all, word| all ^ word),
        );
        hashes.iter().for_each(|hash| self.insert(*hash));
    }

    /// Adds the key with this hash.
    pub(super) fn insert(&self, hash: u64) {
        let (line, bits) = self.place(hash);
        for bit in bits {
            let word = &line.0[(bit >> 6) as usize];
            let mask = 1u64 << (bit & 63);
            if word.load(Ordering::Relaxed) & mask == 0 {
                word.fetch_or(mask, Ordering::Relaxed);
            }
        }
    }

    /// `false` means that no key with this hash was ever inserted.
    pub(super) fn may_contain(&self, hash: u64) -> bool {
        let (line, mut bits) = self.place(hash);
        bits.all(|bit| line.0[(bit >> 6) as usize].load(Ordering::Relaxed) >> (bit & 63) & 1 == 1)
    }

    fn place(&self, hash: u64) -> (&Line, impl Iterator<Item = u32> + use<>) {
        // The upper half of the product of `hash` and the number of lines selects the line. Nine
        // bits of a second hash, which is derived from `hash`, select each bit in the line.
        let line = ((u128::from(hash) * self.lines.len() as u128) >> 64) as usize;
        let remixed = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let bits = (0..PROBES).map(move |i| (remixed >> (i * 9 + 10)) as u32 & 511);
        (&self.lines[line], bits)
    }
}
