//! Target sizes of the levels, computed from the size of the tree. This module does no I/O.

use crate::version::{LAST_LEVEL, LEVELS, Version};

/// The target of a level is this many times that of the level above. The last level has its own
/// factor.
const FACTOR: u64 = 10;

/// The target of the last level is this many times that of the level above. With eight instead of
/// ten, data is rewritten into the last level a fifth less often, and garbage still stays near an
/// eighth.
const FACTOR_LAST: u64 = 8;

/// Number of files that an upper level has when it is at its target. With so many, a job on one
/// file leaves the level nearly full. The fuller a level, the fewer keys lie between the ends of a
/// file, so the fewer bytes of the next level a job rewrites for each byte that it moves.
const FILES_PER_LEVEL: u64 = 48;

/// A file of an upper level has at least the target file size divided by this.
const FILE_SHARE_MIN: u64 = 32;

/// The last level has at least this many files when it is at its target, so that one job rewrites
/// only a small part of it.
const FILES_LAST: u64 = 64;

/// A file of the last level has at least the target file size divided by this. Smaller files
/// compress worse.
const LAST_FILE_SHARE_MIN: u64 = 16;

/// A job reads at most the target of the last level divided by this, unless the smallest possible
/// job is larger.
const JOBS_PER_LEVEL: u64 = 32;

/// Target sizes of the levels, derived from the size of the tree. The last level has eight ninths
/// of all bytes, the level above it an eighth of that, and each higher level a tenth of the next
/// lower one. So at most about an eighth of the stored bytes is garbage (rows of the last level
/// that entries of upper levels replace), whatever the size of the tree.
///
/// Rejected: fixed sizes. The last level could be half empty, and then half of the data could be
/// garbage.
///
/// Example: 9 GiB of data with a `base_level_size` of 256 MiB. The last level (6) has a target of 8
/// GiB and level 5 one of 1 GiB. That is more than three times 256 MiB, so level 4, with about 102
/// MiB, becomes the base.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LevelTargets {
    /// The level that L0 compacts into.
    pub base: u8,
    /// Target of each level in stored bytes. It is 0 for levels above the base; the entry for L0 is
    /// unused.
    pub targets: [u64; LEVELS],
}

impl LevelTargets {
    /// The targets for a version. The base is the deepest level whose target is at most three times
    /// `base_level_size`. Since levels differ by a factor of about ten, the base's target is then
    /// between a third and three times `base_level_size`, unless the tree is so small that the last
    /// level is the base. But the base is never deeper than the highest level that holds data,
    /// because newer data of L0 must not be placed below older data. And it is never deeper than
    /// [`Version::base_level_max`], because of damaged files.
    pub fn of(version: &Version, base_level_size: u64) -> Self {
        let highest = (1..LAST_LEVEL).find(|&l| !version.levels[l - 1].files.is_empty());
        let highest = highest.unwrap_or(LAST_LEVEL).min(version.base_level_max());
        Self::with(version.size(), highest, base_level_size)
    }

    /// The targets for a tree with `total` stored bytes, all of them in the last level.
    pub fn of_size(total: u64, base_level_size: u64) -> Self {
        Self::with(total, LAST_LEVEL, base_level_size)
    }

    fn with(total: u64, highest: usize, base_level_size: u64) -> Self {
        let mut targets = [0; LEVELS];
        let mut target = total - total / (FACTOR_LAST + 1);
        let mut base = LAST_LEVEL;
        targets[base] = target;
        while base > 1 && (target > base_level_size.saturating_mul(3) || base > highest) {
            target /= if base == LAST_LEVEL {
                FACTOR_LAST
            } else {
                FACTOR
            };
            base -= 1;
            targets[base] = target;
        }
        Self {
            base: base as u8,
            targets,
        }
    }

    /// Size of a level relative to its target: 1 means full.
    pub fn fill(&self, level: u8, size: u64) -> f64 {
        size as f64 / self.targets[usize::from(level)].max(1) as f64
    }

    /// Size in stored bytes of the files that a job writes into `level`; `target` is the upper
    /// limit. Files of L0 are as large as those of the base level.
    pub fn file_size(&self, level: u8, target: u64) -> u64 {
        let (level, files, least) = match usize::from(level) {
            LAST_LEVEL => (LAST_LEVEL, FILES_LAST, target / LAST_FILE_SHARE_MIN),
            level => (
                level.max(usize::from(self.base)),
                FILES_PER_LEVEL,
                target / FILE_SHARE_MIN,
            ),
        };
        let share = self.targets[level] / files;
        share.clamp(least.max(1), target.max(1))
    }

    /// Number of stored bytes that a job should read at most. A job is larger only if the files
    /// with which it must begin are, together with those that they overlap. A large job would take
    /// much space, since its inputs and outputs exist at once.
    pub fn job_size(&self, target: u64) -> u64 {
        let share = self.targets[LAST_LEVEL] / JOBS_PER_LEVEL;
        share.clamp(target / LAST_FILE_SHARE_MIN, target * 4)
    }
}

#[cfg(test)]
mod tests;
