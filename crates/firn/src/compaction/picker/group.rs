//! Files of L0 that hang together by overlaps.

use super::{TOMBSTONE_SHARE, share_over};
use crate::base::range::KeyRange;
use crate::compaction::plan::Input;
use crate::version::{FileHandle, FileMeta, Version};
use std::ops::Range;
use std::sync::Arc;

/// A file and the position of its run in the version; 0 is the newest.
pub(super) type Placed<'a> = (usize, &'a Arc<FileHandle>);

/// What a group has of one run: neighbours there, ascending.
struct Slice<'a> {
    /// Position of the run in the version; 0 is the newest.
    run: usize,
    files: Vec<&'a Arc<FileHandle>>,
    /// Stored bytes of the files before each one, and of all.
    sums: Vec<u64>,
}

impl<'a> Slice<'a> {
    fn new(run: usize, files: Vec<&'a Arc<FileHandle>>) -> Self {
        let mut sum = 0;
        let mut sums = vec![0];
        for file in &files {
            sum += file.size;
            sums.push(sum);
        }
        Self { run, files, sums }
    }

    /// The files that share a key with what lies from `smallest` to `largest`.
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

/// L0 files that hang together by overlaps.
///
/// The files of a run share no key, so what of it overlaps a range is found by bisection. A part
/// costs a bisection in each run for each step of one over the runs, and there are no more parts
/// than files that lie at the bottom: with *n* files about n²/4 bisections at worst. (To compare
/// each file with each other one was cubic: seconds with two thousand files.)
pub(super) struct Group<'a> {
    /// From the first to the last key.
    pub(super) range: KeyRange,
    /// Newest run first.
    slices: Vec<Slice<'a>>,
}

/// A part of a group: files of each slice.
pub(super) struct Part {
    files: Vec<(usize, Range<usize>)>,
    /// Stored bytes.
    pub(super) size: u64,
}

impl Part {
    /// Runs that have files in it.
    pub(super) fn runs(&self) -> usize {
        self.files.len()
    }
}

impl<'a> Group<'a> {
    /// The group of these files with the positions of their runs: not none, and ascending within
    /// each run.
    pub(super) fn of(mut files: Vec<Placed<'a>>) -> Self {
        let mut range = files[0].1.range();
        files.iter().for_each(|(_, f)| range.extend(&f.range()));
        files.sort_by_key(|(run, _)| *run);
        let runs = files.chunk_by(|a, b| a.0 == b.0);
        let slice =
            |run: &[(usize, _)]| Slice::new(run[0].0, run.iter().map(|(_, f)| *f).collect());
        Self {
            range,
            slices: runs.map(slice).collect(),
        }
    }

    /// All files with the positions of their runs, newest run first.
    pub(super) fn files(&self) -> impl Iterator<Item = Placed<'a>> {
        let slices = self.slices.iter();
        slices.flat_map(|slice| slice.files.iter().map(|f| (slice.run, *f)))
    }

    /// The file, if there is only one.
    pub(super) fn only(&self) -> Option<&'a Arc<FileHandle>> {
        let mut files = self.files();
        let first = files.next()?;
        files.next().is_none().then_some(first.1)
    }

    /// Whether it has files of the run at this position.
    pub(super) fn reaches(&self, run: usize) -> bool {
        self.slices.iter().any(|slice| slice.run == run)
    }

    /// Most runs that a read of one key has to ask.
    pub(super) fn depth(&self) -> usize {
        depth(self.files().map(|(_, f)| &**f.meta()))
    }

    /// Whether it is mostly deletions.
    pub(super) fn is_dense(&self) -> bool {
        let sum = |of: fn(&FileMeta) -> u64| self.files().map(|(_, f)| of(f)).sum();
        share_over(sum(|f| f.deletes), sum(|f| f.entries), TOMBSTONE_SHARE)
    }

    /// Stored bytes.
    pub(super) fn size(&self) -> u64 {
        self.files().map(|(_, f)| f.size).sum()
    }

    /// Its files as inputs, newest run first.
    pub(super) fn inputs(&self) -> Vec<Input> {
        let input = |slice: &Slice<'_>| Input {
            level: 0,
            files: slice.files.iter().map(|f| Arc::clone(f)).collect(),
        };
        self.slices.iter().map(input).collect()
    }

    /// The files under which the group has nothing older.
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

    /// The files over `range`, and for each of them everything older that it overlaps: nothing older
    /// than an output may stay above it. What is newer may stay, and the newest runs are left out as
    /// long as the rest has more than `room` bytes and more than `due` runs.
    pub(super) fn part_over(&self, range: &KeyRange, room: u64, due: usize) -> Part {
        // Without its newest runs a part only becomes smaller.
        let fits = |part: &Part| part.size <= room || part.runs() <= due;
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

    /// As [`Self::part_over`], without the newest `skip` slices. What is taken of a run overlaps
    /// what is taken of newer ones or `range`, so all of it together has no gap.
    fn part_from(&self, skip: usize, range: &KeyRange) -> Part {
        let (mut smallest, mut largest) = (range.smallest.as_slice(), range.largest.as_slice());
        let mut part = Part {
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
    pub(super) fn take(&self, part: &Part) -> Self {
        let files = part.files.iter().flat_map(|(at, over)| {
            let slice = &self.slices[*at];
            slice.files[over.clone()].iter().map(|f| (slice.run, *f))
        });
        Self::of(files.collect())
    }
}

/// The largest number of files that share a key.
fn depth<'a>(files: impl Iterator<Item = &'a FileMeta>) -> usize {
    // A file that ends where another begins overlaps it: starts come first.
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

/// Most runs of L0 that a read of one key has to ask.
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
