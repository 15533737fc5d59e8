//! Estimates the distinct values of key prefixes in runs with very many files.
//!
//! The files of a run are sorted, so the entries of a value are neighbours. The smallest and the
//! largest key of each file are in memory, and tell without a read where a file ends with another
//! value than the file before it. Such files *change* the value. A file that does not change it has
//! no new value at all, and bisections pass thousands of them at once. So a value that fills many
//! files counts once, however many files are sampled.
//!
//! A file that changes the value has one new value or more. Their number comes from the sketches of
//! a few of these files, which stand for the others:
//!
//! ```text
//! largest keys     a  a  a  a  a  b  b  b  c  f  k  n  z
//! changes          1              1        1  1  1  1  1     the first seven values
//! sketches                        ·           4     3        on average 3.5 new values each
//! ```
//!
//! Rejected: the union of the sketches of some files, scaled by the number of files. It multiplies
//! the values that all files share. Unscaled, it misses those of the other files. Rejected as well:
//! a sketch of each index in the manifest. Values that are gone cannot be taken out of it, so it
//! would have to be made from all files again and again.

use crate::base::key::{INDEX_ID_LEN, index_prefix};
use crate::base::key_range::prefix_successor;
use crate::base::prefix_extractor::PrefixExtractor;
use crate::base::sketch::Sketch;
use crate::base::{ErrorKind, IndexId, Result};
use crate::version::{FileHandle, FileSpan};
use std::ops::Range;
use std::sync::Arc;

/// The changes of a block that are looked for one by one. If it has more, the density of these is
/// taken as that of the others.
const CHANGES_MAX: usize = 8;

/// Counts of the entries of an index in a run, or in the memtables, and of their values.
pub(super) struct RunSample {
    /// Number of entries that are no deletions.
    pub(super) entries: u64,
    /// Estimated number of distinct values of each prefix.
    pub(super) values: Vec<f64>,
}

/// Number of entries of `index` in the `files` of a run that are no deletions. Only the first and
/// the last file may have entries of other indexes.
pub(super) fn puts(files: FileSpan<'_>, index: IndexId) -> u64 {
    let of_file = |file: &Arc<FileHandle>| file.index(index).map_or(0, |s| s.entries - s.deletes);
    let Some(inner) = files.len().checked_sub(2) else {
        return files.first().map_or(0, of_file);
    };
    let sums = files.range(1..1 + inner).sum();
    let ends = files.first().map_or(0, of_file) + files.last().map_or(0, of_file);
    ends + sums.entries.saturating_sub(sums.deletes)
}

/// `None` instead of the error of an unreadable file, for which the other files stand in. A
/// statement that reads its rows reports the error.
///
/// # Errors
/// `NoDescriptor`, which would concern all files.
pub(super) fn skip_unreadable<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Err(error) if *error.kind() != ErrorKind::NoDescriptor => Ok(None),
        found => found.map(Some),
    }
}

