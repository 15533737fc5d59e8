//! Counts the entries of a range in files and memtables, and derives bounds on the range's rows.

use crate::base::Result;
use crate::base::key::index_id_of;
use crate::env::ReadClass;
use crate::memtable::{IndexCounts, Memtable};
use crate::read::scan::{ScanRange, ScanSource};
use crate::read::super_version::SuperVersion;
use crate::sst::KeyPlace;
use crate::version::{FileHandle, FileSpan, FileSums, ReaderRef, Run};
use std::ops::Bound;
use std::sync::Arc;

/// Bounds of a number, both inclusive.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CountBounds {
    pub(super) least: u64,
    pub(super) most: u64,
}

impl CountBounds {
    fn add(&mut self, least: u64, most: u64) {
        self.least += least;
        self.most += most;
    }

    /// The geometric mean of the bounds, if they differ by a factor of at most `ratio` and the
    /// lower one is at least `rows_min`.
    pub(super) fn close_enough(self, ratio: f64, rows_min: u64) -> Option<u64> {
        let (least, most) = (self.least as f64, self.most as f64);
        let good = self.least >= rows_min.max(1) && most <= least * ratio;
        good.then(|| (least * most).sqrt().round() as u64)
    }
}

/// A file that contains an end of the range, or both.
struct BoundaryFile<'a> {
    file: &'a FileHandle,
    reader: ReaderRef<'a>,
    /// The ends of the range that lie in the file.
    lower: Option<KeyPlace>,
    upper: Option<KeyPlace>,
    entries: CountBounds,
}

impl BoundaryFile<'_> {
    /// Number of entries of the file in the range. Reads the blocks that contain its ends.
    fn count(&self, range: &ScanRange) -> Result<u64> {
        let upper = || range.upper.as_deref().unwrap_or_default();
        match (&self.lower, &self.upper) {
            (Some(lower), Some(last)) => {
                let (from, to) = ((lower, &range.lower[..]), (last, upper()));
                self.reader.count_between(from, to)
            }
            (Some(lower), None) => {
                let before = self.reader.rank(lower, &range.lower)?;
                Ok(self.file.entries.saturating_sub(before))
            }
            (None, Some(last)) => self.reader.rank(last, upper()),
            (None, None) => Ok(self.file.entries),
        }
    }
}

/// The lower end of the range, if it lies in the file: above the file's smallest key.
fn lower_in<'a>(file: &FileHandle, range: &'a ScanRange) -> Option<&'a [u8]> {
    (file.smallest < range.lower).then_some(&range.lower)
}

/// The upper end of the range, if it lies in the file: at or below the file's largest key.
fn upper_in<'a>(file: &FileHandle, range: &'a ScanRange) -> Option<&'a [u8]> {
    let upper = range.upper.as_deref()?;
    (upper <= file.largest.as_slice()).then_some(upper)
}

/// The files of a run that may hold keys of the range.
pub(super) struct RunInRange<'a> {
    run: &'a Arc<Run>,
    pub(super) files: FileSpan<'a>,
    /// Sum of the entries of those files that lie wholly in the range.
    whole: u64,
    cuts: Vec<BoundaryFile<'a>>,
    deletes: CountBounds,
    /// Upper bound of the number of entries in the range that have a newer version in the run.
    superseded: u64,
}

impl<'a> RunInRange<'a> {
    fn of(run: &'a Arc<Run>, range: &ScanRange) -> Result<Option<Self>> {
        let upper = range.upper.as_deref();
        let bound = upper.map_or(Bound::Unbounded, Bound::Excluded);
        let files = run.overlapping(&range.lower, bound);
        let Some(first) = files.first() else {
            return Ok(None);
        };
        let sums = files.sum();
        let mut found = Self {
            run,
            files,
            whole: sums.entries,
            cuts: Vec::new(),
            deletes: CountBounds {
                least: sums.deletes,
                most: sums.deletes,
            },
            superseded: sums.superseded,
        };
        // The files are sorted and share no key, so an end of the range lies in the first or the
        // last file or between files.
        let last = files.last().filter(|_| files.len() > 1);
        for file in std::iter::once(first).chain(last) {
            found.cut(file, range)?;
        }
        Ok(Some(found))
    }

    /// Replaces the counts of `file`, if an end of the range lies in it, by those of its part in
    /// the range.
    fn cut(&mut self, file: &'a FileHandle, range: &ScanRange) -> Result<()> {
        let (lower, upper) = (lower_in(file, range), upper_in(file, range));
        if lower.is_none() && upper.is_none() {
            return Ok(());
        }
        self.whole -= file.entries;
        self.deletes.least -= file.deletes;
        self.deletes.most -= file.deletes;
        let reader = file.reader()?;
        let lower_place = lower.map(|key| reader.locate(key)).transpose()?;
        let upper_place = upper.map(|key| reader.locate(key)).transpose()?;
        let all = (file.entries, file.entries);
        let from = lower_place.as_ref().map_or((0, 0), KeyPlace::bounds);
        let to = upper_place.as_ref().map_or(all, KeyPlace::bounds);
        let entries = CountBounds {
            least: to.0.saturating_sub(from.1),
            most: to.1.saturating_sub(from.0),
        };
        if file.deletes > 0 {
            let (least, most) = reader.deletes_within(lower, upper)?;
            self.deletes.add(least, most.min(entries.most));
        }
        let cut = BoundaryFile {
            file,
            reader,
            lower: lower_place,
            upper: upper_place,
            entries,
        };
        self.cuts.push(cut);
        Ok(())
    }

