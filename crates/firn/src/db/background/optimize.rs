//! Compaction of the key ranges of some indexes, in the thread of the caller.

use super::BackgroundWork;
use crate::base::key::index_prefix;
use crate::base::key_range::{KeyRange, prefix_successor};
use crate::base::{IndexId, Result};
use crate::compaction::{PickerContext, RestGoal, RestOrder, bytes_not_at_rest, pick_within};
use crate::db::Db;
use std::time::Duration;

/// While jobs of other threads work on the same ranges, the optimization looks again after this
/// pause.
const OTHERS_STEP: Duration = Duration::from_millis(10);

/// One step of the work.
enum RestStep {
    /// A job has run.
    Compacted,
    /// A job of another thread works on the ranges.
    OthersWork,
    /// Nothing is left to do.
    AtRest,
}

impl BackgroundWork {
    /// Brings the entries of `indexes` to rest: into the last level, without old versions and
    /// deletions that no snapshot needs. Rewrites entries of other indexes only if they are in the
    /// same files, and flushes the memtables only if they have entries of `indexes`.
    ///
    /// `go_on` is called between two jobs with the bytes done and the bytes to do. If it returns an
    /// error, the work ends, and the jobs done so far stay in effect.
    pub(in crate::db) fn optimize(
        &self,
        indexes: &[IndexId],
        go_on: &mut dyn FnMut(u64, u64) -> Result<()>,
    ) -> Result<()> {
        let order = RestOrder {
            ranges: indexes.iter().map(|index| range_of(*index)).collect(),
            until: self.super_versions.visible(),
        };
        if self.has_in_memory(indexes) {
            go_on(0, 1)?;
            self.flush_all()?;
        }
        let mut total = self.bytes_left(&order);
        loop {
            let left = self.bytes_left(&order);
            total = total.max(left);
            go_on(total - left, total.max(1))?;
            match self.optimize_step(&order)? {
                RestStep::Compacted => {}
                RestStep::OthersWork => std::thread::sleep(OTHERS_STEP),
                RestStep::AtRest => break,
            }
        }
        self.versions.delete_obsolete()?;
        // Report the damage: files in quarantine are not at rest.
        self.damage().map_or(Ok(()), Err)
    }

    fn has_in_memory(&self, indexes: &[IndexId]) -> bool {
        let super_version = self.super_versions.pin();
        indexes.iter().any(|index| {
            let mut queued = super_version.frozen.iter();
            super_version.active.index_counts(*index).entries > 0
                || queued.any(|queued| queued.index_counts(*index).entries > 0)
        })
    }

    fn optimize_step(&self, order: &RestOrder) -> Result<RestStep> {
        self.health.check()?;
        let retired = self.retired();
        // Look for running jobs before picking. The picker may return no job only because one
        // conflicts with a running job. If that job ended before this code looked, the ranges would
        // seem to be at rest.
        let was_busy = {
            let running = self.running.lock();
            let mut ranges = order.ranges.iter();
            ranges.any(|range| running.is_busy_in(range))
        };
        // Leave the tombstone reports to the background picker, because they concern other ranges,
        // too.
        let (picked, _) = self.pick_by(&retired, RestGoal::Complete, |p| pick_within(p, order));
        if let Some(picked) = picked {
            self.compact(picked, &retired)?;
            return Ok(RestStep::Compacted);
        }
        // Wait only while the ranges have bytes left to compact: there may always be some job of
        // another table whose key range overlaps them.
        Ok(match was_busy && self.bytes_left(order) > 0 {
            true => RestStep::OthersWork,
            false => RestStep::AtRest,
        })
    }

    fn bytes_left(&self, order: &RestOrder) -> u64 {
        let running = self.running.lock();
        bytes_not_at_rest(
            &PickerContext {
                version: &self.versions.current(),
                options: &self.options,
                running: &running,
                retired: &self.retired(),
                oldest_read: self.live_snapshots().oldest(),
                reported: &[],
                rest: RestGoal::Complete,
            },
            order,
        )
    }
}

impl Db {
    /// Compacts the data of `indexes`, which brings them to rest. Data written meanwhile may
    /// stay as it is.
    ///
    /// # Errors
    /// Those of [`Self::compact_all`]; and that of `go_on`, which is called with the bytes done and
    /// the bytes to do, before each job.
    pub fn optimize(
        &self,
        indexes: &[IndexId],
        go_on: &mut dyn FnMut(u64, u64) -> Result<()>,
    ) -> Result<()> {
        self.work.optimize(indexes, go_on)
    }
}

/// All keys of an index. No key equals the upper end, which begins the next index.
fn range_of(index: IndexId) -> KeyRange {
    let smallest = index_prefix(index).to_vec();
    let largest = prefix_successor(&smallest).unwrap_or_else(|| vec![u8::MAX; 5]);
    KeyRange { smallest, largest }
}
