//! Finds out by a trial which [`Tuning`] compresses the blocks of a file best.

use super::block::{PlaneLayout, to_stored_form};
use super::block_compression::{Codec, Compressor, Tuning};

/// Number of blocks that the trial compresses with each tuning.
const TRIAL_BLOCKS: usize = 8;
/// A file with fewer raw bytes than this gets no trial: it would take more time than its result
/// saves.
const WORTH_A_TRIAL: usize = 32 << 10;

/// The tuning that compresses the sample `built` of a file's blocks best. These blocks are in read
/// form (no byte planes yet).
///
/// Arrays of numbers always become byte planes under ZSTD: bytes that are equal in all entries
/// vanish, and counters become repetitions. For value tails it depends on the data: as byte planes,
/// digits shrink by a sixth, but words grow. Only a trial tells this, and likewise whether ZSTD
/// should look for long matches only. So a few blocks are compressed with each tuning.
pub(super) fn tune(codec: Codec, sectioned: bool, built: &[&[u8]]) -> Tuning {
    if !matches!(codec, Codec::Zstd { .. }) {
        return Tuning::default();
    }
    let numbers = sectioned;
    if built.iter().map(|b| b.len()).sum::<usize>() < WORTH_A_TRIAL {
        return Tuning {
            plane_layout: PlaneLayout {
                numbers,
                tails: false,
            },
            ..Tuning::default()
        };
    }
    let step = (built.len() / TRIAL_BLOCKS).max(1);
    let trial: Vec<&[u8]> = built.iter().step_by(step).copied().collect();
    let mut best = (usize::MAX, Tuning::default());
    for tails in [false, true] {
        let plane_layout = PlaneLayout { numbers, tails };
        let blocks: Vec<_> = trial
            .iter()
            .map(|raw| to_stored_form(sectioned, raw, plane_layout))
            .collect();
        for (long_matches, cut) in [(false, false), (false, true), (true, false), (true, true)] {
            let tuning = Tuning {
                plane_layout,
                long_matches,
                cut,
            };
            let mut compressor = Compressor::new(codec, tuning);
            let size = blocks.iter().map(|b| compressor.data(b).2.len()).sum();
            if size < best.0 {
                best = (size, tuning);
            }
        }
        if !sectioned {
            break;
        }
    }
    best.1
}
