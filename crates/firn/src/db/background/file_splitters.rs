//! Splits runs of spills and loads into files, at the keys at which a flush or a compaction would
//! split them.

use crate::base::options::Options;
use crate::compaction::{FlushSplits, LevelTargets, Splitter};
use crate::ingest::FileSplitters;
use crate::sst::Density;
use crate::version::{LAST_LEVEL, Version, VersionSet};
use std::sync::Arc;

/// Splitters for the tree of `versions`.
pub(super) fn file_splitters(versions: &Arc<VersionSet>, options: &Options) -> FileSplitters {
    let (versions, options) = (Arc::clone(versions), options.clone());
    Box::new(move |density, expected| {
        let mut splitter = splitter(&versions.current(), &options, density, expected);
        Box::new(move |last, next, size| splitter.should_split(last, next, size))
    })
}

/// Files of [`Density::Light`] go to L0, so they are split where a flush would split. Files of
/// [`Density::Dense`] get into the last level without being rewritten, so they are split where
/// files of that level begin.
fn splitter(version: &Version, options: &Options, density: Density, expected: u64) -> Splitter {
    let shape = LevelTargets::of_size(version.size() + expected, options.base_level_size);
    let target = options.target_file_size;
    match density {
        Density::Light => {
            let file_size = shape.file_size(0, target);
            let memtable = options.mutable.freeze_at().max(expected);
            FlushSplits::of(version, memtable, file_size).splitter(file_size)
        }
        Density::Dense => {
            let file_size = shape.file_size(LAST_LEVEL as u8, target);
            let files = version.levels[LAST_LEVEL - 1].files.iter();
            Splitter::new(file_size, files.map(|f| f.smallest.clone()).collect())
        }
    }
}
