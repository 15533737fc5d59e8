//! Estimates rows from samples: reads a few entries at many positions, and takes each sample as
//! typical of the entries up to the next sample.

use super::sources::RangeSources;
use crate::base::{ErrorKind, InternalIterator, Result, Seqno};
use crate::iter::{Interrupt, MergeIter, MvccIter, ReadAt};
use crate::read::scan::{ScanRange, ScanSource};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of parts of a range. Each part is sampled.
const PARTS: usize = 32;
/// Most rows read in each part.
const PART_ROWS: u64 = 48;
/// The sample of one part of the range ends at the next row once it has skipped more than this many
/// hidden versions and deletions. If no row comes, it ends when the iterator next calls its
/// interrupt function.
const PART_SKIPS: u64 = 256;
/// Number of skipped entries after which an iterator calls its interrupt function.
const SKIPS_A_CHECK: u64 = 1024;

/// Where a sample ended, and the number of rows that it counted.
pub(super) enum SampleEnd {
    /// The end of the range.
    All(u64),
    /// The sample ended at the row with this key, which is not counted.
    Until { rows: u64, key: Vec<u8> },
    /// The sample ended between two rows, among deletions and old versions, at an entry with this
    /// key. It has passed `rows` rows.
    Amid { rows: u64, key: Vec<u8> },
}

/// Reads rows of a range as a scan would see them.
pub(super) struct SampleReader {
    entries: MvccIter<MergeIter<ScanSource>>,
    /// Interrupt calls left before a move ends.
    checks: Arc<AtomicU64>,
}

impl SampleReader {
    /// Reads from `sources`, which hold the entries of `range`, as of `seqno`.
    pub(super) fn new(sources: Vec<ScanSource>, range: &ScanRange, seqno: Seqno) -> Self {
        let mut entries = MvccIter::new(MergeIter::new(sources), ReadAt::snapshot(seqno));
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

    /// Reads from `from` to below `to` (`None`: to the end of the range), at most `rows_max` rows
    /// and about `skips_max` other entries.
    pub(super) fn read(
        &mut self,
        from: &[u8],
        to: Option<&[u8]>,
        rows_max: u64,
        skips_max: u64,
    ) -> Result<SampleEnd> {
        let checks = skips_max / SKIPS_A_CHECK;
        self.checks.store(checks, Ordering::Relaxed);
        // Without this call, the skips of earlier samples would count towards the next call of the
        // interrupt function. The function could then end this sample after a few entries, before
        // it has found a row.
        self.entries.postpone_interrupt();
        let skipped = self.entries.skipped_entries();
        let mut rows = 0;
        let mut found = self.entries.seek_ge(from);
        loop {
            let skips = self.entries.skipped_entries() - skipped;
            match self.met(found, rows, to)? {
                ControlFlow::Break(Some(read)) => return Ok(read),
                ControlFlow::Break(None) => {
                    let key = self.entries.inner().key().user_key.to_vec();
                    return Ok(SampleEnd::Amid { rows, key });
                }
                ControlFlow::Continue(()) => {}
            }
            if rows == rows_max || skips > skips_max {
                let key = self.entries.user_key().to_vec();
                return Ok(SampleEnd::Until { rows, key });
            }
            // Without `to`, count the known rows ahead without reading them. With `to` that is not
            // possible: the reading may have to end between two of them.
            let passed = match to {
                None => self.entries.pass_rows(rows_max - rows),
                Some(_) => 0,
            };
            if passed > 0 {
                rows += u64::from(passed);
                found = Ok(true);
            } else {
                rows += 1;
                found = self.entries.next();
            }
        }
    }

    /// Decides from the result `found` of a move whether the reading goes on: it does at a row
    /// below `to`. `Break(None)` means that the interrupt function ended the move.
    fn met(
        &self,
        found: Result<bool>,
        rows: u64,
        to: Option<&[u8]>,
    ) -> Result<ControlFlow<Option<SampleEnd>>> {
        match found {
            Ok(true) if to.is_none_or(|to| self.entries.user_key() < to) => {
                Ok(ControlFlow::Continue(()))
            }
            Ok(_) => Ok(ControlFlow::Break(Some(SampleEnd::All(rows)))),
            Err(error) if *error.kind() == ErrorKind::Interrupted => Ok(ControlFlow::Break(None)),
            Err(error) => Err(error),
        }
    }
}

/// Estimates the rows of the range by reading at the start of each of several parts of similar
/// size.
///
/// The parts are cut at block boundaries of the files and at nodes of the memtables' upper levels,
/// so a stretch with many entries gets many parts. Files and memtables tell the number of entries
/// in each part, and the part is assumed to have as many rows per entry as its sample. A part that
/// was read to its end is counted exactly.
pub(super) fn sampled_rows(reading: &mut SampleReader, sources: &RangeSources<'_>) -> Result<u64> {
    let starts = part_starts(sources)?;
    let mut rows = 0.0;
    for (i, start) in starts.iter().enumerate() {
        let next = starts.get(i + 1).map(Vec::as_slice);
        let end = next.or(sources.range.upper.as_deref());
        rows += match reading.read(start, end, PART_ROWS, PART_SKIPS)? {
            SampleEnd::All(rows) => rows as f64,
            SampleEnd::Until { rows, key } | SampleEnd::Amid { rows, key } => {
                let passed = sources.between(start, Some(&key))?.max(1);
                let all = sources.between(start, end)?.max(passed);
                rows as f64 * all as f64 / passed as f64
            }
        };
    }
    Ok(rows.round() as u64)
}

/// A candidate for the start of a part: a key, and as its weight the number of entries that lie
/// about it.
type Weighted = (Vec<u8>, f64);

/// Divides the range into parts with about the same number of entries, of which each is sampled at
/// its start. Returns the start keys of the parts; the first is the start of the range.
fn part_starts(sources: &RangeSources<'_>) -> Result<Vec<Vec<u8>>> {
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
        // The files have only a few large blocks in the range, so add keys between their
        // boundaries.
        let inside = (1..PARTS as u64).filter_map(|part| key_inside(range, part));
        starts.extend(inside);
        starts.sort();
        starts.dedup();
    }
    Ok(starts)
}

fn candidates(sources: &RangeSources<'_>) -> Result<Vec<Weighted>> {
    let range = sources.range;
    let (in_files, in_memtables) = sources.entries();
    let all = (in_files + in_memtables).max(1);
    let mut keys: Vec<Weighted> = Vec::new();
    let mut add = |some: Vec<Vec<u8>>, entries: f64| {
        let weight = entries / some.len().max(1) as f64;
        keys.extend(some.into_iter().map(|key| (key, weight)));
    };
    let wanted = |entries: f64| (2.0 * PARTS as f64 * entries / all as f64).ceil() as usize;
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
        // A small file alone deserves no candidate key. So join neighbouring files until their
        // entries suffice for one key, and take the keys for all of them from the last of these
        // files.
        for (last, entries) in run.groups(all.div_ceil(2 * PARTS as u64)) {
            let count = wanted(entries as f64).min(2 * PARTS);
            let upper = range.upper.as_deref();
            let reader = last.reader()?;
            let some = reader.split_keys(Some(&range.lower), upper, count)?;
            add(some, entries as f64);
        }
    }
    Ok(keys)
}

/// The key that would lie `part` / [`PARTS`] of the way through the range if keys were evenly
/// distributed over the eight bytes behind the common prefix of the range's ends.
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

#[cfg(test)]
mod tests;
