//! Compaction of the key ranges of some indexes, in the thread of the caller.

use super::{BackgroundWork, CompactionStep};
use crate::base::key::index_prefix;
use crate::base::key_range::{KeyRange, prefix_successor};
use crate::base::{IndexId, Result};
use crate::compaction::{
    Job, PickerContext, RestGoal, RestOrder, RestlessFiles, is_at_rest, pick_within, restless_files,
};
use crate::db::Db;
use crate::version::{FileMeta, LAST_LEVEL};
use std::time::Duration;

/// While jobs of other threads work on the same ranges, the optimization looks again after this
/// pause.
const OTHERS_STEP: Duration = Duration::from_millis(10);

/// To count the work that is left, the optimization visits all files that are not at rest. If it
/// has visited n files, it counts again after n / `FILES_FOR_A_JOB` jobs. So the counts take about
/// as much time as the jobs.
const FILES_FOR_A_JOB: u64 = 64;

/// One step of the work.
enum RestStep {
    /// A job has run and has brought this many bytes to rest.
    Compacted(u64),
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
        let of_order = |file: &FileMeta| order.ranges.iter().any(|r| r.overlaps(&file.range()));
        self.recheck_unreadable(of_order, &mut || go_on(0, 1))?;
        let mut left = self.restless(&order);
        let (mut total, mut jobs) = (left.bytes, 0);
        loop {
            if jobs * FILES_FOR_A_JOB > left.files {
                left = self.restless(&order);
                jobs = 0;
            }
            total = total.max(left.bytes);
            go_on(total - left.bytes, total.max(1))?;
            match self.optimize_step(&order)? {
                RestStep::Compacted(bytes) => {
                    left.bytes = left.bytes.saturating_sub(bytes);
                    jobs += 1;
                }
                RestStep::OthersWork => std::thread::sleep(OTHERS_STEP),
                RestStep::AtRest => break,
            }
        }
        self.versions.delete_obsolete()?;
        // Report the damage: files in quarantine are not at rest.
        self.damage(of_order).map_or(Ok(()), Err)
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
        // The picker also returns which reported ranges of tombstones need no more work. Ignore
        // that here: the reports concern ranges outside of `order`, too, so the background
        // compaction deals with them.
        let (picked, _) = self.pick_by(&retired, RestGoal::Complete, |p| pick_within(p, order));
        if let Some(picked) = picked {
            let bytes = brought_to_rest(&picked.1);
            return match self.compact(picked, &retired)? {
                CompactionStep::MetDamage(error) | CompactionStep::GaveUp(error) => Err(error),
                CompactionStep::Compacted | CompactionStep::NothingDue => {
                    Ok(RestStep::Compacted(bytes))
                }
            };
        }
        // Wait only while the range itself has bytes left to compact: jobs of other tables may
        // overlap the range for ever.
        Ok(
            match was_busy && !self.with_picker(|p| is_at_rest(p, order)) {
                true => RestStep::OthersWork,
                false => RestStep::AtRest,
            },
        )
    }

    fn restless(&self, order: &RestOrder) -> RestlessFiles {
        self.with_picker(|p| restless_files(p, order))
    }

    fn with_picker<R>(&self, f: impl FnOnce(&PickerContext<'_>) -> R) -> R {
        let running = self.running.lock();
        f(&PickerContext {
            version: &self.versions.current(),
            options: &self.options,
            running: &running,
            retired: &self.retired(),
            oldest_read: self.live_snapshots().oldest(),
            reported: &[],
            rest: RestGoal::Complete,
        })
    }
}

/// Bytes that `job` brings to rest. Files of the last level that it merges with files from above
/// may have been at rest before, and do not count.
fn brought_to_rest(job: &Job) -> u64 {
    let last = LAST_LEVEL as u8;
    let from_above = job.files().any(|(level, _)| level < last);
    let counts = |level: u8| job.output_level == last && (level < last || !from_above);
    let files = job.files().filter(|(level, _)| counts(*level));
    files.map(|(_, file)| file.size).sum()
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
