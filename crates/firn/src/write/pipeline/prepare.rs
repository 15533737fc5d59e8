//! First phase of a two-phase commit: a transaction's changes go to the log before its outcome.

use super::commit::{COUNTER_BYTES_MAX, OTHER_BYTES_MAX};
use super::log_pins::PinnedTransaction;
use super::log_server_run::run_name;
use super::{Pipeline, counter_records, file_ids};
use crate::base::{CounterValue, Result};
use crate::binlog::ServerRun;
use crate::store::FileKind;
use crate::version::FileMeta;
use crate::wal::{FullDiskAccess, Lsn, OutcomeRoom, Record, SegmentId};
use crate::write::Changes;
use std::borrow::Cow;
use std::sync::Arc;

/// Id of a log pin, which keeps the log from the segment of a transaction's prepare record on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PreparedLogPin(pub(super) u64);

impl Pipeline {
    /// Writes a transaction's changes to the log under `xid`. On return they are as durable as the
    /// flush mode promises. The pin shares the changes: if the transaction stays prepared for long,
    /// it is [logged again](Self::relog_prepared).
    ///
    /// # Errors
    /// Those of the log: `NoSpace`, `Io`, `Poisoned`; the transaction is not prepared.
    pub fn prepare_changes(
        &self,
        xid: &[u8],
        changes: &Arc<Changes>,
        counters: &[(u64, CounterValue)],
    ) -> Result<PreparedLogPin> {
        if let (Changes::Run(files), Some(store)) = (&**changes, &self.archived) {
            store.keep(FileKind::Sst, &file_ids(files))?;
        }
        self.append_prepare(xid, changes, counters, || match &**changes {
            Changes::Batch(batch) => batch.only_deletes(),
            Changes::Run(files) => files.iter().all(|file| file.deletes == file.entries),
        })
    }

    /// As [`Self::prepare_changes`], for a transaction that recovery has found prepared: its record
    /// may take the room that is kept for a full disk.
    ///
    /// # Errors
    /// Those of the log: `NoSpace`, `Io`, `Poisoned`.
    pub fn prepare_recovered(&self, xid: &[u8], changes: &Arc<Changes>) -> Result<PreparedLogPin> {
        self.append_prepare(xid, changes, &[], || true)
    }

    /// Whether the log has no segment: nothing becomes durable until there is room on the disk.
    pub fn has_no_segment(&self) -> bool {
        self.wal.has_no_segment()
    }

    /// Keeps the segments from `segment` on for a transaction that recovery has found prepared
    /// there, because the disk has no room to write it again. `run` is the server run that prepared
    /// the transaction.
    pub fn adopt_prepared(
        &self,
        segment: SegmentId,
        xid: &[u8],
        changes: &Arc<Changes>,
        run: Option<Arc<ServerRun>>,
    ) -> PreparedLogPin {
        let mut state = self.state.lock();
        self.wal.expect_outcome();
        state.pins.add(PinnedTransaction {
            segment,
            xid: xid.to_vec(),
            changes: Arc::clone(changes),
            run,
        })
    }

    fn append_prepare(
        &self,
        xid: &[u8],
        changes: &Arc<Changes>,
        counters: &[(u64, CounterValue)],
        only_deletes: impl FnOnce() -> bool,
    ) -> Result<PreparedLogPin> {
        let (ids, info);
        let record = match &**changes {
            Changes::Batch(batch) => Record::Prepare {
                xid,
                batch: batch.as_bytes(),
            },
            Changes::Run(files) => {
                (ids, info) = (file_ids(files), FileMeta::encode_all(files));
                Record::PrepareRun {
                    xid,
                    files: Cow::Borrowed(&ids),
                    info: &info,
                }
            }
        };
        let others = counters.len() * COUNTER_BYTES_MAX + OTHER_BYTES_MAX;
        let room_ahead = self
            .wal
            .prepare_room(record.encoded_len() + others, OutcomeRoom::Keep);
        let mut state = self.state.lock();
        self.health.check()?;
        self.freeze_if_full(&mut state);
        let run = state.run.due(self.wal.current_segment());
        let mut records = counter_records(counters);
        if let Some(run) = &run {
            let run = run_name(run.as_deref());
            records.push(Record::ServerRun { run });
        }
        records.push(record);
        let access = || match only_deletes() {
            true => FullDiskAccess::Deletions,
            false => FullDiskAccess::Ordinary,
        };
        let appended = self.append(&records, OutcomeRoom::Keep, access)?;
        drop(room_ahead);
        let pinned = PinnedTransaction {
            segment: state.run.prepared(appended.segment, run.is_some()),
            xid: xid.to_vec(),
            changes: Arc::clone(changes),
            run: state.run.current(),
        };
        let prepared = state.pins.add(pinned);
        self.note_segment(&mut state, appended.segment);
        drop(state);
        if let Err(error) = self.wait_durable(appended.lsn) {
            self.state.lock().pins.remove(prepared);
            return Err(error);
        }
        Ok(prepared)
    }

    /// Ends a prepared transaction without its changes.
    ///
    /// # Errors
    /// Those of the log: `NoSpace`, `Io`, `Poisoned`; the transaction stays prepared.
    pub fn rollback_prepared(&self, xid: &[u8], prepared: PreparedLogPin) -> Result<Lsn> {
        let mut state = self.state.lock();
        self.health.check()?;
        self.freeze_if_full(&mut state);
        let appended = self
            .wal
            .append(&[Record::Rollback { xid }], OutcomeRoom::Use)?;
        // As at a commit, the segment of the prepare record stays until the rollback is durable. If
        // the segment were released before, a power cut that loses the rollback record would leave
        // no trace of the transaction, although its rollback was not acknowledged.
        if let Some(pinned) = state.pins.remove(prepared) {
            state.active.lower_min_segment(pinned);
        }
        state.active.set_last_lsn(appended.lsn);
        self.note_segment(&mut state, appended.segment);
        Ok(appended.lsn)
    }
}
