//! Groups of L0 files that overlap each other in chains.

use super::running_jobs::JobInput;
use crate::base::key_range::KeyRange;
use crate::version::{FileHandle, FileMeta, TOMBSTONE_SHARE, share_over};
use std::cmp::Reverse;
use std::ops::Range;
use std::sync::Arc;

/// A file of L0 and the position of its run in the version; position 0 is the newest run.
pub(super) type FileInRun<'a> = (usize, &'a Arc<FileHandle>);

/// The files of an [`L0Overlap`] group that belong to one run. They stand next to each other in the
/// run, ascending by key.
struct RunSlice<'a> {
    /// Position of the run in the version; 0 is the newest.
    run: usize,
    files: Vec<&'a Arc<FileHandle>>,
    /// Prefix sums of the stored bytes: the sum of the files before each file, and at the end the
    /// sum of all.
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

    /// Positions in `files` of the files that overlap the keys from `smallest` to `largest`, both
    /// inclusive.
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

/// An overlap group of L0: each file of the group overlaps another file of the group, and none
/// overlaps a file of L0 outside the group.
///
/// A job may take a part of a group, as long as no file that is older than an output of the job
/// stays above it in L0. Such a part is computed from the key range of one bottom file, a file that
/// overlaps no older one. From the newest run to the oldest, it takes every file that overlaps the
/// range or a file taken before.
///
/// Cost: the files of one run share no key, so bisection finds those that overlap a range.
/// Computing a part takes one bisection in each of *r* runs, and this is repeated log *r* times to
/// choose how many of the newest runs to omit. One part is computed for each of *b* bottom files.
/// With *n* files, *b* + *r* is at most *n* + 1, so the worst case is about n²/4 bisections times
/// log *r*. (An earlier version compared each file with each other one. That was cubic: seconds
/// with two thousand files.)
pub(super) struct L0Overlap<'a> {
    /// The range from the smallest to the largest key of the group.
    pub(super) range: KeyRange,
    /// The files of each run that has files in the group, newest run first.
    slices: Vec<RunSlice<'a>>,
}

/// A part of a group of overlapping L0 files, which one job may compact. For each run that has
/// files in the part, `files` holds the position of the run's [`RunSlice`] in the group, and the
/// range of the files within that slice.
pub(super) struct L0Selection {
    files: Vec<(usize, Range<usize>)>,
    /// Sum of the sizes of the files in bytes.
    pub(super) size: u64,
}

impl L0Selection {
    /// Number of runs that have files in this part.
    pub(super) fn runs(&self) -> usize {
        self.files.len()
    }
}

impl<'a> L0Overlap<'a> {
    /// The group of `files`. There must be at least one, and the files of each run must ascend by
    /// key.
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

    /// Divides `files`, of which those of each run share no key, into groups, ascending by key.
    /// Files that overlap are in the same group, and so are files that other files connect in a
    /// chain of overlaps.
    pub(super) fn chains(mut files: Vec<FileInRun<'a>>) -> Vec<Self> {
        files.sort_by(|a, b| a.1.smallest.cmp(&b.1.smallest));
        let mut groups: Vec<(KeyRange, Vec<FileInRun<'a>>)> = Vec::new();
        for (run, file) in files {
            match groups.last_mut() {
                Some((range, of)) if file.smallest <= range.largest => {
                    range.extend(&file.range());
                    of.push((run, file));
                }
                _ => groups.push((file.range(), vec![(run, file)])),
            }
        }
        groups.into_iter().map(|(_, of)| Self::of(of)).collect()
    }

    /// All files of the overlap group, each with the position of its run, newest run first.
    pub(super) fn files(&self) -> impl Iterator<Item = FileInRun<'a>> {
        let slices = self.slices.iter();
        slices.flat_map(|slice| slice.files.iter().map(|f| (slice.run, *f)))
    }

