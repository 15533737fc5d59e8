//! The recipe of the file being written, and the offers that it is chosen from.

use super::buffered_blocks::{BufferedBlock, RECIPE_BYTES};
use super::{BlockLayout, SstWriter};
use crate::base::Result;
use crate::sst::block_compression::Compressor;
use crate::sst::compression_recipe::{ChosenRecipe, RAW_BYTES_MIN, Recipe};
use std::sync::Arc;

impl SstWriter {
    /// Chooses the recipe for the waiting blocks and those after them, and appends the waiting
    /// blocks.
    pub(super) fn append_buffered(&mut self) -> Result<()> {
        let Some(buffered) = self.buffered.take() else {
            return Ok(());
        };
        let copied = self.copied_recipe.take();
        let copied = copied.filter(|_| buffered.is_mostly_copied());
        let blocks = buffered.into_blocks();
        self.choose_recipe(&blocks, copied);
        blocks.iter().try_for_each(|block| self.write_data(block))
    }

    /// Chooses and sets the recipe for the raw blocks in `blocks`. `copied` is the recipe of the
    /// copied blocks, if these are the majority. It is an offer like others, but needs no trial if
    /// there are too few raw bytes for one: [`Self::takes`] limits how often it is handed on.
    fn choose_recipe(&mut self, blocks: &[BufferedBlock], copied: Option<Recipe>) {
        let built: Vec<&[u8]> = blocks.iter().filter_map(BufferedBlock::raw).collect();
        let raw_bytes: usize = built.iter().map(|raw| raw.len()).sum();
        let few = raw_bytes < RAW_BYTES_MIN;
        let copied = copied.filter(|recipe| few || recipe.trial.is_some());
        let copied = match copied {
            Some(recipe) if few => {
                self.recipe_inherited = true;
                return self.use_recipe(recipe.handed_on(), true);
            }
            copied => copied,
        };
        let ends = blocks.iter().filter(|block| block.raw().is_some());
        let ends = ends.map(|block| block.separator.as_slice());
        let offered = copied.or_else(|| self.offers.as_ref()?.for_blocks(ends));
        let sectioned = self.options.layout == BlockLayout::Sectioned;
        let chosen = Recipe::choose(self.options.codec, sectioned, &built, offered);
        let ChosenRecipe {
            recipe,
            inherited,
            tried,
        } = chosen;
        (self.recipe_inherited, self.recipe_tried) = (inherited, tried);
        self.use_recipe(recipe, raw_bytes >= RECIPE_BYTES);
    }

    /// Compresses with `recipe` from now on. `known` says whether enough blocks were tried that
    /// other files may use its tuning, too.
    fn use_recipe(&mut self, recipe: Recipe, known: bool) {
        if known {
            self.properties.tuning = Some(recipe.tuning);
            // It may have been recorded as that of copied blocks.
            if let Some(stored) = recipe.stored(true) {
                let recipes = &mut self.properties.recipes;
                recipes.retain(|other| other.dictionary != stored.dictionary);
                recipes.push(stored);
            }
        }
        self.compressor = Compressor::new(self.options.codec, recipe.tuning);
        if let Some(dictionary) = &recipe.dictionary {
            self.compressor.set_dictionary(dictionary);
            if !self.carries(dictionary) {
                self.dictionaries.push(Arc::clone(dictionary));
            }
        }
    }

    /// Records the recipe of the block copied last, so that its trial and the number of times that
    /// it was handed on are known where the block is copied again.
    pub(super) fn record_copied_recipe(&mut self) {
        let copied = self.copied_recipe.as_ref();
        let Some(stored) = copied.and_then(|recipe| recipe.clone().handed_on().stored(false))
        else {
            return;
        };
        let mut known = self.properties.recipes.iter_mut();
        match known.find(|known| known.dictionary == stored.dictionary) {
            Some(known) => {
                let handed_on = known.trial.handed_on.max(stored.trial.handed_on);
                known.trial.handed_on = handed_on;
            }
            None => self.properties.recipes.push(stored),
        }
    }
}
