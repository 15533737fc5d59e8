//! Finds the unused space between live blobs.

use super::format::ALIGNMENT;
use std::ops::Range;

/// The bytes of one blob in a blob file, its header included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlobSpan {
    /// Offset of the blob's header.
    pub offset: u64,
    /// Length in bytes, header included.
    pub len: u64,
}

/// The ranges of consecutive file system blocks within `within` that contain no byte of a span in
/// `live`, each as long as possible. `live` is ascending; its spans may overlap.
pub fn holes(live: &[BlobSpan], within: Range<u64>) -> Vec<Range<u64>> {
    let mut holes = Vec::new();
    let mut add = |from: u64, to: u64| {
        let from = from.next_multiple_of(ALIGNMENT);
        let to = to / ALIGNMENT * ALIGNMENT;
        if from < to {
            holes.push(from..to);
        }
    };
    let mut free = within.start;
    for span in live {
        add(free, span.offset.min(within.end));
        free = free.max(span.offset.saturating_add(span.len));
    }
    add(free, within.end);
    holes
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng, rngs::StdRng};

    #[test]
    fn a_hole_holds_no_live_byte_and_no_block_is_missed() {
        for seed in 0..200 {
            let mut rng = StdRng::seed_from_u64(seed);
            let end = rng.random_range(100..60_000u64);
            let mut live: Vec<BlobSpan> = (0..rng.random_range(0..8))
                .map(|_| BlobSpan {
                    offset: rng.random_range(64..end),
                    len: rng.random_range(1..9000),
                })
                .collect();
            live.sort();
            let mut free = vec![true; (end as usize).next_multiple_of(ALIGNMENT as usize)];
            free[..64].fill(false);
            free[end as usize..].fill(false);
            for span in &live {
                let to = ((span.offset + span.len) as usize).min(free.len());
                free[span.offset as usize..to].fill(false);
            }
            let blocks = free.chunks(ALIGNMENT as usize).enumerate();
            let want: Vec<u64> = blocks
                .filter(|(_, block)| block.iter().all(|&f| f))
                .map(|(i, _)| i as u64)
                .collect();
            let got: Vec<u64> = holes(&live, 64..end)
                .into_iter()
                .flat_map(|hole| hole.start / ALIGNMENT..hole.end / ALIGNMENT)
                .collect();
            assert_eq!(got, want, "seed {seed}");
        }
    }
}
