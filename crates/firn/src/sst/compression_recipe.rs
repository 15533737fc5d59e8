//! Compression recipes: how the data blocks of a file are compressed, and whether a new file takes
//! its recipe from another file or finds out its own.
//!
//! To find out a recipe takes trials of several tunings and the training of a dictionary, about as
//! much processor time as the compression of one or two megabytes. A compaction writes again what
//! it reads, so the recipe of the file that most of its input comes from mostly fits. It is tried
//! on a few blocks, and it stays unless a recipe of the file's own saves two percent more.
//!
//! Data changes over time, and a recipe that is handed on for ever would go stale. So a file
//! records how well its recipe did when it was last compared with a new one, and how often it was
//! handed on since. A new one is found out, and compared, when the trial blocks compress otherwise
//! than recorded by [`DRIFT_PERCENT`], or when the recipe was handed on [`HANDED_ON_MAX`] times.
//!
//! Example: a file was tuned when its trial blocks shrank to 30 percent of their raw bytes. A job
//! rewrites it with updates, and its recipe shrinks the new trial blocks to 30.4 percent: the new
//! file inherits the recipe. If they shrink to 31 percent, the writer trains a dictionary, and uses
//! it if it shrinks them to 30.3 percent or less.

use super::block::{StoredForm, to_stored_form};
use super::block_compression::{Codec, Compressor, Tuning};
use super::compression_tuning::tune;
use super::dictionary::Dictionary;
use std::sync::Arc;

/// Number of blocks on which a recipe is tried.
const TRIAL_BLOCKS: usize = 16;
/// A new recipe replaces an inherited one only if it makes the trial blocks smaller by at least
/// this percentage.
const GAIN_PERCENT_MIN: usize = 2;
/// An inherited recipe is compared with a new one if it compresses the trial blocks worse or better
/// than recorded by more than this percentage.
const DRIFT_PERCENT: u64 = 2;
/// A recipe is inherited at most this many times in a row without a comparison with a new one.
const HANDED_ON_MAX: u32 = 8;
/// Blocks of fewer raw bytes than this are too few for a trial. A file that has no more finds out a
/// recipe of its own, because a dictionary may take more bytes than it saves in a small file. Other
/// files do not inherit that recipe.
pub(super) const RAW_BYTES_MIN: usize = 1 << 20;
/// Ratios are stored in units of one to this many.
const RATIO_UNIT: u64 = 10_000;

/// How a recipe did when it was last compared with a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RecipeTrial {
    /// Compressed bytes of the trial blocks for each [`RATIO_UNIT`] raw bytes.
    pub(super) ratio: u32,
    /// Number of times that the recipe was handed on since, without a comparison.
    pub(super) handed_on: u32,
}

impl RecipeTrial {
    /// Whether the recipe was handed on so often that it must be compared with a new one.
    pub(super) fn is_due(self) -> bool {
        self.handed_on >= HANDED_ON_MAX
    }
}

/// A recipe as the properties of a file store it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StoredRecipe {
    /// Whether the file compressed blocks of its own with the recipe. Otherwise it has only copied
    /// ones.
    pub(super) own: bool,
    pub(super) tuning: Tuning,
    /// Id of the dictionary; 0 stands for no dictionary.
    pub(super) dictionary: u32,
    pub(super) trial: RecipeTrial,
}

/// How data blocks are compressed.
#[derive(Clone)]
pub(super) struct Recipe {
    pub(super) tuning: Tuning,
    pub(super) dictionary: Option<Arc<Dictionary>>,
    /// `None` in files of older writers, and where too few bytes were tried. Such a recipe is not
    /// inherited.
    pub(super) trial: Option<RecipeTrial>,
}

/// The recipe for a new file, and the work that it took.
pub(super) struct ChosenRecipe {
    pub(super) recipe: Recipe,
    /// Whether the recipe is that of another file.
    pub(super) inherited: bool,
    /// Whether a new recipe was found out, even if the inherited one is used after all.
    pub(super) tried: bool,
}

impl Recipe {
    /// The form in which properties store the recipe. `None` without a trial.
    pub(super) fn stored(&self, own: bool) -> Option<StoredRecipe> {
        Some(StoredRecipe {
            own,
            tuning: self.tuning,
            dictionary: self.dictionary.as_ref().map_or(0, |d| d.id()),
            trial: self.trial?,
        })
    }

    /// The recipe as another file gets it that uses it without comparing it with a new one.
    pub(super) fn handed_on(mut self) -> Self {
        if let Some(trial) = &mut self.trial {
            trial.handed_on = trial.handed_on.saturating_add(1);
        }
        self
    }

