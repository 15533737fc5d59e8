//! Groups of L0 files that overlap in chains.

use super::{TOMBSTONE_SHARE, share_over};
use crate::base::key_range::KeyRange;
use crate::compaction::running_jobs::JobInput;
use crate::version::{FileHandle, FileMeta, Version};
use std::ops::Range;
use std::sync::Arc;

/// A file and the position of its run in the version; 0 is the newest.
pub(super) type FileInRun<'a> = (usize, &'a Arc<FileHandle>);

/// The files that a group has of one run: neighbours there, ascending.
struct RunSlice<'a> {
    /// Position of the run in the version; 0 is the newest.
    run: usize,
    files: Vec<&'a Arc<FileHandle>>,
    /// Prefix sums of stored bytes: of the files before each one, and at the end of all.
    sums: Vec<u64>,
}

impl<'a> RunSlice<'a> {
    fn new(run: usize, files: Vec<&'a Arc<FileHandle>>) -> Self {
        let mut sum = 0;
        let mut sums = vec![0];
        for file in &files {
            sum += file.size;
            sums.push(sum);
        }
        Self { run, files, sums }
    }

    /// The files that overlap the keys from `smallest` to `largest`, both included.
    fn over(&self, smallest: &[u8], largest: &[u8]) -> Range<usize> {
        count_step();
        let from = self
            .files
            .partition_point(|f| f.largest.as_slice() < smallest);
        let to = self
            .files
            .partition_point(|f| f.smallest.as_slice() <= largest);
        from..to.max(from)
    }
}

/// A group of L0 files: each overlaps another one of the group, directly or through a chain, and
/// none overlaps a file outside.
///
/// A job may take a part of a group, as long as no file older than an output stays above it. A part
/// begins with one file at the bottom and takes, run by run, everything that overlaps.
///
/// The files of a run share no key, so bisection finds those that overlap a range. Computing a part
/// bisects each of *r* runs once per step of a search over the runs, and there is one part for each
/// of *b* bottom files. With *n* files *b* + *r* is at most *n* + 1, so the worst case is about
/// n²/4 bisections times log *r*. (Comparing each file with each other one was cubic: seconds with
/// two thousand files.)
pub(super) struct L0Overlap<'a> {
    /// From the smallest to the largest key of the group.
    pub(super) range: KeyRange,
    /// Newest run first.
    slices: Vec<RunSlice<'a>>,
}

/// A part of a group: some neighbouring files of each slice.
pub(super) struct L0Selection {
    files: Vec<(usize, Range<usize>)>,
    /// Stored bytes.
    pub(super) size: u64,
}

impl L0Selection {
    /// Number of runs that have files in the part.
    pub(super) fn runs(&self) -> usize {
        self.files.len()
    }
}

impl<'a> L0Overlap<'a> {
    /// A group of `files`, with the positions of their runs: at least one file, ascending within
    /// each run.
    pub(super) fn of(mut files: Vec<FileInRun<'a>>) -> Self {
        let mut range = files[0].1.range();
        files.iter().for_each(|(_, f)| range.extend(&f.range()));
        files.sort_by_key(|(run, _)| *run);
        let runs = files.chunk_by(|a, b| a.0 == b.0);
        let slice =
            |run: &[(usize, _)]| RunSlice::new(run[0].0, run.iter().map(|(_, f)| *f).collect());
        Self {
            range,
            slices: runs.map(slice).collect(),
        }
    }

