//! Measures how far compactions lag behind, relative to what is allowed: depth of L0, compaction
//! debt, garbage. The functions do no I/O; only [`SpaceTracker`] has state.

use super::level_targets::LevelTargets;
use super::running_jobs::Job;
use crate::base::options::Options;
use crate::base::stall_thresholds::{DEBT_MIN, DEBT_RANGE, SPACE_AIM, SPACE_SHARE};
use crate::version::{LAST_LEVEL, Version};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that a compaction rewrites in the next level for each byte that it moves down.
const REWRITTEN: f64 = 10.0;

/// How far compactions lag behind, as three pressures. At 1, writers should write no faster than
/// compactions work. At 2, reads or disk space would suffer.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Backlog {
    /// Pressure from the depth of L0. At 2 writers stop.
    pub l0: f64,
    /// Pressure from the bytes by which levels exceed their targets.
    pub debt: f64,
    /// Pressure from the bytes that a full compaction would free.
    pub space: f64,
}

impl Backlog {
    /// The backlog of `version`. `memory` is the capacity of the memtables in bytes;
    /// `space_tracker` has the space that the version does not show.
    pub fn of(
        version: &Version,
        options: &Options,
        memory: u64,
        space_tracker: &SpaceTracker,
    ) -> Self {
        Self {
            l0: 2.0 * version.l0_depth() as f64 / options.l0_stop_runs as f64,
            debt: debt(version, options),
            space: space(version, memory as f64, space_tracker),
        }
    }
}

fn debt(version: &Version, options: &Options) -> f64 {
    let level_targets = LevelTargets::of(version, options.base_level_size);
    let excess = |level: u8| {
        let target = level_targets.targets[usize::from(level)];
        version.level_size(level).saturating_sub(target)
    };
    let levels = level_targets.base..LAST_LEVEL as u8;
    let bytes = levels.map(excess).sum::<u64>() as f64 * REWRITTEN;
    let soft = DEBT_MIN.max(version.level_size(LAST_LEVEL as u8) as f64);
    2.0 * (bytes.max(1.0) / soft).ln().max(0.0) / DEBT_RANGE.ln()
}

/// The pressure from garbage. Garbage is the part of the upper levels that replaces rows of the
/// last level, plus the space of running jobs, whose inputs and outputs exist at once. The share of
/// the upper levels that replaces rows is measured, see [`SpaceTracker::replacing`].
fn space(version: &Version, memory: f64, space_tracker: &SpaceTracker) -> f64 {
    let upper: u64 = (0..LAST_LEVEL as u8).map(|l| version.level_size(l)).sum();
    let last = version.level_size(LAST_LEVEL as u8) as f64;
    let over = upper as f64 * space_tracker.replacing() + space_tracker.held() as f64;
    over / (SPACE_AIM * (SPACE_SHARE * last + memory)).max(1.0)
}

/// Tracks space that the version does not show: the output of running jobs, and the share of the
/// upper levels' entries that replace rows of the last level. This share is 1 under updates and 0
/// while new rows are loaded. No metadata contain it, so [`Self::dropped`] measures it when a job
/// brings entries into the last level.
///
/// The share is a moving average: each job has a weight in proportion to the part of the upper
/// levels that it moved.
#[derive(Debug, Default)]
pub struct SpaceTracker {
    held: AtomicU64,
    /// The share of the upper levels' entries that replaces rows of the last level, in millionths.
    replacing: AtomicU64,
}

const WHOLE: f64 = 1e6;

/// Weight of a job in the moving average, divided by the share of the upper levels' bytes that the
/// job moves.
const WEIGHT: f64 = 4.0;

impl SpaceTracker {
    /// Records that `job` begins. Its output is assumed to be as large as its inputs.
    pub fn begins(&self, job: &Job) {
        self.held.fetch_add(job.rewrites(), Ordering::Relaxed);
    }

    /// Notes that `job` has ended.
    pub fn ends(&self, job: &Job) {
        self.held.fetch_sub(job.rewrites(), Ordering::Relaxed);
    }

    /// Bytes that running jobs are expected to write.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Updates [`Self::replacing`] with the result of `job`: which share of the entries that it
    /// moved from upper levels into the last level replaced entries there. `job` was picked from
    /// `version`; it dropped `shadowed` entries because newer ones hide them. Does nothing if the
    /// job moved no entries from upper levels into the last level.
    pub fn dropped(&self, version: &Version, job: &Job, shadowed: u64) {
        let last = LAST_LEVEL as u8;
        let above: u64 = (0..last).map(|level| version.level_size(level)).sum();
        let from_above = || job.files().filter(|(level, _)| *level < last);
        let entries: u64 = from_above().map(|(_, f)| f.entries).sum();
        if job.output_level != last || entries == 0 {
            return;
        }
        let bytes: u64 = from_above().map(|(_, f)| f.size).sum();
        let weight = (WEIGHT * bytes as f64 / above.max(1) as f64).min(0.5);
        let share = (shadowed as f64 / entries as f64).min(1.0);
        let now = self.replacing();
        let next = now + weight * (share - now);
        self.replacing
            .store((next * WHOLE) as u64, Ordering::Relaxed);
    }

    /// Share of the upper levels' entries that replace entries of the last level, 0 to 1.
    pub fn replacing(&self) -> f64 {
        self.replacing.load(Ordering::Relaxed) as f64 / WHOLE
    }
}

#[cfg(test)]
mod tests;
