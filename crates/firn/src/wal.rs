//! Write-ahead log: records, groups, segments.
//!
//! A commit appends its records to the open *group* and then waits until that group is durable. A
//! group is written in one piece into a preallocated segment; several writes may be in flight at
//! once. After a crash, [`replay`] returns the records of all groups before the first group that is
//! missing or damaged. `docs/formats/wal.md` describes the bytes, `docs/internals/wal.md` the
//! reasons.

mod acknowledgement;
mod commit_waiter;
mod durable_prefix;
pub mod frame;
mod reader;
mod record;
mod segment;
mod writer;

pub use acknowledgement::Acknowledgement;
pub use reader::{
    LogStart, Progress, ReplayEnd, SegmentPiece, dump_segment, fingerprint, missing_between,
    missing_segment, replay, replay_archived, replay_reporting, salvage_log,
};
pub use record::{BinlogPosition, Gtid, Record, ServerRunName};
pub use segment::{largest_below, parse_segment_name, segment_name, sync_all};
pub use writer::{
    Appended, ClosedSegment, FullDiskAccess, OutcomeRoom, RoomAhead, SegmentHold, Wal, WalCut,
    WalOptions, WalStats,
};

/// Position in the log of one [`Wal`]: bytes of records appended since this `Wal` was created. It
/// is not stored on disk.
pub type Lsn = u64;

/// Id of a log segment. It is never used again for another segment.
pub type SegmentId = u64;

/// Number of a group; the groups of a log are numbered without gaps, over all its segments.
pub type GroupNumber = u64;

/// The end of a log: the next [`Wal::create`] numbers its groups from there on. The default stands
/// for the start of a new log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogEnd {
    /// Segment of the last group.
    pub segment: SegmentId,
    /// Number of the last group.
    pub group: GroupNumber,
}

#[cfg(test)]
mod tests;
