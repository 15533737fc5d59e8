//! What files and memtables say about a range, and the bounds that follow for its rows.

use crate::base::Result;
use crate::base::key::index_id_of;
use crate::memtable::{IndexCounts, Memtable};
use crate::read::scan::ScanRange;
use crate::read::view::View;
use crate::sst::SstReader;
use crate::version::{FileHandle, Run};
use std::ops::Bound;
use std::sync::Arc;

/// Numbers between which another one lies.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Between {
    pub(super) least: u64,
    pub(super) most: u64,
}

impl Between {
    fn add(&mut self, least: u64, most: u64) {
        self.least += least;
        self.most += most;
    }

    /// The number with the smallest error, if that is a factor of at most the root of `ratio`, and it
    /// cannot be below `rows_min`.
    pub(super) fn settled(self, ratio: f64, rows_min: u64) -> Option<u64> {
        let (least, most) = (self.least as f64, self.most as f64);
        let good = self.least >= rows_min.max(1) && most <= least * ratio;
        good.then(|| (least * most).sqrt().round() as u64)
    }
}

/// A file that an end of the range cuts.
struct Cut<'a> {
    file: &'a FileHandle,
    reader: &'a Arc<SstReader>,
    entries: Between,
}

/// The lower end of the range, if it lies above the start of the file.
fn lower_in<'a>(file: &FileHandle, range: &'a ScanRange) -> Option<&'a [u8]> {
    (file.smallest < range.lower).then_some(&range.lower)
}

/// The upper end of the range, if it lies before the end of the file.
fn upper_in<'a>(file: &FileHandle, range: &'a ScanRange) -> Option<&'a [u8]> {
    let upper = range.upper.as_deref()?;
    (upper <= file.largest.as_slice()).then_some(upper)
}

/// The files of a run that may hold keys of the range.
pub(super) struct RunIn<'a> {
    pub(super) files: &'a [Arc<FileHandle>],
    /// Entries of the files before each one.
    before: Vec<u64>,
    /// Entries in the range, but for those in cut files.
    whole: u64,
    cuts: Vec<Cut<'a>>,
    deletes: Between,
    /// At most.
    superseded: u64,
}

impl<'a> RunIn<'a> {
    fn of(run: &'a Run, range: &ScanRange) -> Result<Option<Self>> {
        let upper = range.upper.as_deref();
        let bound = upper.map_or(Bound::Unbounded, Bound::Excluded);
        let files = run.overlapping(&range.lower, bound);
        let mut found = Self {
            files,
            before: Vec::with_capacity(files.len()),
            whole: 0,
            cuts: Vec::new(),
            deletes: Between::default(),
            superseded: 0,
        };
        let mut before = 0;
        for file in files {
            found.before.push(before);
            before += file.entries;
            found.superseded += file.superseded;
            found.add(file, range)?;
        }
        Ok((!files.is_empty()).then_some(found))
    }

    fn add(&mut self, file: &'a FileHandle, range: &ScanRange) -> Result<()> {
        let (lower, upper) = (lower_in(file, range), upper_in(file, range));
        if lower.is_none() && upper.is_none() {
            self.whole += file.entries;
            self.deletes.add(file.deletes, file.deletes);
            return Ok(());
        }
        let reader = file.reader()?;
        let from = lower.map_or(Ok((0, 0)), |key| reader.rank_bounds(key))?;
        let all = (file.entries, file.entries);
        let to = upper.map_or(Ok(all), |key| reader.rank_bounds(key))?;
        let entries = Between {
            least: to.0.saturating_sub(from.1),
            most: to.1.saturating_sub(from.0),
        };
        if file.deletes > 0 {
            let (least, most) = reader.deletes_within(lower, upper)?;
            self.deletes.add(least, most.min(entries.most));
        }
        let cut = Cut {
            file,
            reader,
            entries,
        };
        self.cuts.push(cut);
        Ok(())
    }

    pub(super) fn entries(&self) -> Between {
        let mut sum = Between::default();
        sum.add(self.whole, self.whole);
        let cuts = self.cuts.iter();
        cuts.for_each(|cut| sum.add(cut.entries.least, cut.entries.most));
        sum
    }

    /// Reads the blocks that the ends of the range cut, so that the entries are known.
    fn count(&mut self, range: &ScanRange) -> Result<()> {
        for cut in &mut self.cuts {
            if cut.entries.least == cut.entries.most {
                continue;
            }
            let rank = |key: &[u8]| cut.reader.rank(key);
            let from = lower_in(cut.file, range).map_or(Ok(0), rank)?;
            let to = upper_in(cut.file, range).map_or(Ok(cut.file.entries), rank)?;
            let entries = to.saturating_sub(from);
            (cut.entries.least, cut.entries.most) = (entries, entries);
        }
        Ok(())
    }