    /// All files with the positions of their runs, newest run first.
    pub(super) fn files(&self) -> impl Iterator<Item = FileInRun<'a>> {
        let slices = self.slices.iter();
        slices.flat_map(|slice| slice.files.iter().map(|f| (slice.run, *f)))
    }

    /// The file, if there is only one.
    pub(super) fn only(&self) -> Option<&'a Arc<FileHandle>> {
        let mut files = self.files();
        let first = files.next()?;
        files.next().is_none().then_some(first.1)
    }

    /// Whether the group has files of the run at position `run`.
    pub(super) fn reaches(&self, run: usize) -> bool {
        self.slices.iter().any(|slice| slice.run == run)
    }

    /// The largest number of runs that a read of one key must search.
    pub(super) fn depth(&self) -> usize {
        depth(self.files().map(|(_, f)| &**f.meta()))
    }

    /// Whether most of its entries are deletions.
    pub(super) fn is_dense(&self) -> bool {
        let sum = |of: fn(&FileMeta) -> u64| self.files().map(|(_, f)| of(f)).sum();
        share_over(sum(|f| f.deletes), sum(|f| f.entries), TOMBSTONE_SHARE)
    }

    /// Stored bytes.
    pub(super) fn size(&self) -> u64 {
        self.files().map(|(_, f)| f.size).sum()
    }

    /// Its files as inputs, newest run first.
    pub(super) fn inputs(&self) -> Vec<JobInput> {
        let input = |slice: &RunSlice<'_>| JobInput {
            level: 0,
            files: slice.files.iter().map(|f| Arc::clone(f)).collect(),
        };
        self.slices.iter().map(input).collect()
    }

    /// The files that overlap no older file of the group.
    pub(super) fn bottoms(&self) -> impl Iterator<Item = &'a Arc<FileHandle>> {
        let slices = self.slices.iter().enumerate();
        slices.flat_map(move |(at, slice)| {
            let older = &self.slices[at + 1..];
            let bottom = move |file: &&&'a Arc<FileHandle>| {
                let mut older = older.iter();
                older.all(|o| o.over(&file.smallest, &file.largest).is_empty())
            };
            slice.files.iter().filter(bottom).copied()
        })
    }

    /// The files of the group that overlap `range`, and for each of them everything older that it
    /// overlaps: no file older than an output may stay above it. Newer files may stay. So the
    /// newest runs are left out while the rest has more than `room` bytes and more than `due` runs.
    pub(super) fn part_over(&self, range: &KeyRange, room: u64, due: usize) -> L0Selection {
        // A part without its newest runs is never larger, so bisection is valid.
        let fits = |part: &L0Selection| part.size <= room || part.runs() <= due;
        let (mut low, mut high) = (0, self.slices.len() - 1);
        while low < high {
            let middle = low.midpoint(high);
            if fits(&self.part_from(middle, range)) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        self.part_from(low, range)
    }

    /// The part over `range` without the newest `skip` slices. The files taken of each run overlap
    /// `range` or a file taken of a newer run, so the part covers one key range without gaps.
    fn part_from(&self, skip: usize, range: &KeyRange) -> L0Selection {
        let (mut smallest, mut largest) = (range.smallest.as_slice(), range.largest.as_slice());
        let mut part = L0Selection {
            files: Vec::new(),
            size: 0,
        };
        for (at, slice) in self.slices.iter().enumerate().skip(skip) {
            let over = slice.over(smallest, largest);
            if let [first, .., last] | [first @ last] = &slice.files[over.clone()] {
                smallest = smallest.min(&first.smallest);
                largest = largest.max(&last.largest);
                part.size += slice.sums[over.end] - slice.sums[over.start];
                part.files.push((at, over));
            }
        }
        part
    }

    /// The part as a group of its own.
    pub(super) fn take(&self, part: &L0Selection) -> Self {
        let files = part.files.iter().flat_map(|(at, over)| {
            let slice = &self.slices[*at];
            slice.files[over.clone()].iter().map(|f| (slice.run, *f))
        });
        Self::of(files.collect())
    }
}

/// The largest number of files that share a key.
fn depth<'a>(files: impl Iterator<Item = &'a FileMeta>) -> usize {
    // A file that ends where another begins overlaps it, so starts sort before ends.
    let mut edges: Vec<(&[u8], bool)> = files
        .flat_map(|f| [(f.smallest.as_slice(), false), (f.largest.as_slice(), true)])
        .collect();
    edges.sort_unstable();
    let (mut open, mut deepest) = (0, 0);
    for (_, ends) in edges {
        open = if ends { open - 1 } else { open + 1 };
        deepest = deepest.max(open);
    }
    deepest
}

/// The largest number of L0 runs that a read of one key must search.
pub fn l0_depth(version: &Version) -> usize {
    let files = version.l0.iter().flat_map(|run| &run.files);
    depth(files.map(|f| &**f.meta()))
}

/// Tests count bisections.
#[cfg(not(test))]
fn count_step() {}

#[cfg(test)]
use tests::count_step;

#[cfg(test)]
mod tests;
