//! Splits runs of spills and loads into files, at the keys at which a flush or a compaction would
//! split them.

use crate::base::options::Options;
use crate::compaction::{CrossedBoundaries, FlushSplits, LevelTargets, Splitter};
use crate::ingest::FileSplitters;
use crate::sst::Density;
use crate::version::{LAST_LEVEL, Version, VersionSet};
use std::sync::Arc;

/// Splitters for the tree of `versions`.
pub(super) fn file_splitters(versions: &Arc<VersionSet>, options: &Options) -> FileSplitters {
    let (versions, options) = (Arc::clone(versions), options.clone());
    Box::new(move |density, expected| {
        let mut splitter = splitter(&versions, &options, density, expected);
        Box::new(move |last, next, size| splitter.should_split(last, next, size))
    })
}

/// Files of [`Density::Light`] go to L0, so they are split as a flush splits. Files of
/// [`Density::Dense`] move down to the last level unchanged, so they are split where files of that
/// level begin.
fn splitter(
    versions: &Arc<VersionSet>,
    options: &Options,
    density: Density,
    expected: u64,
) -> Splitter {
    let version = &*versions.current();
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
            // The run crosses the boundaries of few files, so look each up when it is needed. Look
            // it up in the current version, because a splitter that held a version would keep all
            // files of that version on disk.
            let versions = Arc::clone(versions);
            Splitter::with_search(
                file_size,
                Box::new(move |above, up_to| {
                    last_level_boundaries(&versions.current(), above, up_to)
                }),
            )
        }
    }
}

/// The first keys of files of the last level that lie above `above`, up to and with `up_to`.
fn last_level_boundaries(version: &Version, above: &[u8], up_to: &[u8]) -> CrossedBoundaries {
    let files = &version.levels[LAST_LEVEL - 1].files;
    let from = files.partition_point(|f| f.smallest.as_slice() <= above);
    let to = files
        .partition_point(|f| f.smallest.as_slice() <= up_to)
        .max(from);
    let key = |at: usize| files.get(at).map(|f| f.smallest.clone());
    CrossedBoundaries {
        count: (to - from) as u64,
        last: (to > from).then(|| key(to - 1)).flatten(),
        next: key(to),
    }
}
