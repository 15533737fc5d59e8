//! Estimates the number of rows in a key range for the optimizer (the handler's
//! `records_in_range`).

mod sample;
mod sources;

use super::scan::ScanRange;
use super::super_version::ReadPoint;
use crate::base::Result;
use sample::{SampleEnd, SampleReader, sampled_rows};
use sources::RangeSources;

/// Number of rows up to which an estimate is exact. Above it, an error within [`FACTOR_READ`]
/// hardly changes the optimizer's plan, and an exact number would cost as much as the scan that
/// follows: all rows would have to be read.
pub const EXACT_ROWS: u64 = 32;

/// Number of rows from which on an estimate reads no block, if the file indexes are precise enough.
const READ_ROWS: u64 = 400;

/// Before any block is read, the lower and upper bound on the number of rows are close enough if
/// they differ by at most this factor. The estimate is their geometric mean, which is wrong by at
/// most the square root of the factor.
const FACTOR_UNREAD: f64 = 1.5;
/// After the blocks at both ends of the range were read, the lower and upper bound on the number of
/// rows are close enough if they differ by at most this factor. It is larger than [`FACTOR_UNREAD`]
/// because the next step, which reads rows, costs more.
const FACTOR_READ: f64 = 2.0;

/// A dive reads the range from its start as a scan does, to count rows, and stops at this many.
const DIVE_ROWS: u64 = 100;
/// The first dive gives up after about this many hidden versions and deletions.
const DIVE_SKIPS: u64 = 8 * DIVE_ROWS;

/// Ranges of at most this many entries, and at most [`READ_BYTES`], are read as a whole, since
/// samples would not cost less.
const READ_ENTRIES: u64 = 4096;
/// Largest range that is read as a whole, bytes; see [`READ_ENTRIES`].
const READ_BYTES: u64 = 2 << 20;
/// Number of memtable entries that take as long to read as one entry of a file: many of them are
/// versions of one row, which the iterator skips with a seek.
const MEMTABLE_ENTRIES: u64 = 4;

/// If the samples indicate few rows among many hidden versions and deletions, a second dive counts
/// the rows. It gives up after about this many hidden versions and deletions.
const DEEP_DIVE_SKIPS: u64 = 32 << 10;

/// Estimates the rows of a range of one index: exact up to [`EXACT_ROWS`], within a factor of 1.5
/// above.
///
/// The first step reads no block: from the file indexes it gets bounds on the numbers of entries
/// and deletions that each run has in the range, and from these bounds on the number of rows (see
/// `RangeSources::rows`). If these bounds are close together and the rows are many, the estimate is
/// done. Otherwise the second step reads the blocks in which the range begins and ends, two per
/// run. If one run without old versions holds the whole range, its entries are the rows. Otherwise
/// the bounds, which are closer now, are checked again.
///
/// The third step reads the range from its start, as a scan would: to the end if the range is
/// short. Otherwise samples at some dozen positions stand for the rest (`sampled_rows`). If these
/// indicate few rows behind many deletions, the rows are counted after all.
///
/// Limits: few rows behind more than 32,768 deletions and hidden versions are estimated as many. An
/// estimate from samples may be wrong by more than a factor of 1.5 for unusual distributions
/// (measured: see `docs/internals/read.md`).
///
/// # Errors
/// Those of reading the files: `Corruption`, `Unsupported`, `Io`.
pub fn estimate_rows(point: &ReadPoint, range: &ScanRange) -> Result<u64> {
    let mut sources = RangeSources::of(&point.super_version, range)?;
    // An estimate that reads no block is good enough only if its lower bound is at least
    // `READ_ROWS`. The lower bound is at most the number of entries in files, so do not compute it
    // if they have fewer.
    if sources.entries_in_files() >= READ_ROWS {
        sources.count_memtables();
        if let Some(rows) = sources.rows().close_enough(FACTOR_UNREAD, READ_ROWS) {
            return Ok(rows);
        }
    }
    sources.count()?;
    if let Some(rows) = sources.plain_rows() {
        return Ok(rows);
    }
    let bounds = sources.rows();
    if let Some(rows) = bounds.close_enough(FACTOR_READ, EXACT_ROWS + 1) {
        return Ok(rows);
    }
    let mut reading = SampleReader::new(sources.scan(), range, point.seqno);
    if is_short(&sources) {
        let read = reading.read(&range.lower, None, READ_ENTRIES, 2 * READ_ENTRIES)?;
        if let SampleEnd::All(rows) = read {
            return Ok(rows);
        }
    }
    let few = match reading.read(&range.lower, None, DIVE_ROWS, DIVE_SKIPS)? {
        SampleEnd::All(rows) => return Ok(rows),
        SampleEnd::Until { rows, .. } | SampleEnd::Amid { rows, .. } => rows < DIVE_ROWS,
    };
    let rows = sampled_rows(&mut reading, &sources)?;
    if few && rows < 2 * DIVE_ROWS {
        let dive = reading.read(&range.lower, None, DIVE_ROWS, DEEP_DIVE_SKIPS)?;
        if let SampleEnd::All(rows) = dive {
            return Ok(rows);
        }
    }
    // The optimizer takes 0 as proof that there is no row, so return at least 1. If the first dive
    // has found [`DIVE_ROWS`] rows, return more than these.
    let least = if few { 1 } else { DIVE_ROWS + 1 };
    Ok(rows.max(bounds.least).max(least))
}

/// Whether reading the whole range is cheap.
fn is_short(sources: &RangeSources<'_>) -> bool {
    let (in_files, in_memtables) = sources.entries();
    let entries = in_files + in_memtables / MEMTABLE_ENTRIES;
    entries <= READ_ENTRIES && in_files * sources.entry_bytes() <= READ_BYTES
}
