//! How many rows a range holds, for the optimizer.

use super::scan::{ScanRange, Source, scan_sources};
use super::view::{ReadPoint, View};
use crate::base::key::index_id_of;
use crate::base::{ErrorKind, Result};
use crate::iter::{Interrupt, MergeIter, MvccIter, ReadAt};
use crate::sst::SstReader;
use crate::version::{FileHandle, Run};
use std::ops::Bound;
use std::sync::{Arc, LazyLock};

/// Rows up to which an estimate is exact.
pub const EXACT_ROWS: u64 = 100;

/// From this many rows on nothing is read, where the indexes of the files are precise enough.
const READ_ROWS: u64 = 4 * EXACT_ROWS;

/// Entries a dive passes over, about: versions that are hidden, and deletions.
const DIVE_SKIPS: u64 = 8 * EXACT_ROWS;

/// Places where a range is read that does not end soon, its start included.
const SAMPLES: u64 = 4;

/// Ends a move of a dive that meets nothing but deletions.
static ENOUGH: LazyLock<Interrupt> = LazyLock::new(|| Arc::new(|| true));

/// A file that an end of the range may cut, and what its index says: the entries of the range lie
/// between `least` and `most`.
struct Cut<'a> {
    file: &'a FileHandle,
    reader: &'a Arc<SstReader>,
    least: u64,
    most: u64,
}

impl<'a> Cut<'a> {
    fn new(file: &'a FileHandle, range: &ScanRange) -> Result<Self> {
        let reader = file.reader()?;
        let from = lower_in(file, range).map_or(Ok((0, 0)), |key| reader.rank_bounds(key))?;
        let to = upper_in(file, range).map_or(Ok((file.entries, file.entries)), |key| {
            reader.rank_bounds(key)
        })?;
        Ok(Self {
            file,
            reader,
            least: to.0.saturating_sub(from.1),
            most: to.1.saturating_sub(from.0),
        })
    }

    /// The entries, exactly. Reads a block for each end of the range in the file.
    fn exact(&self, range: &ScanRange) -> Result<u64> {
        if self.least == self.most {
            return Ok(self.least);
        }
        let from = lower_in(self.file, range).map_or(Ok(0), |key| self.reader.rank(key))?;
        let to = upper_in(self.file, range)
            .map_or(Ok(self.file.entries), |key| self.reader.rank(key))?;
        Ok(to.saturating_sub(from))
    }
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

/// Entries of a range in the files.
#[derive(Default)]
struct Files<'a> {
    /// In files that lie wholly in the range.
    whole: u64,
    cuts: Vec<Cut<'a>>,
    /// Runs that have files in the range.
    runs: usize,
    /// Entries of the run that has most, about.
    largest: u64,
    /// Whether no file in the range holds deletions or more than one version of a key.
    clean: bool,
}

impl<'a> Files<'a> {
    fn of(view: &'a View, range: &ScanRange) -> Result<Self> {
        let mut files = Self {
            clean: true,
            ..Self::default()
        };
        for run in view.version.l0.iter().chain(&view.version.levels) {
            files.add(run, range)?;
        }
        Ok(files)
    }

    fn add(&mut self, run: &'a Run, range: &ScanRange) -> Result<()> {
        let upper = range.upper.as_deref();
        let bound = upper.map_or(Bound::Unbounded, Bound::Excluded);
        let inside = run.overlapping(&range.lower, bound);
        self.runs += usize::from(!inside.is_empty());
        let mut entries = 0;
        for file in inside {
            self.clean &= file.deletes == 0 && file.superseded == 0;
            if lower_in(file, range).is_none() && upper_in(file, range).is_none() {
                self.whole += file.entries;
                entries += file.entries;
            } else {
                let cut = Cut::new(file, range)?;
                entries += cut.least + (cut.most - cut.least) / 2;
                self.cuts.push(cut);
            }
        }
        self.largest = self.largest.max(entries);
        Ok(())
    }

    fn least(&self) -> u64 {
        self.whole + self.cuts.iter().map(|cut| cut.least).sum::<u64>()
    }

    fn most(&self) -> u64 {
        self.whole + self.cuts.iter().map(|cut| cut.most).sum::<u64>()
    }

    fn exact(&self, range: &ScanRange) -> Result<u64> {
        let mut entries = self.whole;
        for cut in &self.cuts {
            entries += cut.exact(range)?;
        }
        Ok(entries)
    }
}

/// Entries of a range in the memtables: their number, and whether it was counted.
fn in_memtables(view: &View, range: &ScanRange, in_files: u64) -> (u64, bool) {
    let (mut entries, mut exact) = (0, true);
    let index = index_id_of(&range.lower);
    for memtable in std::iter::once(&view.active).chain(&view.frozen) {
        if index.is_some_and(|index| memtable.index_counts(index).entries == 0) {
            continue;
        }
        let others = in_files + entries;
        let found = memtable.estimate_range(&range.lower, range.upper.as_deref(), others);
        entries += found.entries;
        exact &= found.exact;
    }
    (entries, exact)
}

