//! Write-ahead log: records, groups, segments.
//!
//! A commit appends its records to the open *group* and then waits until that group is durable.
//! Groups are written whole, several at once, into preallocated segments; [`replay`] hands back
//! the records of the contiguous prefix that survived. `docs/formats/wal.md` has the bytes,
//! `docs/internals/wal.md` the reasons.

mod durable_prefix;
pub mod frame;
mod reader;
mod record;
mod segment;
mod waiter;
mod writer;

pub use reader::{
    LogStart, ReplayEnd, SegmentPiece, dump_segment, fingerprint, missing_between, missing_segment,
    replay, replay_archived, salvage,
};
pub use record::{BinlogPosition, Gtid, Record, ServerRunName};
pub use segment::{largest_below, parse_segment_name, segment_name, sync_all};
pub use writer::{
    Appended, ClosedSegment, FullDiskAccess, OutcomeRoom, SegmentHold, Wal, WalCut, WalOptions,
    WalStats,
};

/// Position in the log of one [`Wal`]: bytes of records appended since it was created. Not stored.
pub type Lsn = u64;

/// Identifies a segment for ever.
pub type SegmentId = u64;

/// Number of a group; the groups of a log are numbered without gaps, over all its segments.
pub type GroupNumber = u64;

/// The end of a log, from which the next [`Wal::create`] goes on. The default is the start of a new
/// log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogEnd {
    /// Segment of the last group.
    pub segment: SegmentId,
    /// Number of the last group.
    pub group: GroupNumber,
}

#[cfg(test)]
mod tests;
