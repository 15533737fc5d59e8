//! The records that a log has only for a log archive: the time, the end of the binary log, and the
//! files of loads.

use super::{CommitRecord, Pipeline, PipelineState, counter_records, file_ids};
use crate::base::{CounterValue, Result};
use crate::store::FileStore;
use crate::version::FileMeta;
use crate::wal::{BinlogPosition, OutcomeRoom, Record};
use std::borrow::Cow;

/// An archived log records the time in steps of this many microseconds.
const CLOCK_STEP_US: u64 = 10_000;

/// A position in the server's binary log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnedBinlogPosition {
    /// Name of the binary log file; empty if it is not known.
    pub name: Vec<u8>,
    /// Position in the file.
    pub pos: u64,
}

impl OwnedBinlogPosition {
    pub(super) fn set(&mut self, at: BinlogPosition<'_>) {
        self.pos = at.pos;
        if self.name != at.name {
            self.name = at.name.to_vec();
        }
    }
}

impl Pipeline {
    /// Makes the log an archived one, if `files` is archived: the log then records the time, and
    /// before a log record names a file, [`FileStore::keep`] is called for that file, so that the
    /// archive can copy it.
    pub fn with_archive(self, files: FileStore) -> Self {
        Self {
            archived: files.is_archived().then_some(files),
            ..self
        }
    }

    /// Notes that the binary log ends at `place`, before the host's next change of the catalog. The
    /// log archive alone needs this.
    pub fn note_binlog_position(&self, place: OwnedBinlogPosition) {
        if self.archived.is_some() {
            self.state.lock().schema_change_position = Some(place);
        }
    }

    /// The wall-clock time in milliseconds that the log must record before this commit. If the
    /// commit changes the catalog, also the end of the binary log before the change, if the server
    /// reported it. `None` if the log is not archived, or if it has recorded this time already and
    /// there is no end of the binary log to record.
    pub(super) fn archive_time_record(
        &self,
        state: &mut PipelineState,
        what: &CommitRecord<'_>,
    ) -> Option<(u64, Option<OwnedBinlogPosition>)> {
        let files = self.archived.as_ref()?;
        let now = files.env().wall_micros();
        // Only a change of the catalog needs the position here. The record of a commit by a client
        // has the position of that commit in the binary log.
        let schema_change_position = match what {
            CommitRecord::SchemaChange(_) | CommitRecord::Retirement(_) => {
                state.schema_change_position.clone()
            }
            _ => None,
        };
        if schema_change_position.is_none() && now / CLOCK_STEP_US == state.clock {
            return None;
        }
        state.clock = now / CLOCK_STEP_US;
        Some((now / 1000, schema_change_position))
    }

    /// Returns the wall-clock time in microseconds, and whether the log's current segment was empty
    /// at that time. Each commit whose record has an earlier time is in the log by then, since a
    /// commit reads the clock and appends its record under the mutex that is held here.
    pub fn quiet_moment(&self, clock: &dyn Fn() -> u64) -> (u64, bool) {
        let _state = self.state.lock();
        (clock(), !self.wal.segment_used())
    }

    /// If the log is archived, appends a record which says that the manifest has the files of a
    /// load.
    ///
    /// # Errors
    /// Those of an append to the log.
    pub fn note_load(&self, files: &[FileMeta], counters: &[(u64, CounterValue)]) -> Result<()> {
        if self.archived.is_none() {
            return Ok(());
        }
        let (ids, info) = (file_ids(files), FileMeta::encode_all(files));
        let mut records = counter_records(counters);
        records.push(Record::Load {
            files: Cow::Borrowed(&ids),
            info: &info,
        });
        let _in_order = self.state.lock();
        self.health.check()?;
        self.wal.append(&records, OutcomeRoom::Leave).map(drop)
    }
}

pub(super) fn clock_records(tick: &Option<(u64, Option<OwnedBinlogPosition>)>) -> Vec<Record<'_>> {
    let mut records = Vec::new();
    if let Some((wall_ms, schema_change_position)) = tick {
        records.push(Record::Clock {
            wall_ms: *wall_ms,
            binlog: schema_change_position.as_ref().map(|place| BinlogPosition {
                name: &place.name,
                pos: place.pos,
            }),
        });
    }
    records
}
