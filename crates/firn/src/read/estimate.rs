//! How many rows a range holds, for the optimizer.

mod sample;
mod sources;

use super::scan::ScanRange;
use super::view::ReadPoint;
use crate::base::Result;
use sample::{Read, Reading, sampled_rows};
use sources::Sources;

/// Rows up to which an estimate is exact.
pub const EXACT_ROWS: u64 = 100;

/// From this many rows on nothing is read, where the indexes of the files are precise enough.
const READ_ROWS: u64 = 4 * EXACT_ROWS;

/// Bounds are good enough if they differ by this factor: their mean is wrong by its root at most.
const FACTOR_UNREAD: f64 = 1.5;
const FACTOR_READ: f64 = 2.0;

/// Entries that a first dive passes over, about: versions that are hidden, and deletions.
const DIVE_SKIPS: u64 = 8 * EXACT_ROWS;

/// So much is read rather than sampled, which would not cost less.
const READ_ENTRIES: u64 = 4096;
const READ_BYTES: u64 = 2 << 20;
/// Entries of memtables that cost what one of a file does: many are versions of one row, which a cursor
/// leaves by a seek.
const MEMTABLE_ENTRIES: u64 = 4;

/// Entries that a second dive passes over, where there seem to be few rows among them.
const DEEP_DIVE_SKIPS: u64 = 32 << 10;

/// Estimates the rows of a range, which lies in one index: exact up to [`EXACT_ROWS`], within a factor
/// of 1.5 above.
///
/// First what costs nothing: the indexes of the files say between which numbers the entries of the
/// range lie in each run, and its deletions; that bounds the rows (see `Sources::rows`). If the bounds
/// are close and the rows are many, nothing is read. Else the blocks that the ends of the range cut
/// are, two in each run. Where one run without old versions holds all, its entries are the rows.
/// The bounds are asked again.
///
/// Otherwise the range is read from its start, as a scan would see it, to the end if it is short. If it
/// is not, samples at some dozen places stand for the rest (`sampled_rows`). Few rows according to
/// these, behind many deletions, are counted after all.
///
/// What is not promised: few rows behind more than 32,768 deletions and hidden versions are estimated
/// like many; samples have an error, which the factor covers in all but odd cases (measured: see
/// `docs/internals/read.md`).
///
/// # Errors
/// Those of reading.
pub fn estimate_rows(point: &ReadPoint, range: &ScanRange) -> Result<u64> {
    let mut sources = Sources::of(&point.view, range)?;
    if let Some(rows) = sources.rows().settled(FACTOR_UNREAD, READ_ROWS) {
        return Ok(rows);
    }
    sources.count()?;
    if let Some(rows) = sources.plain_rows() {
        return Ok(rows);
    }
    let bounds = sources.rows();
    if let Some(rows) = bounds.settled(FACTOR_READ, 2 * EXACT_ROWS) {
        return Ok(rows);
    }
    let mut reading = Reading::new(point, range);
    if is_short(&sources) {
        let read = reading.read(&range.lower, None, READ_ENTRIES, 2 * READ_ENTRIES)?;
        if let Read::All(rows) = read {
            return Ok(rows);
        }
    }
    let few = match reading.read(&range.lower, None, EXACT_ROWS, DIVE_SKIPS)? {
        Read::All(rows) => return Ok(rows),
        Read::Until { rows, .. } | Read::Amid { rows, .. } => rows < EXACT_ROWS,
    };
    let rows = sampled_rows(&mut reading, &sources)?;
    if few && rows < 2 * EXACT_ROWS {
        let dive = reading.read(&range.lower, None, EXACT_ROWS, DEEP_DIVE_SKIPS)?;
        if let Read::All(rows) = dive {
            return Ok(rows);
        }
    }
    // None at all would be a promise, and a hundred were met where the first dive ended.
    let least = if few { 1 } else { EXACT_ROWS + 1 };
    Ok(rows.max(bounds.least).max(least))
}

/// Whether it costs little to read all.
fn is_short(sources: &Sources<'_>) -> bool {
    let (in_files, in_memtables) = sources.entries();
    let entries = in_files + in_memtables / MEMTABLE_ENTRIES;
    entries <= READ_ENTRIES && in_files * sources.entry_bytes() <= READ_BYTES
}
