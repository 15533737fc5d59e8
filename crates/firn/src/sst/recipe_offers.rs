//! The recipes that a job offers to its outputs.

use super::compression_recipe::Recipe;
use super::reader::SstReader;
use crate::base::Result;
use crate::env::ReadClass;
use std::sync::Arc;

/// The recipes of the files that a job reads and whose data its outputs hold again.
///
/// Invariant: ascending by the files' keys, which do not overlap.
#[derive(Default)]
pub struct RecipeOffers(Vec<RecipeOffer>);

struct RecipeOffer {
    /// Largest user key of the file.
    largest: Vec<u8>,
    recipe: Option<Recipe>,
}

impl RecipeOffers {
    /// Adds the recipe of `file`, whose keys lie above those of all files added before.
    ///
    /// # Errors
    /// Those of reading the dictionary.
    pub fn add(&mut self, file: &SstReader) -> Result<()> {
        let properties = file.properties();
        let recipe = match properties.recipes.iter().find(|recipe| recipe.own) {
            Some(stored) => {
                let dictionary = match stored.dictionary {
                    0 => Some(None),
                    id => file
                        .read_dictionary(id, ReadClass::Compaction)?
                        .map(Arc::new)
                        .map(Some),
                };
                dictionary.map(|dictionary| Recipe {
                    tuning: stored.tuning,
                    dictionary,
                    trial: Some(stored.trial),
                })
            }
            None => None,
        };
        self.0.push(RecipeOffer {
            largest: properties.largest.clone(),
            recipe,
        });
        Ok(())
    }

    /// The recipe of the file from whose key range most of the blocks come that end at the
    /// ascending keys `ends`. A block between two files counts for the second one, and one behind
    /// all files for the last.
    pub(super) fn for_blocks<'a>(&self, ends: impl Iterator<Item = &'a [u8]>) -> Option<Recipe> {
        let last = self.0.len().checked_sub(1)?;
        let mut counts = vec![0_u64; self.0.len()];
        for end in ends {
            let at = self
                .0
                .partition_point(|offer| offer.largest.as_slice() < end);
            counts[at.min(last)] += 1;
        }
        let most = (0..=last).max_by_key(|&at| (counts[at], std::cmp::Reverse(at)))?;
        self.0[most].recipe.clone()
    }
}

#[cfg(test)]
mod tests;