    /// Chooses the recipe for a file whose first blocks are `built`, in read form. `offered` is the
    /// recipe of another file with similar data.
    pub(super) fn choose(
        codec: Codec,
        sectioned: bool,
        built: &[&[u8]],
        offered: Option<Self>,
    ) -> ChosenRecipe {
        let total: usize = built.iter().map(|raw| raw.len()).sum();
        let offered = offered.filter(|_| total >= RAW_BYTES_MIN);
        let Some((offered, trial)) = offered.and_then(|recipe| {
            let trial = recipe.trial?;
            Some((recipe, trial))
        }) else {
            return ChosenRecipe {
                recipe: Self::find_out(codec, sectioned, built),
                inherited: false,
                tried: true,
            };
        };
        let blocks = TrialBlocks::of(built);
        let size = blocks.compressed(codec, sectioned, &offered);
        let ratio = blocks.ratio(size);
        let drift = u64::from(ratio.abs_diff(trial.ratio)) * 100;
        if !trial.is_due() && drift <= u64::from(trial.ratio) * DRIFT_PERCENT {
            return ChosenRecipe {
                recipe: offered.handed_on(),
                inherited: true,
                tried: false,
            };
        }
        let new = Self::find_out(codec, sectioned, built);
        let new_size = blocks.compressed(codec, sectioned, &new);
        let inherited = new_size * 100 > size * (100 - GAIN_PERCENT_MIN);
        let recipe = match inherited {
            true => Self {
                trial: Some(RecipeTrial {
                    ratio,
                    handed_on: 0,
                }),
                ..offered
            },
            false => new,
        };
        ChosenRecipe {
            recipe,
            inherited,
            tried: true,
        }
    }

    /// Tries tunings and trains a dictionary, if the codec wants one.
    fn find_out(codec: Codec, sectioned: bool, built: &[&[u8]]) -> Self {
        let tuning = tune(codec, sectioned, built);
        let trains = matches!(codec, Codec::Zstd { dictionary, .. } if dictionary);
        let dictionary = trains.then(|| {
            let shaped = |raw: &&[u8]| to_stored_form(sectioned, raw, tuning.plane_layout);
            let shaped: Vec<StoredForm> = built.iter().map(shaped).collect();
            Dictionary::train(&shaped, codec, tuning).map(Arc::new)
        });
        let mut recipe = Self {
            tuning,
            dictionary: dictionary.flatten(),
            trial: None,
        };
        let total: usize = built.iter().map(|raw| raw.len()).sum();
        if total >= RAW_BYTES_MIN {
            let blocks = TrialBlocks::of(built);
            recipe.trial = Some(RecipeTrial {
                ratio: blocks.ratio(blocks.compressed(codec, sectioned, &recipe)),
                handed_on: 0,
            });
        }
        recipe
    }
}

/// The blocks of a file on which recipes are tried.
struct TrialBlocks<'a> {
    blocks: Vec<&'a [u8]>,
    raw: usize,
}

impl<'a> TrialBlocks<'a> {
    fn of(built: &[&'a [u8]]) -> Self {
        // A dictionary compresses the blocks that it was trained on better than others. The
        // training takes the first block, and further ones at even distances. So take blocks at odd
        // positions: only few of these were trained on.
        let step = built.len() / TRIAL_BLOCKS;
        let blocks: Vec<&[u8]> = match step {
            0 | 1 => built.to_vec(),
            _ => {
                let odd = (step / 2..built.len()).step_by(step).map(|at| at | 1);
                odd.filter_map(|at| built.get(at).copied()).collect()
            }
        };
        let raw = blocks.iter().map(|raw| raw.len()).sum();
        Self { blocks, raw }
    }

    /// Compressed bytes of the blocks.
    fn compressed(&self, codec: Codec, sectioned: bool, recipe: &Recipe) -> usize {
        let mut compressor = Compressor::new(codec, recipe.tuning);
        if let Some(dictionary) = &recipe.dictionary {
            compressor.set_dictionary(dictionary);
        }
        let layout = recipe.tuning.plane_layout;
        let stored = self.blocks.iter().map(|raw| {
            let shaped = to_stored_form(sectioned, raw, layout);
            compressor.data(&shaped).2.len()
        });
        stored.sum()
    }

    fn ratio(&self, compressed: usize) -> u32 {
        (compressed as u64 * RATIO_UNIT / self.raw.max(1) as u64) as u32
    }
}

#[cfg(test)]
mod tests;
