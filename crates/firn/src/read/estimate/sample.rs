//! Rows from samples: read a little at many places, and let each stand for what follows it.

use super::sources::Sources;
use crate::base::{ErrorKind, Result};
use crate::iter::{Interrupt, MergeIter, MvccIter, ReadAt};
use crate::read::scan::{ScanRange, Source, scan_sources};
use crate::read::view::ReadPoint;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Parts of a range, each of which is sampled.
const PARTS: usize = 32;
/// Rows to read in each.
const PART_ROWS: u64 = 48;
/// Entries to pass over in each, about.
const PART_SKIPS: u64 = 256;
/// A cursor is asked after so many skipped entries whether to go on.
const SKIPS_A_CHECK: u64 = 1024;

/// Where a reading ended, and the rows before.
pub(super) enum Read {
    /// With the range.
    All(u64),
    /// At this row, which is not counted.
    Until { rows: u64, key: Vec<u8> },
    /// Amid entries that are no rows; so many entries were passed.
    Amid { rows: u64, passed: u64 },
}

/// Reads rows of a range as a scan would see them.
pub(super) struct Reading {
    entries: MvccIter<MergeIter<Source>>,
    /// How often a move may be asked whether to go on, and does.
    checks: Arc<AtomicU64>,
}

impl Reading {
    pub(super) fn new(point: &ReadPoint, range: &ScanRange) -> Self {
        let sources = scan_sources(&point.view, range, None);
        let mut entries = MvccIter::new(MergeIter::new(sources), ReadAt::snapshot(point.seqno));
        entries.set_bounds(Some(&range.lower), range.upper.as_deref());
        let checks = Arc::new(AtomicU64::new(0));
        let left = Arc::clone(&checks);
        let interrupt: Interrupt = Arc::new(move || {
            let one_less = |n: u64| n.checked_sub(1);
            left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less)
                .is_err()
        });
        entries.set_interrupt(Some(interrupt));
        Self { entries, checks }
    }

    /// Reads from `from` to below `to` (`None`: to the end of the range), but no more than `rows_max`
    /// rows and about `skips_max` other entries.
    pub(super) fn read(
        &mut self,
        from: &[u8],
        to: Option<&[u8]>,
        rows_max: u64,
        skips_max: u64,
    ) -> Result<Read> {
        let checks = skips_max / SKIPS_A_CHECK;
        self.checks.store(checks, Ordering::Relaxed);
        let skipped = self.entries.skipped_entries();
        let mut rows = 0;
        let mut found = self.entries.seek_ge(from);
        loop {
            let skips = self.entries.skipped_entries() - skipped;
            match self.met(found, rows, to)? {
                ControlFlow::Break(Some(read)) => return Ok(read),
                ControlFlow::Break(None) => {
                    let passed = rows + skips;
                    return Ok(Read::Amid { rows, passed });
                }
                ControlFlow::Continue(()) => {}
            }
            if rows == rows_max || skips > skips_max {
                let key = self.entries.user_key().to_vec();
                return Ok(Read::Until { rows, key });
            }
            rows += 1;
            found = self.entries.next();
        }
    }

    /// Goes on at a row of the range.
    fn met(
        &self,
        found: Result<bool>,
        rows: u64,
        to: Option<&[u8]>,
    ) -> Result<ControlFlow<Option<Read>>> {
        match found {
            Ok(true) if to.is_none_or(|to| self.entries.user_key() < to) => {
                Ok(ControlFlow::Continue(()))
            }
            Ok(_) => Ok(ControlFlow::Break(Some(Read::All(rows)))),
            Err(error) if *error.kind() == ErrorKind::Interrupted => Ok(ControlFlow::Break(None)),
            Err(error) => Err(error),
        }
    }
}

