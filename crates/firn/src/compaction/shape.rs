//! The sizes the levels should have. Pure.

use crate::version::{LAST_LEVEL, LEVELS, Version};

/// Each level aims at ten times the level above, but for the last one.
const FACTOR: u64 = 10;

/// The last level aims at eight times the level above: it is rewritten a fifth less often than with
/// ten, and garbage still stays near an eighth.
const FACTOR_LAST: u64 = 8;

/// Files of an upper level are about this share of its target, so that what a job takes out leaves
/// the level nearly full: a fuller level gives denser jobs, which rewrite less of the next.
const FILES_PER_LEVEL: u64 = 48;

/// They are no smaller than this share of the file size aimed at.
const FILE_SHARE_MIN: u64 = 32;

/// The last level has about so many files, or more: what a job rewrites of it is a small part.
const FILES_LAST: u64 = 64;

/// Its files are no smaller than this share of the size aimed at, for the sake of compression.
const LAST_FILE_SHARE_MIN: u64 = 16;

/// A job that can be cut smaller reads no more than this share of the last level.
const JOBS_PER_LEVEL: u64 = 32;

/// Target sizes, derived from the data: the last level holds eight ninths, the level above an eighth
/// of it, each one above that a tenth of the next. So at most about an eighth of what is stored can
/// be garbage that the last level hides, whatever the size of the database. (Fixed sizes would leave
/// the last level half empty, and the garbage half of the data.)
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// The level that L0 is compacted into.
    pub base: u8,
    /// Target of each level, stored bytes; of levels above the base 0, of L0 unused.
    pub targets: [u64; LEVELS],
}

impl Shape {
    /// The shape for a version. The base is the deepest level whose target is no more than about
    /// three times `base_level_size`, so that its target is near it on a logarithmic scale; it is
    /// never below a level that holds data, over which L0 must not jump.
    pub fn of(version: &Version, base_level_size: u64) -> Self {
        let highest = (1..LAST_LEVEL).find(|&l| !version.levels[l - 1].files.is_empty());
        Self::with(version.size(), highest, base_level_size)
    }

    /// The shape of so many bytes, all in the last level.
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

    /// How full a level of `size` bytes is: 1 at its target.
    pub fn fill(&self, level: u8, size: u64) -> f64 {
        size as f64 / self.targets[usize::from(level)].max(1) as f64
    }

    /// The size of files written to a level, where those of the last one are to have at most `target`
    /// bytes. L0 is cut like the base.
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

    /// What a job that can be cut smaller should read at most: while it runs, inputs and outputs
    /// both take space, and nothing else makes room.
    pub fn job_size(&self, target: u64) -> u64 {
        let share = self.targets[LAST_LEVEL] / JOBS_PER_LEVEL;
        share.clamp(target / LAST_FILE_SHARE_MIN, target * 4)
    }
}

#[cfg(test)]
mod tests;
