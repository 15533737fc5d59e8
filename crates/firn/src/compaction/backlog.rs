//! How far compactions are behind, as shares of what may be. Pure.

use super::picker::l0_depth;
use super::plan::Job;
use super::shape::Shape;
use crate::base::options::Options;
use crate::version::{LAST_LEVEL, Version};
use std::sync::atomic::{AtomicU64, Ordering};

/// Garbage may be this share of the last level, and what fits in the memtables besides.
const SPACE_SHARE: f64 = 0.2;

/// At this share of it the pressure is 1, so that space settles below what is allowed.
const SPACE_AIM: f64 = 0.7;

/// Bytes to rewrite that are nothing to worry about; with a sixteenfold the pressure is 2.
const DEBT_MIN: f64 = (2u64 << 30) as f64;
const DEBT_RANGE: f64 = 16.0;

/// Bytes rewritten below for each byte that a level gives away.
const REWRITTEN: f64 = 10.0;

/// How far compactions are behind: 1 where no more should come than they take, 2 where reads or
/// space would suffer.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Backlog {
    /// Depth of L0; at 2 writers stop.
    pub l0: f64,
    /// Bytes that levels are over their targets.
    pub debt: f64,
    /// Bytes that a full compaction would free.
    pub space: f64,
}

impl Backlog {
    /// The backlog of a tree. `memory`: what fits in the memtables, bytes.
    pub fn of(version: &Version, options: &Options, memory: u64, extra: &Extra) -> Self {
        Self {
            l0: 2.0 * l0_depth(version) as f64 / options.l0_stop_runs as f64,
            debt: debt(version, options),
            space: space(version, memory as f64, extra),
        }
    }
}

fn debt(version: &Version, options: &Options) -> f64 {
    let shape = Shape::of(version, options.base_level_size);
    let excess = |level: u8| {
        let target = shape.targets[usize::from(level)];
        version.level_size(level).saturating_sub(target)
    };
    let levels = shape.base..LAST_LEVEL as u8;
    let bytes = levels.map(excess).sum::<u64>() as f64 * REWRITTEN;
    let soft = DEBT_MIN.max(version.level_size(LAST_LEVEL as u8) as f64);
    2.0 * (bytes.max(1.0) / soft).ln().max(0.0) / DEBT_RANGE.ln()
}

/// What lies above the last level replaces something in it, in as many cases as it lately did; and
/// jobs hold inputs and outputs at once.
fn space(version: &Version, memory: f64, extra: &Extra) -> f64 {
    let upper: u64 = (0..LAST_LEVEL as u8).map(|l| version.level_size(l)).sum();
    let last = version.level_size(LAST_LEVEL as u8) as f64;
    let over = upper as f64 * extra.replacing() + extra.held() as f64;
    over / (SPACE_AIM * (SPACE_SHARE * last + memory)).max(1.0)
}

/// What takes space besides the tree, and how much of what is above the last level is garbage, or
/// makes garbage there: all of it under updates, nothing while new rows are loaded. That is not in
/// the version: it is seen when rows arrive in the last level.
#[derive(Debug, Default)]
pub struct Extra {
    held: AtomicU64,
    /// Parts in a million.
    replacing: AtomicU64,
}

const WHOLE: f64 = 1e6;

/// A job has this weight in the share for each part it moves of what lies above the last level.
const WEIGHT: f64 = 4.0;

impl Extra {
    /// A job begins that writes about as much as it reads.
    pub fn begins(&self, job: &Job) {
        self.held.fetch_add(job.rewrites(), Ordering::Relaxed);
    }

    /// It has ended.
    pub fn ends(&self, job: &Job) {
        self.held.fetch_sub(job.rewrites(), Ordering::Relaxed);
    }

    /// Bytes that jobs under way write.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// A job, picked from `version`, dropped so many entries because newer ones hide them.
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

    /// The share of what is above the last level that replaces something in it.
    pub fn replacing(&self) -> f64 {
        self.replacing.load(Ordering::Relaxed) as f64 / WHOLE
    }
}

#[cfg(test)]
mod tests;