    /// Entries before `key`, counted from the first file.
    fn rank(&self, key: &[u8]) -> Result<u64> {
        let at = self.files.partition_point(|f| f.largest.as_slice() < key);
        match self.files.get(at) {
            Some(file) if file.smallest.as_slice() < key => {
                Ok(self.before[at] + file.reader()?.rank(key)?)
            }
            Some(_) => Ok(self.before[at]),
            None => Ok(self.total()),
        }
    }

    fn total(&self) -> u64 {
        let last = self.before.last().zip(self.files.last());
        last.map_or(0, |(before, file)| before + file.entries)
    }

    /// Whether each entry is a row.
    fn is_clean(&self) -> bool {
        self.deletes.most == 0 && self.superseded == 0
    }
}

/// A memtable that holds entries of the range.
pub(super) struct MemtableIn<'a> {
    pub(super) memtable: &'a Memtable,
    /// About.
    pub(super) entries: u64,
    /// At most.
    deletes: u64,
    counts: Option<IndexCounts>,
    may_hold: bool,
}

impl<'a> MemtableIn<'a> {
    /// `others`: entries elsewhere, beside which those here may be estimated.
    fn of(
        memtable: &'a Memtable,
        counts: Option<IndexCounts>,
        range: &ScanRange,
        others: u64,
    ) -> Self {
        let found = memtable.estimate_range(&range.lower, range.upper.as_deref(), others);
        // The standard error of what was not counted is an eighth of the sum.
        let most = match found.exact {
            true => found.entries,
            false => found.entries + 3 * (found.entries + others) / 8,
        };
        Self {
            memtable,
            entries: found.entries,
            deletes: counts.map_or(most, |counts| counts.deletes.min(most)),
            counts,
            may_hold: most > 0,
        }
    }
}

/// Where the entries of a range are: memtables and runs, newest first.
pub(super) struct Sources<'a> {
    pub(super) range: &'a ScanRange,
    pub(super) runs: Vec<RunIn<'a>>,
    pub(super) memtables: Vec<MemtableIn<'a>>,
}

impl<'a> Sources<'a> {
    pub(super) fn of(view: &'a View, range: &'a ScanRange) -> Result<Self> {
        let mut sources = Self {
            range,
            runs: Vec::new(),
            memtables: Vec::new(),
        };
        for run in view.runs() {
            sources.runs.extend(RunIn::of(run, range)?);
        }
        let mut others = sources.runs.iter().map(|run| run.entries().least).sum();
        let index = index_id_of(&range.lower);
        for memtable in view.memtables() {
            let counts = index.map(|index| memtable.index_counts(index));
            if counts.is_some_and(|counts| counts.entries == 0) {
                continue;
            }
            let found = MemtableIn::of(memtable, counts, range, others);
            others += found.entries;
            if found.may_hold {
                sources.memtables.push(found);
            }
        }
        Ok(sources)
    }

    /// Reads the blocks that the ends of the range cut, two in each run at most, and looks closer at
    /// memtables.
    pub(super) fn count(&mut self) -> Result<()> {
        let range = self.range;
        for found in &mut self.memtables {
            *found = MemtableIn::of(found.memtable, found.counts, range, 0);
        }
        self.memtables.retain(|found| found.may_hold);
        self.runs.iter_mut().try_for_each(|run| run.count(range))
    }

    /// The rows, if one run without deletions and old versions holds all that is in the range. To be
    /// called after [`Self::count`].
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

    /// What the counts of entries and deletions prove about the rows, but for errors of memtables.
    ///
    /// Each row has an entry that puts it: there are no more rows than these. And each run has as many
    /// rows as it has such entries, less those with a newer version in the run, if no newer run
    /// deletes them: there are no fewer rows than the best run proves. Memtables prove nothing, since
    /// they do not know their old versions.
    pub(super) fn rows(&self) -> Between {
        let mut rows = Between::default();
        let mut deletes = 0;
        for memtable in &self.memtables {
            rows.most += memtable.entries;
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

    /// Entries of all kinds in files, and in memtables, about.
    pub(super) fn entries(&self) -> (u64, u64) {
        let files = self.runs.iter().map(|run| run.entries());
        let files = files.map(|e| e.least + (e.most - e.least) / 2);
        let memtables = self.memtables.iter().map(|m| m.entries);
        (files.sum(), memtables.sum())
    }

    /// Mean bytes of an entry in the files of the range, at least 1.
    pub(super) fn entry_bytes(&self) -> u64 {
        let files = || self.runs.iter().flat_map(|run| run.files);
        let bytes: u64 = files().map(|file| file.raw_bytes).sum();
        let entries: u64 = files().map(|file| file.entries).sum();
        bytes.checked_div(entries).unwrap_or(1).max(1)
    }

    /// Entries in `lower ≤ key < upper`: exactly in files, nearly in memtables. Reads a block for each
    /// end in each run.
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
