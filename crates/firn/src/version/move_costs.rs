//! Orders the files of a level by the cost of moving them down, so that the picker finds the
//! cheapest ones without a look at the others.
//!
//! A job that moves a file one level down rewrites the files of the next level that share a key
//! with it. The *cost* of a file is the bytes of those files for each byte that the job moves or
//! frees. Each level from L1 to the one above the last has a list of the costs of its files, in the
//! order of the files, with the least cost of each node.
//!
//! ```text
//! L5   [0  9]   [10 19]   [25 29]      costs: 20/10, 40/10, 0/10; the third is the cheapest
//! L6   [0      14] [15   24]           (each file of L5 has 10 bytes, each of L6 20)
//! ```
//!
//! An edit measures the files that it adds, and the files above the files that it adds or removes.
//! Usually these are a few files. But thousands of files may lie above one file: for example, if
//! that file has keys of two indexes, all rows that are appended to the first index lie in its
//! range. So an edit measures only a number of files in proportion to those that it adds and
//! removes, and leaves the range of the others to later edits.
//!
//! The bytes that deletions free depend on the mean size of an entry in the last level, which every
//! edit changes a little, but the list keeps each cost as it was when it was measured. So the
//! picker takes a few of the cheapest files and compares their present costs.
//!
//! Rejected: a sort of all files after each edit, which visits them all; a cursor that takes files
//! in turn, which writes more: it moves the file with the mean cost.

use super::{FileHandle, FileList, FileMeta, LAST_LEVEL, Version};
use crate::base::key_range::KeyRange;
use crate::base::summed_list::{Summed, SummedList};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::{Bound, Range};
use std::sync::Arc;

/// Number of levels whose files have costs: all but L0 and the last.
const LEVELS_ABOVE_LAST: usize = LAST_LEVEL - 1;

/// When an edit changes a level, the costs of moving files of the level above change. The edit
/// computes the costs of at most this many files anew, plus this many for each file that it adds or
/// removes. The remaining files wait for later edits.
const MEASURED_MAX: usize = 64;

/// An edit may leave key ranges of a level whose files later edits measure: they compute what it
/// costs to move each file down. This is the largest number of such ranges in one level. If there
/// are more, one range that covers all of them replaces them.
const WAITING_MAX: usize = 16;

/// A group of the files of a level. The picker asks for the files of one group that are cheapest to
/// move down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MoveGroup {
    /// All files.
    All,
    /// Files with many deletions, see [`FileMeta::has_many_deletions`].
    ManyDeletions,
    /// Files that refer to blobs.
    Blobs,
    /// Files with dead entries, see [`FileMeta::droppable_entries_min`].
    Dead,
}

const GROUPS: usize = 4;

/// Bytes that a move rewrites for each byte that it moves or frees, in units of 2^-20.
type Cost = u64;

/// No file.
const NO_COST: Cost = Cost::MAX;

/// The cost of moving one file, by group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MoveCost {
    /// Bytes of the files in the next level that share a key with the file.
    overlap: u64,
    costs: LeastCosts,
}

impl MoveCost {
    /// A file that was not measured yet. It counts as expensive.
    const UNKNOWN: Self = Self {
        overlap: u64::MAX,
        costs: LeastCosts([NO_COST - 1, NO_COST, NO_COST, NO_COST]),
    };

    fn new(file: &FileMeta, overlap: u64, gain: u64) -> Self {
        let cost = (u128::from(overlap) << 20) / u128::from(gain.max(1));
        let cost = Cost::try_from(cost).unwrap_or(NO_COST).min(NO_COST - 1);
        let of = |belongs: bool| if belongs { cost } else { NO_COST };
        Self {
            overlap,
            costs: LeastCosts([
                cost,
                of(file.has_many_deletions()),
                of(!file.blobs.is_empty()),
                of(file.droppable_entries_min() > 0),
            ]),
        }
    }
}

/// The least cost of several files, by group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LeastCosts([Cost; GROUPS]);

impl Default for LeastCosts {
    fn default() -> Self {
        Self([NO_COST; GROUPS])
    }
}

impl Summed for MoveCost {
    type Sum = LeastCosts;

    fn sum(&self) -> LeastCosts {
        self.costs
    }

