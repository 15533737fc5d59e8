//! Writes the name of the server run to the log, before the transactions that this server run
//! prepares.

use super::Pipeline;
use crate::binlog::ServerRun;
use crate::wal::{SegmentId, ServerRunName};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// The current server run, and the log segment that names it.
///
/// Replay begins at the oldest segment that is still needed, and must read the name of a server run
/// before its prepared transactions. So the name is recorded in each segment that has a prepare
/// record, or the prepared transaction pins the earlier segment with the name.
#[derive(Default)]
pub(super) struct ServerRunNote {
    run: Option<Arc<ServerRun>>,
    /// The segment of the last log record that names `run`, or a segment before it; `None` if no
    /// record of this log names it.
    named_in: Option<SegmentId>,
    /// Whether the log may have a record that names a server run other than `run`. If so, even an
    /// unknown server run (`None`) must be recorded: otherwise replay would assign later prepared
    /// transactions to that other run.
    others: bool,
}

impl ServerRunNote {
    /// Returns the server run if a record that names it must be appended before a prepare record.
    /// `current` is the segment to which the records go, unless the append begins a new segment.
    pub(super) fn due(&self, current: SegmentId) -> Option<Option<Arc<ServerRun>>> {
        let worth_saying = self.run.is_some() || self.others;
        let due = worth_saying && self.named_in != Some(current);
        due.then(|| self.run.clone())
    }

    /// Notes that a record that names another server run than `run` was appended. So before the
    /// next prepare record, a record that names `run` must be appended again.
    pub(super) fn forget_name(&mut self) {
        self.named_in = None;
        self.others = true;
    }

    /// The server run to which newly prepared transactions belong.
    pub(super) fn current(&self) -> Option<Arc<ServerRun>> {
        self.run.clone()
    }

    /// Notes that a prepare record was appended, which lies in `segment` or a later one. `with_run`
    /// says that a record with the name of the server run was appended before it. Returns the
    /// segment that the prepared transaction must pin.
    pub(super) fn prepared(&mut self, segment: SegmentId, with_run: bool) -> SegmentId {
        if with_run {
            self.named_in = Some(segment);
        }
        // If no record of the name was appended, the prepare record may lie in a later segment than
        // the name. Then the transaction must pin the segment with the name.
        self.named_in.map_or(segment, |named| named.min(segment))
    }
}

impl Pipeline {
    /// Sets the server run to which transactions belong that are prepared later; `None` if it is
    /// not known.
    pub fn set_server_run(&self, run: Option<Arc<ServerRun>>) {
        let mut state = self.state.lock();
        state.run = ServerRunNote {
            run,
            named_in: None,
            others: true,
        };
    }
}

/// The name of a server run as it stands in a log record.
pub(super) fn run_name(run: Option<&ServerRun>) -> ServerRunName<'_> {
    match run {
        None => ServerRunName::Unknown,
        Some(ServerRun::NoBinlog) => ServerRunName::NoBinlog,
        Some(ServerRun::Binlog(file)) => ServerRunName::Binlog {
            path: file.path.as_os_str().as_bytes(),
            created: file.created,
            server_id: file.server_id,
        },
    }
}
