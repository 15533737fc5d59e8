//! The files of one compaction input, read as one sorted source.

use super::running_jobs::{Job, JobInput};
use crate::base::Result;
use crate::env::ReadClass;
use crate::iter::{ChildOpener, ConcatIter};
use crate::sst::{RecipeOffers, SstIter};
use crate::version::{FileHandle, LAST_LEVEL};
use std::sync::Arc;

/// Opens the files of one input one after the other. The blocks read are not put into the block
/// cache, since a compaction reads each of them only once.
pub(super) struct InputFiles(pub(super) Vec<Arc<FileHandle>>);

impl ChildOpener for InputFiles {
    type Iter = SstIter;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn smallest(&self, i: usize) -> &[u8] {
        &self.0[i].smallest
    }

    fn largest(&self, i: usize) -> &[u8] {
        &self.0[i].largest
    }

    fn open(&self, i: usize) -> Result<SstIter> {
        Ok(self.0[i].reader()?.iter(ReadClass::Compaction, false))
    }
}

/// The recipes of the inputs that lie in the output level, if it is the last one. The files of
/// other levels have none.
pub(super) fn recipe_offers(job: &Job) -> Result<RecipeOffers> {
    let mut offers = RecipeOffers::default();
    let is_last = |input: &&JobInput| usize::from(input.level) == LAST_LEVEL;
    for file in job.inputs.iter().filter(is_last).flat_map(|i| &i.files) {
        offers.add(&*file.reader()?)?;
    }
    Ok(offers)
}

pub(super) fn source_of(input: &JobInput) -> ConcatIter<InputFiles> {
    ConcatIter::new(InputFiles(input.files.clone()))
}