/// Estimates the distinct values in each of `runs`, which are the files of an index by runs. Reads
/// the sketches of at most `reads` files. `None` if no file has any.
///
/// # Errors
/// `NoDescriptor` if no file can be opened for the moment.
pub(super) fn sample_runs(
    runs: &[FileSpan<'_>],
    index: IndexId,
    prefix_extractor: &Arc<dyn PrefixExtractor>,
    reads: usize,
) -> Result<Option<Vec<RunSample>>> {
    let files: usize = runs.iter().map(FileSpan::len).sum();
    // The runs with most files come first, in case the reads do not suffice for all runs.
    let mut runs = runs.to_vec();
    runs.sort_by_key(|files| std::cmp::Reverse(files.len()));
    let mut reader = SketchReader {
        index,
        prefixes: prefix_extractor.prefixes(),
        left: reads,
        read: 0,
    };
    // Two files of a run may be read besides those of its blocks.
    let blocks = reads.saturating_sub(2 * runs.len()).max(1);
    let mut samples = Vec::with_capacity(runs.len());
    for run in runs {
        let keys = RunKeys {
            files: run,
            index: index_prefix(index),
            prefix_extractor,
        };
        let blocks = (blocks * run.len() / files).max(1);
        samples.push((puts(run, index), keys.values(blocks, &mut reader)?));
    }
    Ok((reader.read > 0).then(|| completed(samples, reader.prefixes)))
}

/// The samples of runs, each with its number of entries. A run without a sample gets as many values
/// an entry as the others have.
fn completed(samples: Vec<(u64, Option<Vec<f64>>)>, prefixes: usize) -> Vec<RunSample> {
    let mut values = vec![0.0; prefixes];
    let mut entries = 0;
    for (of_run, found) in &samples {
        if let Some(found) = found {
            entries += of_run;
            values
                .iter_mut()
                .zip(found)
                .for_each(|(sum, one)| *sum += one);
        }
    }
    let complete = |(of_run, found): (u64, Option<Vec<f64>>)| {
        let share = of_run as f64 / entries.max(1) as f64;
        RunSample {
            entries: of_run,
            values: found.unwrap_or_else(|| values.iter().map(|sum| sum * share).collect()),
        }
    };
    samples.into_iter().map(complete).collect()
}

/// Reads sketches of files until it has read as many as it may.
struct SketchReader {
    index: IndexId,
    prefixes: usize,
    /// Number of files that it may still read.
    left: usize,
    /// Number of files whose sketches it has read.
    read: usize,
}

impl SketchReader {
    /// The number of distinct values of each prefix in `file`; `None` if the file has no sketches,
    /// cannot be read, or is one too many.
    fn values(&mut self, file: &FileHandle) -> Result<Option<Vec<f64>>> {
        let Some(left) = self.left.checked_sub(1) else {
            return Ok(None);
        };
        self.left = left;
        let found = skip_unreadable(file.sketches(self.index))?.flatten();
        let found = found.filter(|found| found.len() == self.prefixes);
        self.read += usize::from(found.is_some());
        Ok(found.map(|found| found.iter().map(Sketch::estimate).collect()))
    }
}

/// The changes of the value of a prefix in a block of files.
struct Changes {
    /// Positions of the first files that change the value.
    first: Vec<usize>,
    /// Estimated number of all files that do.
    count: f64,
}

/// The number of new values in files that change the value of a prefix.
#[derive(Clone, Default)]
struct NewValues {
    /// Number of the files.
    changes: f64,
    /// Number of those files for which a sampled file stands, and their new values.
    sampled: (f64, f64),
}

impl NewValues {
    fn count(&self) -> f64 {
        let (changes, values) = self.sampled;
        let each = if changes > 0.0 { values / changes } else { 1.0 };
        self.changes * each
    }
}

/// The files of an index in a run, with the values of its prefixes in their smallest and largest
/// keys.
struct RunKeys<'a> {
    files: FileSpan<'a>,
    index: [u8; INDEX_ID_LEN],
    prefix_extractor: &'a Arc<dyn PrefixExtractor>,
}

impl<'a> RunKeys<'a> {
    /// Estimates the number of distinct values of each prefix. Divides the files into `blocks`
    /// blocks, and samples one file of each block in which a value changes. `None` if none of these
    /// could be read.
    fn values(&self, blocks: usize, reader: &mut SketchReader) -> Result<Option<Vec<f64>>> {
        let prefixes = self.prefix_extractor.prefixes();
        let whole = self.whole_files();
        let mut all = vec![NewValues::default(); prefixes];
        for block in 0..blocks {
            let start = |block: usize| whole.start + whole.len() * block / blocks;
            self.sample_block(start(block)..start(block + 1), &mut all, reader)?;
        }
        let unread = all.iter().all(|new| new.sampled.0 == 0.0);
        if unread && all.iter().any(|new| new.changes > 0.0) {
            return Ok(None);
        }
        let mut values: Vec<f64> = all.iter().map(NewValues::count).collect();
        // A file with entries of other indexes does not show its first or last value of this index.
        // There are at most two of them.
        for at in (0..whole.start).chain(whole.end..self.files.len()) {
            let Some(found) = self.read(at, reader)? else {
                continue;
            };
            for (parts, (value, found)) in (1..).zip(values.iter_mut().zip(found)) {
                *value += self.new_values(at, parts, found);
            }
        }
        Ok(Some(values))
    }