    fn join(left: &mut LeastCosts, right: &LeastCosts) {
        for (own, other) in left.0.iter_mut().zip(right.0) {
            *own = (*own).min(other);
        }
    }
}

/// The costs of moving the files of one level.
#[derive(Debug, Clone, Default)]
struct LevelCosts {
    /// The costs, in the order of the level's files.
    costs: SummedList<MoveCost>,
    /// Ranges whose files wait to be measured again.
    waiting: Vec<KeyRange>,
}

/// The costs of moving the files of all levels between L0 and the last.
#[derive(Debug, Clone, Default)]
pub(super) struct MoveCosts {
    levels: [LevelCosts; LEVELS_ABOVE_LAST],
}

impl MoveCosts {
    fn level(&mut self, level: u8) -> Option<&mut LevelCosts> {
        let at = usize::from(level).checked_sub(1)?;
        self.levels.get_mut(at)
    }

    /// A file was inserted at position `at` of `level`.
    pub(super) fn insert(&mut self, level: u8, at: usize) {
        if let Some(of) = self.level(level) {
            of.costs.insert(at, MoveCost::UNKNOWN);
        }
    }

    /// The file at position `at` of `level` was removed.
    pub(super) fn remove(&mut self, level: u8, at: usize) {
        if let Some(of) = self.level(level) {
            of.costs.remove(at);
        }
    }
}

impl Version {
    /// Measures all files.
    pub(super) fn measure_all_moves(&mut self) {
        for level in 1..LAST_LEVEL as u8 {
            let files = &self.levels[usize::from(level) - 1].files;
            if files.is_empty() {
                continue;
            }
            let overlaps = overlaps(files, &self.levels[usize::from(level)].files);
            let costs = files.iter().zip(overlaps).map(|(file, overlap)| {
                MoveCost::new(file, overlap, file.size + self.reclaimable_by(file))
            });
            let costs = costs.collect();
            self.move_costs.levels[usize::from(level) - 1] = LevelCosts {
                costs,
                waiting: Vec::new(),
            };
        }
    }

    /// Measures the files whose costs an edit has changed, and some of the files that earlier edits
    /// have left to be measured. `gone` are the files that the edit has removed, `added` those that
    /// it has added, with their levels.
    pub(super) fn measure_moves(
        &mut self,
        gone: &[(u8, Arc<FileHandle>)],
        added: &[(u8, Arc<FileHandle>)],
    ) {
        for level in 1..LAST_LEVEL as u8 {
            for (_, file) in added.iter().filter(|(of, _)| *of == level) {
                if let Some(at) = self.levels[usize::from(level) - 1].position(file.meta()) {
                    self.measure_move(level, at);
                }
            }
            let below = gone.iter().chain(added).filter(|(of, _)| *of == level + 1);
            let mut ranges: Vec<KeyRange> = below.map(|(_, file)| file.range()).collect();
            let mut left = MEASURED_MAX * (1 + ranges.len());
            ranges.append(&mut self.move_costs.levels[usize::from(level) - 1].waiting);
            if ranges.is_empty() {
                continue;
            }
            let mut waiting: Vec<KeyRange> = Vec::new();
            for range in joined(ranges) {
                let run = &self.levels[usize::from(level) - 1];
                let upper = Bound::Included(range.largest.as_slice());
                let above = run.overlapping(&range.smallest, upper).positions();
                let end = above.end.min(above.start + left);
                if end < above.end {
                    waiting.push(KeyRange {
                        smallest: run.files[end].smallest.clone(),
                        largest: range.largest,
                    });
                }
                left -= end - above.start;
                (above.start..end).for_each(|at| self.measure_move(level, at));
            }
            if waiting.len() > WAITING_MAX {
                let mut all = waiting.swap_remove(0);
                waiting.iter().for_each(|range| all.extend(range));
                waiting = vec![all];
            }
            self.move_costs.levels[usize::from(level) - 1].waiting = waiting;
        }
    }

    /// Bytes of the files in the level below `level` that share a key with `file`.
    fn overlap_below(&self, level: u8, file: &FileMeta) -> u64 {
        let upper = Bound::Included(file.largest.as_slice());
        let below = &self.levels[usize::from(level)];
        below.overlapping(&file.smallest, upper).sum().size
    }

