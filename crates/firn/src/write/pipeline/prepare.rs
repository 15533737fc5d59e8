//! First phase of a two-phase commit: a transaction's changes go to the log before its outcome.

use super::server_run::run_name;
use super::{Pipeline, counter_records, file_ids};
use crate::base::{CounterValue, Result};
use crate::store::FileKind;
use crate::version::FileMeta;
use crate::wal::{FullDiskAccess, Lsn, OutcomeRoom, Record, SegmentId};
use crate::write::{Batch, Changes};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Pins the log segment of a prepared transaction's record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PreparedLogPin {
    pub(super) segment: SegmentId,
}

impl Pipeline {
    /// As [`Self::prepare`], for changes of any size.
    ///
    /// # Errors
    /// As [`Self::prepare`].
    pub fn prepare_changes(
        &self,
        xid: &[u8],
        changes: &Changes,
        counters: &[(u64, CounterValue)],
    ) -> Result<PreparedLogPin> {
        match changes {
            Changes::Batch(batch) => self.prepare(xid, batch, counters),
            Changes::Run(files) => {
                let (ids, info) = (file_ids(files), FileMeta::encode_all(files));
                if let Some(store) = &self.archived {
                    store.keep(FileKind::Sst, &ids)?;
                }
                let record = Record::PrepareRun {
                    xid,
                    files: Cow::Borrowed(&ids),
                    info: &info,
                };
                let deletes = || files.iter().all(|file| file.deletes == file.entries);
                self.append_prepare(record, counters, deletes)
            }
        }
    }

    /// As [`Self::prepare_changes`], for a transaction that recovery has found prepared: its record
    /// may take the room that is kept for a full disk.
    ///
    /// # Errors
    /// Those of the log: `NoSpace`, `Io`, `Poisoned`.
    pub fn prepare_recovered(&self, xid: &[u8], changes: &Changes) -> Result<PreparedLogPin> {
        match changes {
            Changes::Batch(batch) => {
                let record = Record::Prepare {
                    xid,
                    batch: batch.as_bytes(),
                };
                self.append_prepare(record, &[], || true)
            }
            Changes::Run(files) => {
                let (ids, info) = (file_ids(files), FileMeta::encode_all(files));
                let record = Record::PrepareRun {
                    xid,
                    files: Cow::Borrowed(&ids),
                    info: &info,
                };
                self.append_prepare(record, &[], || true)
            }
        }
    }

    /// Whether the log has no segment: nothing becomes durable until there is room on the disk.
    pub fn has_no_segment(&self) -> bool {
        self.wal.has_no_segment()
    }

    /// Keeps the segments from `segment` on for a transaction that recovery has found prepared
    /// there, because the disk has no room to write it again.
    pub fn adopt_prepared(&self, segment: SegmentId) -> PreparedLogPin {
        let mut state = self.state.lock();
        self.wal.expect_outcome();
        *state.pins.entry(segment).or_default() += 1;
        PreparedLogPin { segment }
    }

    /// Writes a transaction's batch to the log under `xid`. On return it is as durable as the flush
    /// mode promises.
    ///
    /// # Errors
    /// Those of the log: `NoSpace`, `Io`, `Poisoned`; the transaction is not prepared.
    pub fn prepare(
        &self,
        xid: &[u8],
        batch: &Batch,
        counters: &[(u64, CounterValue)],
    ) -> Result<PreparedLogPin> {
        let record = Record::Prepare {
            xid,
            batch: batch.as_bytes(),
        };
        self.append_prepare(record, counters, || batch.only_deletes())
    }

    fn append_prepare(
        &self,
        record: Record<'_>,
        counters: &[(u64, CounterValue)],
        only_deletes: impl FnOnce() -> bool,
    ) -> Result<PreparedLogPin> {
        let mut state = self.state.lock();
        self.health.check()?;
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
        let segment = state.run.prepared(appended.segment, run.is_some());
        *state.pins.entry(segment).or_default() += 1;
        drop(state);
        let prepared = PreparedLogPin { segment };
        if let Err(error) = self.wait_durable(appended.lsn) {
            unpin(&mut self.state.lock().pins, prepared.segment);
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
        let appended = self
            .wal
            .append(&[Record::Rollback { xid }], OutcomeRoom::Use)?;
        // As at a commit, the prepare record stays until the rollback is durable: otherwise its
        // segment could be released, and a power cut that takes the rollback would forget the
        // transaction.
        state.active.lower_min_segment(prepared.segment);
        state.active.set_last_lsn(appended.lsn);
        unpin(&mut state.pins, prepared.segment);
        Ok(appended.lsn)
    }
}

pub(super) fn unpin(pins: &mut BTreeMap<SegmentId, usize>, segment: SegmentId) {
    if let Some(count) = pins.get_mut(&segment) {
        *count -= 1;
        if *count == 0 {
            pins.remove(&segment);
        }
    }
}