    /// The positions of the files that have entries of this index alone.
    fn whole_files(&self) -> Range<usize> {
        let of_others = |file: Option<&Arc<FileHandle>>| {
            let others = |file: &Arc<FileHandle>| {
                !file.smallest.starts_with(&self.index) || !file.largest.starts_with(&self.index)
            };
            usize::from(file.is_some_and(others))
        };
        let start = of_others(self.files.first());
        let end = self.files.len() - of_others(self.files.last());
        start..end.max(start)
    }

    /// Adds the changes in `block` to those of each prefix in `all`.
    fn sample_block(
        &self,
        block: Range<usize>,
        all: &mut [NewValues],
        reader: &mut SketchReader,
    ) -> Result<()> {
        let changes: Vec<Changes> = (1..=all.len())
            .map(|parts| self.changes(block.clone(), parts))
            .collect();
        for (new, changes) in all.iter_mut().zip(&changes) {
            new.changes += changes.count;
        }
        // A file that changes a short prefix changes all longer ones, too.
        let shortest = changes.iter().find(|changes| !changes.first.is_empty());
        let Some(first) = shortest.map(|changes| &changes.first) else {
            return Ok(());
        };
        let at = first[first.len() / 2];
        let Some(found) = self.read(at, reader)? else {
            return Ok(());
        };
        for (parts, (new, changes)) in (1..).zip(all.iter_mut().zip(&changes)) {
            if changes.count > 0.0 {
                let values = self.new_values(at, parts, found[parts - 1]).max(1.0);
                new.sampled.0 += changes.count;
                new.sampled.1 += changes.count * values;
            }
        }
        Ok(())
    }

    /// The files of `block` that end with another value of the prefix of `parts` parts than the
    /// file before them.
    fn changes(&self, block: Range<usize>, parts: usize) -> Changes {
        let mut first = Vec::new();
        let mut at = block.start;
        while first.len() < CHANGES_MAX {
            // Most often the next file changes the value. Do not bisect then.
            let same = |value: &&[u8]| {
                let file = self.files.get(at);
                file.is_some_and(|file| file.largest.starts_with(value))
            };
            if let Some(value) = self.last_value(at, parts).filter(same) {
                let Some(next) = prefix_successor(value) else {
                    break;
                };
                at = self.files.partition_point(|file| file.largest < next);
            }
            if at >= block.end {
                break;
            }
            first.push(at);
            at += 1;
        }
        let mut count = first.len() as f64;
        if let [one, .., last] = first[..]
            && first.len() == CHANGES_MAX
        {
            let density = (first.len() - 1) as f64 / (last - one) as f64;
            count += (block.end - last - 1) as f64 * density;
        }
        Changes { first, count }
    }

    /// The value of the prefix of `parts` parts with which the files before position `at` end.
    fn last_value(&self, at: usize, parts: usize) -> Option<&'a [u8]> {
        let before = self.files.get(at.checked_sub(1)?)?;
        self.value(&before.largest, parts)
    }

    /// Number of the `values` values in the file at position `at` that are not in the file before
    /// it.
    fn new_values(&self, at: usize, parts: usize, values: f64) -> f64 {
        let first = self
            .files
            .get(at)
            .and_then(|file| self.value(&file.smallest, parts));
        let shared = first.is_some() && first == self.last_value(at, parts);
        (values - f64::from(u8::from(shared))).max(0.0)
    }

    /// The first `parts` parts of `key`; `None` for a key of another index.
    fn value<'k>(&self, key: &'k [u8], parts: usize) -> Option<&'k [u8]> {
        key.starts_with(&self.index).then_some(())?;
        let mut end = INDEX_ID_LEN;
        for part in 0..parts {
            end = match self.prefix_extractor.fixed_len(part) {
                Some(len) => end + len,
                None => self.prefix_extractor.part_end(key, part, end)?,
            };
        }
        key.get(..end)
    }

    fn read(&self, at: usize, reader: &mut SketchReader) -> Result<Option<Vec<f64>>> {
        let file = self.files.get(at);
        file.map_or(Ok(None), |file| reader.values(file))
    }
}