    /// The file, if the group has only one.
    pub(super) fn only(&self) -> Option<&'a Arc<FileHandle>> {
        let mut files = self.files();
        let first = files.next()?;
        files.next().is_none().then_some(first.1)
    }

    /// The position of the oldest run that has files in the group.
    pub(super) fn oldest(&self) -> usize {
        self.slices.last().map_or(0, |slice| slice.run)
    }

    /// The position of the newest run that has files in the group.
    pub(super) fn newest(&self) -> usize {
        self.slices[0].run
    }

    /// Number of runs that have files in the group.
    pub(super) fn runs(&self) -> usize {
        self.slices.len()
    }

    /// Whether the group has files of the run at position `run`.
    pub(super) fn reaches(&self, run: usize) -> bool {
        self.slices.iter().any(|slice| slice.run == run)
    }

    /// The largest number of files of the overlap group that have one key in their ranges, so that
    /// a read of the key must search them.
    pub(super) fn depth(&self) -> usize {
        depth(self.files().map(|(_, f)| &**f.meta()))
    }

    /// Whether more than [`TOMBSTONE_SHARE`] percent of the entries in the files of the overlap
    /// group are deletions.
    pub(super) fn has_many_deletions(&self) -> bool {
        let sum = |of: fn(&FileMeta) -> u64| self.files().map(|(_, f)| of(f)).sum();
        share_over(sum(|f| f.deletes), sum(|f| f.entries), TOMBSTONE_SHARE)
    }

    /// Sum of the sizes of the files in bytes.
    pub(super) fn size(&self) -> u64 {
        self.files().map(|(_, f)| f.size).sum()
    }

    /// The files of the group as inputs of a job, newest run first.
    pub(super) fn inputs(&self) -> Vec<JobInput> {
        let input = |slice: &RunSlice<'_>| JobInput {
            level: 0,
            files: slice.files.iter().map(|f| Arc::clone(f)).collect(),
        };
        self.slices.iter().map(input).collect()
    }

    /// The bottom files of the overlap group: those that overlap no file of an older run in the
    /// group.
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

    /// The part of the group that overlaps `range`. It has all files that overlap `range`, and for
    /// each of them all older files that overlap it, because no file older than an output may stay
    /// above that output. Newer files may stay in L0. So while the part has more than `room` bytes
    /// and more than `due` runs, its newest runs are omitted.
    pub(super) fn part_over(&self, range: &KeyRange, room: u64, due: usize) -> L0Selection {
        // Omitting more of the newest runs never adds files to the part. So bisection finds the
        // smallest number of runs to omit.
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

    /// Selects files of the group for a job, without the newest `skip` runs and without a limit on
    /// their size: the files that overlap `range`, and all older files that overlap a selected one.
    /// Each selected file overlaps `range` or a file selected from a newer run, so together they
    /// cover one key range without gaps.
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

    /// The smallest part of the group that has `file` and that may be merged into the newest of its
    /// runs: the file, and for each file of the part all newer ones that overlap it, because no
    /// older version of a key may rise above a newer one. Older files may stay.
    pub(super) fn part_above(&self, (run, file): FileInRun<'_>) -> L0Selection {
        let (mut smallest, mut largest) = (file.smallest.as_slice(), file.largest.as_slice());
        let mut part = L0Selection {
            files: Vec::new(),
            size: 0,
        };
        for (at, slice) in self.slices.iter().enumerate().rev() {
            if slice.run > run {
                continue;
            }
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

    /// The parts of at least `due` runs that may be merged into the newest of their runs
    /// ([`Self::part_above`]), the best first: those of at most `room` bytes, most runs first, and
    /// then the larger ones, smallest first.
    pub(super) fn rising_parts(&self, room: u64, due: usize) -> Vec<L0Selection> {
        let parts = self.files().map(|file| self.part_above(file));
        let mut parts: Vec<L0Selection> = parts.filter(|part| part.runs() >= due).collect();
        parts.sort_by_key(|part| {
            let too_large = Some(part.size).filter(|size| *size > room);
            (too_large, Reverse(part.runs()), part.size)
        });
        parts
    }

    /// The files of `part` as a group of their own.
    pub(super) fn take(&self, part: &L0Selection) -> Self {
        let files = part.files.iter().flat_map(|(at, over)| {
            let slice = &self.slices[*at];
            slice.files[over.clone()].iter().map(|f| (slice.run, *f))
        });
        Self::of(files.collect())
    }
}

/// The largest number of files that share a key.
pub(super) fn depth<'a>(files: impl Iterator<Item = &'a FileMeta>) -> usize {
    // At equal keys, sort begins of files (`false`) before ends (`true`), because a file that ends
    // at the first key of another one overlaps it.
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

/// Does nothing here. The tests replace it by a function that counts bisections.
#[cfg(not(test))]
fn count_step() {}

#[cfg(test)]
use tests::count_step;

#[cfg(test)]
mod tests;
