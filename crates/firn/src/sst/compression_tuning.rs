//! Finding out how the blocks of a file compress best.

use super::block::{PlaneLayout, to_stored_form};
use super::codec::{Codec, Compressor, Tuning};

/// Blocks compressed in each way.
const TRIAL_BLOCKS: usize = 8;
/// In a smaller file the trial costs more than it saves.
const WORTH_A_TRIAL: usize = 32 << 10;

/// The best way to compress blocks like `built`, which are as the builder made them.
///
/// Numbers always become planes under ZSTD: constant bytes vanish and counters become runs. Whether
/// tails do depends on the data (digits gain a sixth, words lose), as does the search for matches;
/// so a few blocks are compressed in each way.
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
