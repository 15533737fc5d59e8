//! The run of the host's server, which the log names before the transactions that it prepares.

use super::Pipeline;
use crate::binlog::ServerRun;
use crate::wal::{SegmentId, ServerRunName};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// The server run that the log names, and the segment that names it.
///
/// Replay begins at the oldest segment that is still needed. So each segment with a prepared
/// transaction names the run, or the transaction pins an earlier segment that does.
#[derive(Default)]
pub(super) struct ServerRunNote {
    run: Option<Arc<ServerRun>>,
    /// The segment in which the log names `run`, or one before it.
    named_in: Option<SegmentId>,
    /// The log may name another run, so an unknown run must be recorded, too.
    others: bool,
}

impl ServerRunNote {
    /// The run, if a record of it must precede a prepare record in segment `current` or the next
    /// one.
    pub(super) fn due(&self, current: SegmentId) -> Option<Option<Arc<ServerRun>>> {
        let worth_saying = self.run.is_some() || self.others;
        let due = worth_saying && self.named_in != Some(current);
        due.then(|| self.run.clone())
    }

    /// Notes that a prepare record lies in `segment` or a later one, after the run's if that was
    /// due. Returns the segment to pin.
    pub(super) fn prepared(&mut self, segment: SegmentId, with_run: bool) -> SegmentId {
        if with_run {
            self.named_in = Some(segment);
        }
        // The append may have begun a new segment.
        self.named_in.map_or(segment, |named| named.min(segment))
    }
}

impl Pipeline {
    /// Transactions that are prepared from now on belong to `run`.
    pub fn set_server_run(&self, run: Option<Arc<ServerRun>>) {
        let mut state = self.state.lock();
        state.run = ServerRunNote {
            run,
            named_in: None,
            others: true,
        };
    }
}

/// The form of a run in a record.
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
