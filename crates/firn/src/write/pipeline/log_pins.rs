//! The log pins of prepared transactions: each keeps the log from the segment of its prepare record
//! on.
//!
//! A transaction may stay prepared for days, and the log goes on meanwhile. So once too much log
//! has piled up behind an old pin, its transaction is *logged again*: its prepare record is
//! appended to the current segment, and when that is durable, the pin moves there. Replay takes the
//! last prepare record of an xid, so it may meet both.
//!
//! Worked example: `x` is prepared in segment 3, the log is in segment 40. Segment 40 gets
//! `ServerRun, Prepare x` and is synced; the pin of `x` moves from 3 to 40. Segments 3 to 39 go
//! with the next flush. If the commit of `x` comes between append and sync, the memtable takes over
//! the old pin, 3, until it is flushed.
//!
//! Rejected: a second place for prepared transactions, such as a file for each. It would need its
//! own rules for its sync, its archive and its recovery, and most prepared transactions live for
//! milliseconds.

use super::log_server_run::run_name;
use super::{Pipeline, PreparedLogPin, file_ids};
use crate::base::pause_points::{self, PausePoint};
use crate::base::{ErrorKind, Result};
use crate::binlog::ServerRun;
use crate::store::FileKind;
use crate::version::FileMeta;
use crate::wal::{Lsn, OutcomeRoom, Record, SegmentId};
use crate::write::Changes;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// One step logs prepare records again while it holds the pipeline's mutex, until these records
/// have this many bytes or belong to [`STEP_TRANSACTIONS`] transactions. The last record may exceed
/// the limit.
const STEP_BYTES: u64 = 1 << 20;
const STEP_TRANSACTIONS: usize = 256;

/// The parts of a prepare record, kept so that the record can be written again.
pub(super) struct PinnedTransaction {
    pub segment: SegmentId,
    pub xid: Vec<u8>,
    pub changes: Arc<Changes>,
    /// The server run that prepared the transaction.
    pub run: Option<Arc<ServerRun>>,
}

impl PinnedTransaction {
    /// Bytes of its prepare record, about.
    fn bytes(&self) -> u64 {
        match &*self.changes {
            Changes::Batch(batch) => batch.as_bytes().len() as u64,
            Changes::Run(files) => files.len() as u64 * 512,
        }
    }
}

/// The pins of all prepared transactions.
#[derive(Default)]
pub(super) struct LogPins {
    last_id: u64,
    /// Bytes of all prepare records.
    bytes: u64,
    by_id: BTreeMap<u64, PinnedTransaction>,
    by_segment: BTreeSet<(SegmentId, u64)>,
}

impl LogPins {
    pub(super) fn add(&mut self, pinned: PinnedTransaction) -> PreparedLogPin {
        self.last_id += 1;
        self.bytes += pinned.bytes();
        self.by_segment.insert((pinned.segment, self.last_id));
        self.by_id.insert(self.last_id, pinned);
        PreparedLogPin(self.last_id)
    }

    /// Removes a pin. Returns the segment that it pinned; `None` if it was removed before.
    pub(super) fn remove(&mut self, pin: PreparedLogPin) -> Option<SegmentId> {
        let pinned = self.by_id.remove(&pin.0)?;
        self.by_segment.remove(&(pinned.segment, pin.0));
        self.bytes -= pinned.bytes();
        Some(pinned.segment)
    }

    /// The oldest pinned segment.
    pub(super) fn floor(&self) -> Option<SegmentId> {
        self.by_segment.first().map(|(segment, _)| *segment)
    }

    /// Moves a pin to a later segment, if it still exists.
    fn advance(&mut self, id: u64, to: SegmentId) {
        let Some(pinned) = self.by_id.get_mut(&id) else {
            return;
        };
        self.by_segment.remove(&(pinned.segment, id));
        pinned.segment = pinned.segment.max(to);
        self.by_segment.insert((pinned.segment, id));
    }

    /// The ids of the oldest log pins that hold a segment below `before`, as many as one step logs
    /// again: at most `STEP_TRANSACTIONS`, and no further one once their prepare records have
    /// `STEP_BYTES`. Also returns the bytes of these prepare records.
    fn step(&self, before: SegmentId) -> (Vec<u64>, u64) {
        let mut bytes = 0;
        let older = self.by_segment.range(..(before, 0));
        let mut ids = Vec::new();
        for (_, id) in older.take(STEP_TRANSACTIONS) {
            if bytes >= STEP_BYTES {
                break;
            }
            bytes += self.by_id[id].bytes();
            ids.push(*id);
        }
        (ids, bytes)
    }
}

impl Pipeline {
    /// The oldest log segment that a prepared transaction pins, and the bytes of the prepare
    /// records of all prepared transactions.
    pub fn prepared_log(&self) -> Option<(SegmentId, u64)> {
        let state = self.state.lock();
        state.pins.floor().map(|floor| (floor, state.pins.bytes))
    }

