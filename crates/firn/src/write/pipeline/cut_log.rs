//! The log cut of the commit pipeline: ends a log segment behind a commit, for a checkpoint or the
//! log archive.

use super::{OwnedBinlogPosition, Pipeline};
use crate::base::{Result, Seqno};
use crate::wal::{SegmentId, WalCut};

/// A log cut that has begun: later records go to a new segment, but groups before the cut may not
/// be durable yet.
pub struct BegunCut {
    cut: WalCut,
    seqno: Seqno,
    binlog: OwnedBinlogPosition,
    held_us: u64,
}

/// The last commit before a log cut.
#[derive(Debug, Clone)]
pub struct LogCut {
    /// The last log segment before the cut; it no longer changes.
    pub segment: SegmentId,
    /// The seqno of the last commit before the cut.
    pub seqno: Seqno,
    /// Binary log position of the last commit that reported one since the database was opened.
    pub binlog: OwnedBinlogPosition,
    /// How long the cut held the pipeline's mutex, so that commits had to wait, microseconds.
    pub held_us: u64,
}

impl Pipeline {
    /// Ends the log segment behind the last commit. It first prepares the next segment without the
    /// pipeline's mutex. Then it holds the mutex only while the log moves to that segment, so
    /// commits do not wait for I/O. The caller must then call [`Self::finish_cut`].
    ///
    /// # Errors
    /// `NoSpace` if the disk has no room for the next segment; `Poisoned`; `ShutDown` if the log is
    /// closed.
    pub fn begin_cut(&self, clock: &dyn Fn() -> u64) -> Result<BegunCut> {
        loop {
            self.wal.prepare_cut()?;
            let state = self.state.lock();
            let began = clock();
            self.health.check()?;
            if let Some(cut) = self.wal.try_cut()? {
                return Ok(BegunCut {
                    cut,
                    seqno: state.last_seqno,
                    binlog: state.binlog.clone(),
                    held_us: clock().saturating_sub(began),
                });
            }
        }
    }

    /// Returns when all commits before the cut are durable.
    ///
    /// # Errors
    /// Those of [`Self::sync_all`].
    pub fn finish_cut(&self, begun: BegunCut) -> Result<LogCut> {
        let finished = self.wal.finish_cut(begun.cut);
        let segment = finished.inspect_err(|_| self.contain_failure())?;
        Ok(LogCut {
            segment,
            seqno: begun.seqno,
            binlog: begun.binlog,
            held_us: begun.held_us,
        })
    }
}
