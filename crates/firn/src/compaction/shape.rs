//! The sizes the levels should have. Pure.

use crate::version::{LAST_LEVEL, LEVELS, Version};

/// Each level aims at ten times the level above.
const FACTOR: u64 = 10;

/// Target sizes, derived from the data: the last level holds nine tenths, each level above a tenth
/// of the next. So at most about a tenth of what is stored can be garbage that the last level hides,
/// whatever the size of the database. (Fixed sizes would leave the last level half empty, and the
/// garbage half of the data.)
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
        let total = version.size();
        let mut targets = [0; LEVELS];
        let mut target = total - total / 10;
        let mut base = LAST_LEVEL;
        let highest = (1..LAST_LEVEL).find(|&l| !version.levels[l - 1].files.is_empty());
        let highest = highest.unwrap_or(LAST_LEVEL);
        targets[base] = target;
        while base > 1 && (target > base_level_size.saturating_mul(3) || base > highest) {
            target /= FACTOR;
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
}

#[cfg(test)]
mod tests;
