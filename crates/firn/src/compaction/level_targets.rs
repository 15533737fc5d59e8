//! Target sizes of the levels. Pure.

use crate::version::{LAST_LEVEL, LEVELS, Version};

/// Ratio of the targets of two neighbouring levels, except for the last level.
const FACTOR: u64 = 10;

/// Ratio of the target of the last level to the level above. With eight instead of ten, data is
/// rewritten into it a fifth less often, and garbage still stays near an eighth.
const FACTOR_LAST: u64 = 8;

/// Number of files that an upper level at its target has. A job on one file then leaves the level
/// nearly full, and a fuller level gives denser jobs, which rewrite less of the next level.
const FILES_PER_LEVEL: u64 = 48;

/// Files of an upper level are at least the target file size divided by this.
const FILE_SHARE_MIN: u64 = 32;

/// Least number of files of the last level at its target, so that a job rewrites a small part of
/// it.
const FILES_LAST: u64 = 64;

/// Files of the last level are at least the target file size divided by this: smaller ones compress
/// worse.
const LAST_FILE_SHARE_MIN: u64 = 16;

/// A divisible job reads at most the last level's target divided by this.
const JOBS_PER_LEVEL: u64 = 32;

/// Target sizes of the levels, derived from the size of the tree. The last level holds eight
/// ninths, the level above an eighth of that, and each higher level a tenth of the next. So at most
/// about an eighth of the stored bytes is garbage that upper levels hide in the last one, whatever
/// the size of the tree.
///
/// Rejected: fixed sizes. They would leave the last level half empty, and half of the data could be
/// garbage.
///
/// Example: 9 GiB of data and `base_level_size` 256 MiB give the last level (6) a target of 8 GiB
/// and level 5 one of 1 GiB; that is more than three times 256 MiB, so level 4 with about 102 MiB
/// is the base.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LevelTargets {
    /// The level that L0 compacts into.
    pub base: u8,
    /// Target of each level, stored bytes. It is 0 for levels above the base; L0's is unused.
    pub targets: [u64; LEVELS],
}

impl LevelTargets {
    /// The shape of a version. The base is the deepest level whose target is at most three times
    /// `base_level_size`: on a logarithmic scale that centres the base on it. The base is never
    /// below a level that holds data, because data of L0 must not pass older data.
    pub fn of(version: &Version, base_level_size: u64) -> Self {
        let highest = (1..LAST_LEVEL).find(|&l| !version.levels[l - 1].files.is_empty());
        Self::with(version.size(), highest, base_level_size)
    }

    /// The shape of a tree with `total` stored bytes, all in the last level.
    pub fn of_size(total: u64, base_level_size: u64) -> Self {
        Self::with(total, None, base_level_size)
    }

    fn with(total: u64, highest: Option<usize>, base_level_size: u64) -> Self {
        let mut targets = [0; LEVELS];
        let mut target = total - total / (FACTOR_LAST + 1);
        let mut base = LAST_LEVEL;
        let highest = highest.unwrap_or(LAST_LEVEL);
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

    /// Size of the files of `level`, stored bytes; `target` is the upper limit. Files of L0 are as
    /// large as those of the base.
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

    /// Most bytes that a divisible job should read. While a job runs, its inputs and outputs both
    /// take space.
    pub fn job_size(&self, target: u64) -> u64 {
        let share = self.targets[LAST_LEVEL] / JOBS_PER_LEVEL;
        share.clamp(target / LAST_FILE_SHARE_MIN, target * 4)
    }
}

#[cfg(test)]
mod tests;