    pub(super) fn entries(&self) -> CountBounds {
        let mut sum = CountBounds::default();
        sum.add(self.whole, self.whole);
        let cuts = self.cuts.iter();
        cuts.for_each(|cut| sum.add(cut.entries.least, cut.entries.most));
        sum
    }

    /// Reads the blocks that contain the ends of the range, which makes the counts of entries
    /// exact.
    fn count(&mut self, range: &ScanRange) -> Result<()> {
        for cut in &mut self.cuts {
            if cut.entries.least == cut.entries.most {
                continue;
            }
            let entries = cut.count(range)?;
            (cut.entries.least, cut.entries.most) = (entries, entries);
        }
        Ok(())
    }

    /// Number of entries below `key` in `files`.
    fn rank(&self, key: &[u8]) -> Result<u64> {
        let at = self.files.partition_point(|f| f.largest.as_slice() < key);
        match self.files.get(at) {
            Some(file) if file.smallest.as_slice() < key => {
                let reader = file.reader()?;
                Ok(self.before(at) + reader.rank(&reader.locate(key)?, key)?)
            }
            _ => Ok(self.before(at)),
        }
    }

    /// Number of entries of the first `files` files.
    fn before(&self, files: usize) -> u64 {
        self.files.range(0..files).sum().entries
    }

    /// Number of entries of `files`.
    fn total(&self) -> u64 {
        self.files.sum().entries
    }

    /// Divides the files into groups of neighbours. A group ends with the file by which it reaches
    /// `entries_min` entries, which must not be 0. Returns that file and the number of entries of
    /// each group. If files remain at the end, they are in no group.
    pub(super) fn groups(
        &self,
        entries_min: u64,
    ) -> impl Iterator<Item = (&'a Arc<FileHandle>, u64)> {
        let mut rest = self.files;
        std::iter::from_fn(move || {
            let last = rest.select(entries_min - 1, |sums| sums.entries)?;
            let group = rest.range(0..last + 1);
            rest = rest.range(last + 1..rest.len());
            Some((group.last()?, group.sum().entries))
        })
    }

    /// Whether each entry of the run in the range is a row. This is so if the run has no deletions
    /// in the range, and its files have no two versions of a key.
    fn is_clean(&self) -> bool {
        self.deletes.most == 0 && self.superseded == 0
    }
}

/// A memtable that holds entries of the range.
pub(super) struct MemtableInRange<'a> {
    pub(super) memtable: &'a Arc<Memtable>,
    /// Estimated number of entries in the range.
    pub(super) entries: u64,
    /// Upper bound of the number of entries in the range. If `entries` is an estimate, this is two
    /// standard errors above it, and the true number exceeds it in about one case of forty
    /// ([`RangeEntries::most`](crate::memtable::RangeEntries::most)).
    most: u64,
    /// Upper bound of the number of deletions in the range. Since that number is estimated, it
    /// exceeds the bound in a few cases.
    deletes: u64,
}

impl<'a> MemtableInRange<'a> {
    /// Counts the entries of `memtable` in the range. `others` is the number of entries that other
    /// sources have in the range: the more there are, the less precisely the memtable must be
    /// counted.
    fn of(
        memtable: &'a Arc<Memtable>,
        counts: Option<IndexCounts>,
        range: &ScanRange,
        others: u64,
    ) -> Self {
        let found = memtable.estimate_range(&range.lower, range.upper.as_deref(), others);
        let (most, deletes) = (found.most(found.entries), found.most(found.deletes));
        Self {
            memtable,
            entries: found.entries,
            most,
            deletes: counts.map_or(deletes, |counts| counts.deletes.min(deletes)),
        }
    }
}

/// The memtables and runs that hold entries of a range, newest first.
pub(super) struct RangeSources<'a> {
    super_version: &'a SuperVersion,
    pub(super) range: &'a ScanRange,
    pub(super) runs: Vec<RunInRange<'a>>,
    pub(super) memtables: Vec<MemtableInRange<'a>>,
}

impl<'a> RangeSources<'a> {
    /// The sources of `range` in `super_version`. The memtables are not counted yet.
    pub(super) fn of(super_version: &'a SuperVersion, range: &'a ScanRange) -> Result<Self> {
        let mut runs = Vec::new();
        for run in super_version.runs() {
            runs.extend(RunInRange::of(run, range)?);
        }
        Ok(Self {
            super_version,
            range,
            runs,
            memtables: Vec::new(),
        })
    }

