//! Measures how far compactions lag behind. The functions do no I/O; only [`SpaceTracker`] has
//! state. The policy of write stalls decides how much of it is allowed.

use super::held_files::HeldFiles;
use super::l0_overlap::depth;
use super::level_targets::LevelTargets;
use super::running_jobs::Job;
use crate::base::options::Options;
use crate::version::{LAST_LEVEL, MovableL0, Version};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that a compaction rewrites in the next level for each byte that it moves down.
const REWRITTEN: u64 = 10;

/// How far compactions lag behind, in numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Runs of L0 over one key.
    pub l0_runs: usize,
    /// Bytes that compactions have to rewrite until all levels are within their targets.
    pub debt: u64,
    /// Bytes that a full compaction would free, and those that running jobs write. Garbage is the
    /// part of the upper levels that replaces rows of the last level, see
    /// [`SpaceTracker::replacing`]. The inputs and outputs of running jobs exist at once.
    pub garbage: u64,
    /// Bytes of the last level.
    pub last_level: u64,
}

impl Backlog {
    /// The backlog of `version`. Data that damaged files keep where it is does not count, because
    /// writers would wait for it in vain. `space_tracker` knows what cannot be computed from the
    /// version: the output of running jobs, and which share of the upper levels' entries replaces
    /// rows of the last level.
    pub fn of(version: &Version, options: &Options, space_tracker: &SpaceTracker) -> Self {
        let level_targets = LevelTargets::of(version, options.base_level_size);
        let l0 = version.movable_l0(|| movable_l0(version, options, level_targets.base));
        let upper: u64 = (1..LAST_LEVEL as u8).map(|l| movable(version, l)).sum();
        let upper = upper + l0.size;
        Self {
            l0_runs: l0.runs,
            debt: debt(version, &level_targets),
            garbage: (upper as f64 * space_tracker.replacing()) as u64 + space_tracker.held(),
            last_level: version.level_size(LAST_LEVEL as u8),
        }
    }
}

/// Bytes of a level below L0 that damaged files do not keep there.
fn movable(version: &Version, level: u8) -> u64 {
    version
        .level_size(level)
        .saturating_sub(version.blocked(level).stored)
}

/// The part of L0 that compactions can work off. Files that must stay above a damaged file count as
/// runs only if they are to be merged.
fn movable_l0(version: &Version, options: &Options, base: u8) -> MovableL0 {
    let held = HeldFiles::of(version, base);
    if held.is_empty() {
        return MovableL0 {
            runs: version.l0_depth(),
            size: version.level_size(0),
        };
    }
    let merged = held.merges(options.l0_compaction_runs);
    let merged = merged.flat_map(|group| group.files().collect::<Vec<_>>());
    let merged = merged.map(|(_, file)| &**file.meta());
    let others = || held.others(version).map(|file| &**file.meta());
    MovableL0 {
        runs: depth(others().chain(merged)),
        size: others().map(|file| file.size).sum(),
    }
}

fn debt(version: &Version, level_targets: &LevelTargets) -> u64 {
    let excess = |level: u8| {
        let target = level_targets.targets[usize::from(level)];
        movable(version, level).saturating_sub(target)
    };
    let levels = level_targets.base..LAST_LEVEL as u8;
    levels.map(excess).sum::<u64>() * REWRITTEN
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
    /// See [`Self::replacing`]; in millionths.
    replacing: AtomicU64,
}

const WHOLE: f64 = 1e6;

/// A job that moves a share *s* of the upper levels' bytes has a weight of this number times *s* in
/// the moving average, but at most 1/2.
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

    /// Updates [`Self::replacing`] with the result of `job`: the share of the entries moved from
    /// upper levels into the last level that replaced entries there. `job` was picked from
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

    /// The share of the upper levels' entries that replace entries of the last level, from 0 to 1.
    pub fn replacing(&self) -> f64 {
        self.replacing.load(Ordering::Relaxed) as f64 / WHOLE
    }
}

#[cfg(test)]
mod tests;