    fn measure_move(&mut self, level: u8, at: usize) {
        let file = Arc::clone(&self.levels[usize::from(level) - 1].files[at]);
        let overlap = self.overlap_below(level, &file);
        let cost = MoveCost::new(&file, overlap, file.size + self.reclaimable_by(&file));
        let costs = &mut self.move_costs.levels[usize::from(level) - 1].costs;
        if costs.get(at) != Some(&cost) {
            costs.replace(at, cost);
        }
    }

    /// Returns the positions of at most `most` files of `level`, those that are cheapest to move
    /// down, the cheapest first. Only files that belong to the [`MoveGroup`] `group` and whose
    /// positions lie in `parts` are considered; the ranges in `parts` must not overlap. `level`
    /// must be neither L0 nor the last level.
    pub fn cheapest_moves(
        &self,
        level: u8,
        parts: &[Range<usize>],
        group: MoveGroup,
        most: usize,
    ) -> Vec<usize> {
        let costs = &self.move_costs.levels[usize::from(level) - 1].costs;
        let least = |part: &Range<usize>| costs.range(part.clone()).sum().0[group as usize];
        let entry = |part: Range<usize>| {
            let cost = least(&part);
            (cost < NO_COST).then_some(Reverse((cost, part.start, part.end)))
        };
        let mut heap: BinaryHeap<_> = parts.iter().cloned().filter_map(entry).collect();
        let mut found = Vec::new();
        while found.len() < most
            && let Some(Reverse((cost, start, end))) = heap.pop()
        {
            let at = costs.position_from(start, |sum| sum.0[group as usize] <= cost);
            let Some(at) = at.filter(|at| *at < end) else {
                continue;
            };
            found.push(at);
            heap.extend([start..at, at + 1..end].into_iter().filter_map(entry));
        }
        found
    }

    /// Describes in words how the stored costs differ from those that the files have; `None` if
    /// they do not differ.
    pub(super) fn move_costs_difference(&self) -> Option<String> {
        (1..LAST_LEVEL as u8).find_map(|level| {
            let LevelCosts { costs, waiting } = &self.move_costs.levels[usize::from(level) - 1];
            let files = &self.levels[usize::from(level) - 1].files;
            if files.len() != costs.len() {
                return Some(format!("L{level}: it has not one cost for each file"));
            }
            let wrong = files.iter().zip(costs).find(|(file, cost)| {
                let waits = |range: &KeyRange| file.overlaps(&range.smallest, &range.largest);
                let right = MoveCost::new(file, cost.overlap, 1).costs.0;
                let groups = right.iter().zip(cost.costs.0);
                let misplaced = groups
                    .into_iter()
                    .any(|(a, b)| (*a == NO_COST) != (b == NO_COST));
                let overlap = self.overlap_below(level, file);
                (misplaced || cost.overlap != overlap) && !waiting.iter().any(waits)
            });
            wrong.map(|(file, cost)| {
                let (id, overlap) = (file.file_id, cost.overlap);
                format!("L{level}: file {id} does not overlap {overlap} bytes below")
            })
        })
    }
}

/// `ranges` in order, with those joined that share a key.
fn joined(mut ranges: Vec<KeyRange>) -> Vec<KeyRange> {
    ranges.sort_by(|a, b| a.smallest.cmp(&b.smallest));
    let mut all: Vec<KeyRange> = Vec::new();
    for range in ranges {
        match all.last_mut() {
            Some(last) if range.smallest <= last.largest => last.extend(&range),
            _ => all.push(range),
        }
    }
    all
}

/// For each file of `upper`, the bytes of the files of `lower` that share a key with it.
fn overlaps(upper: &FileList, lower: &FileList) -> Vec<u64> {
    let lower: Vec<&Arc<FileHandle>> = lower.iter().collect();
    let mut before = vec![0];
    for file in &lower {
        before.push(before[before.len() - 1] + file.sums().size);
    }
    let (mut from, mut to) = (0, 0);
    let overlap = |file: &Arc<FileHandle>| {
        while from < lower.len() && lower[from].largest < file.smallest {
            from += 1;
        }
        to = to.max(from);
        while to < lower.len() && lower[to].smallest <= file.largest {
            to += 1;
        }
        before[to] - before[from]
    };
    upper.iter().map(overlap).collect()
}

#[cfg(test)]
mod tests;