    /// Appends the prepare records that lie in segments below `before` to the log again, and moves
    /// their pins to the segments of the copies, which are durable on return. Then no pin is below
    /// `before`, unless the log itself has not reached that segment. Returns the number of records.
    ///
    /// # Errors
    /// Those of the log: `NoSpace`, `NoDescriptor`, `Poisoned`, `ShutDown`. Some pins may stay
    /// below `before` then.
    pub fn relog_prepared(&self, before: SegmentId) -> Result<u64> {
        let mut relogged = 0;
        loop {
            let (ids, to, lsn) = match self.relog_step(before)? {
                Some(step) => step,
                None => return Ok(relogged),
            };
            self.sync_to(lsn)?;
            let mut state = self.state.lock();
            for &id in &ids {
                state.pins.advance(id, to);
            }
            relogged += ids.len() as u64;
            if to < before {
                // The copies of the prepare records lie in segment `to`, below `before`, because
                // the log has not reached segment `before` yet. To copy the records once more would
                // not free a segment.
                return Ok(relogged);
            }
        }
    }

    /// Appends the prepare records of the next transactions, as many as one step takes. Returns
    /// their pins, the first segment that may have the copies, and the end of the copies in the
    /// log; `None` if no pin is below `before`.
    fn relog_step(&self, before: SegmentId) -> Result<Option<(Vec<u64>, SegmentId, Lsn)>> {
        loop {
            let (ids, bytes) = self.state.lock().pins.step(before);
            if ids.is_empty() {
                return Ok(None);
            }
            self.keep_pinned_files(&ids)?;
            pause_points::at(PausePoint::PinnedFilesKept);
            let _room_ahead = self.wal.prepare_room(bytes as usize, OutcomeRoom::Leave);
            // If all prepared transactions in `ids` have got their outcome meanwhile, nothing was
            // appended. Then go on with the pins after them.
            if let Some(step) = self.append_again(ids)? {
                return Ok(Some(step));
            }
        }
    }

    /// Appends the prepare records of the transactions with the log pins `ids` to the log again,
    /// except those whose pin no longer exists because the transaction has ended. The records may
    /// name files: the caller must have linked the files of all these transactions, and of no
    /// others, for the log archive. Returns the same as [`Self::relog_step`]; `None` if none of the
    /// pins exists.
    fn append_again(&self, mut ids: Vec<u64>) -> Result<Option<(Vec<u64>, SegmentId, Lsn)>> {
        let mut state = self.state.lock();
        self.health.check()?;
        ids.retain(|id| state.pins.by_id.contains_key(id));
        let mut step: Option<(SegmentId, Lsn)> = None;
        for id in &ids {
            let pinned = &state.pins.by_id[id];
            let (files_named, info);
            let record = match &*pinned.changes {
                Changes::Batch(batch) => Record::Prepare {
                    xid: &pinned.xid,
                    batch: batch.as_bytes(),
                },
                Changes::Run(files) => {
                    (files_named, info) = (file_ids(files), FileMeta::encode_all(files));
                    Record::PrepareRun {
                        xid: &pinned.xid,
                        files: Cow::Borrowed(&files_named),
                        info: &info,
                    }
                }
            };
            // Append a `ServerRun` record and the prepare record in one group. Then every segment
            // with the prepare record also names, in front of it, the server run that prepared the
            // transaction, so replay needs no earlier segment to find that out.
            let run = run_name(pinned.run.as_deref());
            let records = [Record::ServerRun { run }, record];
            let appended = self.wal.append(&records, OutcomeRoom::Leave)?;
            // The `ServerRun` record may name another server run than the current one, so the name
            // of the current one must be recorded again before its next prepare record.
            state.run.forget_name();
            let first = step.map_or(appended.segment, |(first, _)| first);
            step = Some((first, appended.lsn));
            self.note_segment(&mut state, appended.segment);
        }
        Ok(step.map(|(segment, lsn)| (ids, segment, lsn)))
    }

    /// Links the files that the records of the pins `ids` name, so that the log archive gets them:
    /// an archive from which older segments were removed may lack these files.
    fn keep_pinned_files(&self, ids: &[u64]) -> Result<()> {
        let Some(store) = &self.archived else {
            return Ok(());
        };
        let files: Vec<u64> = {
            let state = self.state.lock();
            let pinned = ids.iter().filter_map(|id| state.pins.by_id.get(id));
            pinned
                .flat_map(|one| file_ids(one.changes.files()))
                .collect()
        };
        for id in files {
            match store.keep(FileKind::Sst, &[id]) {
                // The prepared transaction has ended since its files were listed, and they were
                // removed. So its prepare record need not be logged again, and nothing needs the
                // files.
                Err(gone) if *gone.kind() == ErrorKind::NotFound => {}
                kept => kept?,
            }
        }
        Ok(())
    }
}