    /// Counts the entries of memtables in the range, with an error that is small beside the sum of
    /// all entries: the more entries the files have, the coarser the count.
    pub(super) fn count_memtables(&mut self) {
        let mut others = self.entries_in_files();
        let index = index_id_of(&self.range.lower);
        self.memtables.clear();
        for memtable in self.super_version.memtables() {
            let counts = index.map(|index| memtable.index_counts(index));
            if counts.is_some_and(|counts| counts.entries == 0) {
                continue;
            }
            let found = MemtableInRange::of(memtable, counts, self.range, others);
            others += found.entries;
            // The bound is 0 only if the entries were counted and there are none, so the memtable
            // need not be read.
            debug_assert!(found.most > 0 || found.entries == 0);
            if found.most > 0 {
                self.memtables.push(found);
            }
        }
    }

    /// Reads the blocks that contain the ends of the range, at most two per run, and counts the
    /// memtables after that.
    pub(super) fn count(&mut self) -> Result<()> {
        let range = self.range;
        self.runs.iter_mut().try_for_each(|run| run.count(range))?;
        self.count_memtables();
        Ok(())
    }

    /// Lower bound of the number of entries in files.
    pub(super) fn entries_in_files(&self) -> u64 {
        self.runs.iter().map(|run| run.entries().least).sum()
    }

    /// The number of rows, if a single run holds all entries of the range and has neither deletions
    /// nor old versions there. Call it after [`Self::count`].
    pub(super) fn plain_rows(&self) -> Option<u64> {
        if !self.memtables.is_empty() {
            return None;
        }
        let mut holding = self.runs.iter().filter(|run| run.entries().most > 0);
        match (holding.next(), holding.next()) {
            (None, _) => Some(0),
            (Some(run), None) => run.is_clean().then(|| run.entries().least),
            _ => None,
        }
    }

    /// Lower and upper bound of the number of rows, from the counts of entries and deletions. The
    /// bounds are certain for files; for memtables they rest on estimates.
    ///
    /// Upper bound: each row has a put entry. Lower bound: a run proves one row for each of its put
    /// entries, minus those with a newer version in the run, minus all deletions of this run and of
    /// newer sources. The lower bound is that of the run which proves most rows. Memtables prove no
    /// row, since they do not know how many of their entries are old versions.
    ///
    /// Example: a newer run with 10 puts and 5 deletions over a run with 100 puts gives at most 110
    /// rows and at least 95.
    pub(super) fn rows(&self) -> CountBounds {
        let mut rows = CountBounds::default();
        let mut deletes = 0;
        for memtable in &self.memtables {
            rows.most += memtable.most;
            deletes += memtable.deletes;
        }
        for run in &self.runs {
            let entries = run.entries();
            rows.most += entries.most.saturating_sub(run.deletes.least);
            deletes += run.deletes.most;
            let proven = entries.least.saturating_sub(run.superseded + deletes);
            rows.least = rows.least.max(proven);
        }
        rows
    }

    /// Iterators over the sources that hold entries of the range. Call it after [`Self::count`].
    pub(super) fn scan(&self) -> Vec<ScanSource> {
        let memtables = self.memtables.iter();
        let memtables = memtables.map(|found| ScanSource::Memtable(found.memtable.iter()));
        let (lower, upper) = (&self.range.lower, self.range.upper.as_deref());
        let runs = self.runs.iter().filter(|run| run.entries().most > 0);
        let runs = runs.map(|run| ScanSource::of_run(run.run, lower, upper, ReadClass::Range));
        memtables.chain(runs).collect()
    }

    /// Estimated number of entries of all kinds: the number in files, and the number in memtables.
    pub(super) fn entries(&self) -> (u64, u64) {
        let files = self.runs.iter().map(|run| run.entries());
        let files = files.map(|e| e.least + (e.most - e.least) / 2);
        let memtables = self.memtables.iter().map(|m| m.entries);
        (files.sum(), memtables.sum())
    }

    /// Mean size of an entry in the files of the range, bytes, at least 1.
    pub(super) fn entry_bytes(&self) -> u64 {
        let mut sums = FileSums::default();
        self.runs.iter().for_each(|run| sums.add(&run.files.sum()));
        let bytes = sums.raw_bytes.checked_div(sums.entries);
        bytes.unwrap_or(1).max(1)
    }

    /// Number of entries with `lower ≤ key < upper`: exact in files, an estimate in memtables.
    /// Reads a block for each end in each run.
    pub(super) fn between(&self, lower: &[u8], upper: Option<&[u8]>) -> Result<u64> {
        let mut entries = 0;
        for run in &self.runs {
            let to = upper.map_or(Ok(run.total()), |key| run.rank(key))?;
            entries += to.saturating_sub(run.rank(lower)?);
        }
        for found in &self.memtables {
            entries += found.memtable.estimate_range(lower, upper, entries).entries;
        }
        Ok(entries)
    }
}

#[cfg(test)]
mod tests;