/// Estimates the rows of the range by reading at the start of each of some parts of like size.
///
/// The parts are cut where blocks of the files and links of the memtables cut their entries, so that
/// many entries mean many parts, wherever they lie. Entries of each part are known from the files;
/// the rows among those read there stand for the rest of the part. A part that is read to its end
/// is known.
pub(super) fn sampled_rows(reading: &mut Reading, sources: &Sources<'_>) -> Result<u64> {
    let starts = part_starts(sources)?;
    let mut rows = 0.0;
    for (i, start) in starts.iter().enumerate() {
        let next = starts.get(i + 1).map(Vec::as_slice);
        let end = next.or(sources.range.upper.as_deref());
        rows += match reading.read(start, end, PART_ROWS, PART_SKIPS)? {
            Read::All(rows) => rows as f64,
            Read::Until { rows, key } => {
                let passed = sources.between(start, Some(&key))?.max(1);
                let all = sources.between(start, end)?.max(passed);
                rows as f64 * all as f64 / passed as f64
            }
            Read::Amid { rows, passed } => {
                let all = sources.between(start, end)?.max(passed);
                rows as f64 * all as f64 / passed.max(1) as f64
            }
        };
    }
    Ok(rows.round() as u64)
}

/// A key, and how many entries lie about it for which no other key stands.
type Weighted = (Vec<u8>, f64);

/// Where the parts of the range begin, the first with the range.
fn part_starts(sources: &Sources<'_>) -> Result<Vec<Vec<u8>>> {
    let range = sources.range;
    let mut keys = candidates(sources)?;
    keys.retain(|(key, _)| *key > range.lower);
    keys.sort_by(|a, b| a.0.cmp(&b.0));
    let total: f64 = keys.iter().map(|(_, weight)| weight).sum();
    let mut starts = vec![range.lower.clone()];
    let mut before = 0.0;
    for (key, weight) in keys {
        before += weight;
        let due = total * starts.len() as f64 / PARTS as f64;
        if before >= due && starts.len() < PARTS && starts.last() < Some(&key) {
            starts.push(key);
        }
    }
    if starts.len() < PARTS / 2 {
        // Few and large blocks.
        let inside = (1..PARTS as u64).filter_map(|part| key_inside(range, part));
        starts.extend(inside);
        starts.sort();
        starts.dedup();
    }
    Ok(starts)
}

fn candidates(sources: &Sources<'_>) -> Result<Vec<Weighted>> {
    let range = sources.range;
    let (in_files, in_memtables) = sources.entries();
    let all = (in_files + in_memtables).max(1) as f64;
    let mut keys: Vec<Weighted> = Vec::new();
    let mut add = |some: Vec<Vec<u8>>, entries: f64| {
        let weight = entries / some.len().max(1) as f64;
        keys.extend(some.into_iter().map(|key| (key, weight)));
    };
    let wanted = |entries: f64| (2.0 * PARTS as f64 * entries / all).ceil() as usize;
    for found in &sources.memtables {
        let entries = found.entries as f64;
        let upper = range.upper.as_deref();
        let memtable = found.memtable;
        add(
            memtable.split_keys(&range.lower, upper, wanted(entries)),
            entries,
        );
    }
    for run in &sources.runs {
        // Small files wait until there are enough for a key.
        let mut waiting = 0.0;
        for file in run.files {
            waiting += file.entries as f64;
            if waiting * 2.0 * PARTS as f64 >= all {
                let count = wanted(waiting).min(2 * PARTS);
                let upper = range.upper.as_deref();
                let some = file
                    .reader()?
                    .split_keys(Some(&range.lower), upper, count)?;
                add(some, waiting);
                waiting = 0.0;
            }
        }
    }
    Ok(keys)
}

/// The key at `part` of [`PARTS`] parts of the way through the range, as if the eight bytes after
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
    let step = to.checked_sub(from)? / PARTS as u64;
    let inside = from + step * part;
    let key = [&lower[..common], &inside.to_be_bytes()].concat();
    (key > *lower && key < *upper).then_some(key)
}
