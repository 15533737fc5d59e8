//! Ends a log segment after a commit, for checkpoints.

use super::{OwnedBinlogPosition, Pipeline};
use crate::base::{Result, Seqno};
use crate::wal::{SegmentId, WalCut};

/// The log was cut, and its last groups may not be durable yet.
pub struct BegunCut {
    cut: WalCut,
    seqno: Seqno,
    binlog: OwnedBinlogPosition,
    held_us: u64,
}

/// The end of what was committed when the log was cut.
#[derive(Debug, Clone)]
pub struct LogCut {
    /// The last segment of the log before the cut; it does not change any more.
    pub segment: SegmentId,
    /// The last commit in it, or in the files.
    pub seqno: Seqno,
    /// Binary log position of the last commit that reported one since the database was opened.
    pub binlog: OwnedBinlogPosition,
    /// Time that commits waited, microseconds.
    pub held_us: u64,
}

impl Pipeline {
    /// Ends the log's segment after the last commit. Commits wait only while the log moves to its
    /// next segment; the caller should prepare it with [`Wal::prepare_cut`] before. No other I/O;
    /// [`Self::finish_cut`] must follow.
    ///
    /// # Errors
    /// `Poisoned`; `NoSpace` if there is no room for the next segment.
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

    /// Makes everything before the cut durable.
    ///
    /// # Errors
    /// As of [`Self::sync_all`].
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