/// The share of an index's entries that are rows, supposing that each deletion deletes one entry.
fn live_share(view: &View, range: &ScanRange) -> f64 {
    let Some(index) = index_id_of(&range.lower) else {
        return 1.0;
    };
    let files = view.version.index_stats(index);
    let (mut entries, mut deletes) = (files.entries, files.deletes);
    for memtable in std::iter::once(&view.active).chain(&view.frozen) {
        let counts = memtable.index_counts(index);
        entries += counts.entries;
        deletes += counts.deletes;
    }
    entries.saturating_sub(2 * deletes) as f64 / entries.max(1) as f64
}

/// Estimates the rows of a range, which lies in one index: exact up to [`EXACT_ROWS`] unless
/// deletions in great number hide them, else by counts of entries.
///
/// First the indexes of the files say between which numbers the entries lie: all in whole blocks,
/// none or all in the blocks that an end of the range cuts. If that is precise, and much, nothing
/// is read. Else the cut blocks are read, one for each end in each run. Where one run without old
/// versions holds all, its entries are the rows.
///
/// Then entries become rows. Many are scaled by the index's share of live ones, which knows
/// deletions but not versions: so only where one run holds two thirds of the entries, and versions
/// of its rows cannot be more than the rest. Otherwise the range is read from its start, as a scan
/// would see it, to the end if it is short; else for a while there and at three places further on,
/// and what was met stands for the rest.
///
/// # Errors
/// Those of reading.
pub fn estimate_rows(point: &ReadPoint, range: &ScanRange) -> Result<u64> {
    let view = &*point.view;
    let files = Files::of(view, range)?;
    let (least, most) = (files.least(), files.most());
    let (in_memtables, counted) = in_memtables(view, range, least);
    let share = live_share(view, range);
    let live = |entries: u64| (entries as f64 * share) as u64;
    let mut entries = least + (most - least) / 2 + in_memtables;
    let precise = (most - least) * 2 <= entries;
    if !precise || live(least + in_memtables) < READ_ROWS {
        entries = files.exact(range)? + in_memtables;
        let alone = files.runs <= 1 && files.clean && in_memtables == 0;
        if counted && (alone || entries == 0) {
            return Ok(entries);
        }
    }
    let in_order = 3 * files.largest >= 2 * entries;
    if in_order && live(entries) >= 2 * EXACT_ROWS {
        return Ok(live(entries));
    }
    Ok(match dive(point, range)? {
        Dive::Counted(rows) => rows,
        Dive::Ended { rows, passed } => {
            let rest = entries.saturating_sub(passed) as f64;
            let rows = rows + (rest * rows as f64 / passed.max(1) as f64) as u64;
            // None at all would be a promise.
            rows.max(1)
        }
    })
}

/// What a dive met.
enum Dive {
    /// These rows, and the end of the range.
    Counted(u64),
    /// Too much: these rows among the entries it passed, at the start and at places further on.
    Ended { rows: u64, passed: u64 },
}

fn dive(point: &ReadPoint, range: &ScanRange) -> Result<Dive> {
    let sources = scan_sources(&point.view, range, None);
    let mut entries = MvccIter::new(MergeIter::new(sources), ReadAt::snapshot(point.seqno));
    entries.set_bounds(Some(&range.lower), range.upper.as_deref());
    entries.set_interrupt(Some(Arc::clone(&ENOUGH)));
    let (mut rows, ended) = read_from(&mut entries, &range.lower, EXACT_ROWS, DIVE_SKIPS)?;
    if ended {
        return Ok(Dive::Counted(rows));
    }
    for part in 1..SAMPLES {
        if let Some(key) = key_inside(range, part) {
            let limits = (EXACT_ROWS / SAMPLES, DIVE_SKIPS / SAMPLES);
            rows += read_from(&mut entries, &key, limits.0, limits.1)?.0;
        }
    }
    let passed = rows + entries.skipped_entries();
    Ok(Dive::Ended { rows, passed })
}

/// Reads from `key` until it has met more than `rows_max` rows, or passed over more than `skips_max`
/// entries. The rows, and whether the range ended before.
fn read_from(
    entries: &mut MvccIter<MergeIter<Source>>,
    key: &[u8],
    rows_max: u64,
    skips_max: u64,
) -> Result<(u64, bool)> {
    let skipped = entries.skipped_entries();
    let mut rows = 0;
    let mut found = entries.seek_ge(key);
    loop {
        match found {
            Ok(true) => rows += 1,
            Ok(false) => return Ok((rows, true)),
            Err(error) if *error.kind() == ErrorKind::Interrupted => return Ok((rows, false)),
            Err(error) => return Err(error),
        }
        if rows > rows_max || entries.skipped_entries() - skipped > skips_max {
            return Ok((rows, false));
        }
        found = entries.next();
    }
}

/// The key at `part` of [`SAMPLES`] parts of the way through the range, as if the eight bytes after
/// what its ends have in common were spread evenly.
fn key_inside(range: &ScanRange, part: u64) -> Option<Vec<u8>> {
    let (lower, upper) = (&range.lower, range.upper.as_ref()?);
    let common = lower.iter().zip(upper).take_while(|(a, b)| a == b).count();
    let number = |key: &[u8]| {
        let mut eight = [0; 8];
        let rest = &key[common..];
        let len = rest.len().min(8);
        eight[..len].copy_from_slice(&rest[..len]);
        u64::from_be_bytes(eight)
    };
    let (from, to) = (number(lower), number(upper));
    let step = to.checked_sub(from)? / SAMPLES;
    let inside = from + step * part;
    Some([&lower[..common], &inside.to_be_bytes()].concat())
}
