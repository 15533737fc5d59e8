//! Picks compactions of L0.

use super::{PickerContext, compact_job, move_job};
use crate::compaction::held_files::HeldFiles;
use crate::compaction::l0_overlap::{L0Overlap, L0Selection};
use crate::compaction::level_targets::LevelTargets;
use crate::compaction::running_jobs::{Job, JobKind, JobReason};
use crate::version::{FileHandle, FileMeta, Run};
use std::cmp::Reverse;
use std::sync::Arc;

/// L0 is crowded when it has at least this many times `l0_compaction_runs` runs.
const CROWDED_FACTOR: f64 = 4.0;

impl PickerContext<'_> {
    /// A job that compacts files of L0 into the base level. A group of files is a candidate if some
    /// key lies in at least `depth_min` runs of it, if its files overlap neither each other nor a
    /// file of the base level, if it has many deletions ([`L0Overlap::has_many_deletions`]), or,
    /// while L0 is crowded, if it has a file of the oldest run. A group is merged only if `wanted`
    /// accepts one of its files.
    ///
    /// The files of L0 fall into groups that share no key with each other. If a group is a single
    /// file that overlaps nothing in the output level, the file is moved unchanged; one job moves
    /// all such files. So append-only tables reach the deeper levels without being rewritten. If
    /// there are none, the deepest group that conflicts with no running job is merged into the
    /// level below. If a group is too large for one job, the part of it that spans the most runs is
    /// merged: see [`L0Overlap::part_over`].
    pub(super) fn sink_l0(
        &self,
        level_targets: &LevelTargets,
        reason: JobReason,
        depth_min: usize,
        wanted: impl Fn(&FileMeta) -> bool,
    ) -> Option<Job> {
        let output = self.below(level_targets, 0);
        let held = HeldFiles::of(self.version, output);
        let groups = self.groups(&held);
        let mut moved: Vec<Arc<FileHandle>> = Vec::new();
        let mut merged: Vec<&L0Overlap<'_>> = Vec::new();
        for group in &groups {
            let alone = || self.overlap(output, &group.range).is_empty();
            if let Some(file) = group.only().filter(|_| alone())
                && self.movable(std::slice::from_ref(file), output)
            {
                let job = move_job(0, vec![file.clone()], output, reason);
                moved.extend(self.unless_busy(job).map(|_| file.clone()));
            } else {
                merged.push(group);
            }
        }
        let together = move_job(0, moved, output, reason);
        if together.files().next().is_some() && !self.running.is_given_up(&together) {
            return Some(together);
        }
        let runs = self.l0_sizes(&held).len();
        let crowded = runs as f64 >= CROWDED_FACTOR * self.options.l0_compaction_runs.max(1) as f64;
        let oldest = groups.iter().map(L0Overlap::oldest).max().unwrap_or(0);
        let mut ranked: Vec<(usize, &L0Overlap<'_>)> = merged
            .into_iter()
            .filter(|group| group.files().any(|(_, f)| wanted(f)))
            .map(|group| {
                let old = crowded && group.reaches(oldest);
                let alone = || self.overlap(output, &group.range).is_empty();
                let due = match group.depth() {
                    _ if old => usize::MAX,
                    // Two kinds of groups of overlapping L0 files are compacted at once, even if
                    // they are less than `depth_min` runs deep. A file that overlaps neither
                    // another file of L0 nor one of the base level gains nothing by waiting. A
                    // group of mostly deletions may never get deep, if rows are deleted in key
                    // order, and until it is merged the deleted rows stay in the levels below.
                    depth if (depth == 1 && alone()) || group.has_many_deletions() => {
                        depth.max(depth_min)
                    }
                    depth => depth,
                };
                (due, group)
            })
            .filter(|(depth, _)| *depth >= depth_min)
            .collect();
        ranked.sort_by_key(|(depth, _)| Reverse(*depth));
        let room = level_targets.job_size(self.options.target_file_size);
        let due = self.options.l0_compaction_runs.max(1);
        ranked.into_iter().find_map(|(_, group)| {
            let whole = |group: &L0Overlap<'_>| {
                let lower = self.overlap(output, &group.range);
                self.unless_busy(compact_job(group.inputs(), output, lower, reason))
            };
            let lower = self.overlap(output, &group.range).sum().size;
            if group.size() + lower <= room {
                return whole(group);
            }
            let mut parts: Vec<L0Selection> = group
                .bottoms()
                .map(|bottom| group.part_over(&bottom.range(), room, due))
                .collect();
            parts.sort_by_key(|part| (Reverse(part.runs()), part.size));
            parts.iter().find_map(|part| {
                let part = group.take(part);
                let any = part.files().any(|(_, f)| wanted(f));
                any.then(|| whole(&part)).flatten()
            })
        })
    }

    /// A job that merges runs of L0 that must stay above a damaged file into one run, the newest of
    /// them. So a read asks few runs, however much is written over the damage.
    pub(super) fn merge_held(
        &self,
        level_targets: &LevelTargets,
        held: &HeldFiles<'_>,
    ) -> Option<Job> {
        let room = level_targets.job_size(self.options.target_file_size);
        let due = self.options.l0_compaction_runs.max(2);
        held.merges(due).find_map(|group| {
            if group.size() <= room {
                return self.merge_in_l0(&group);
            }
            let parts = group.rising_parts(room, due);
            { parts.iter() }.find_map(|part| self.merge_in_l0(&group.take(part)))
        })
    }

    /// Whether the files of L0 that are not held lie in more runs than held files that are to be
    /// merged. If so, their compaction is more urgent.
    pub(super) fn is_free_l0_deeper(&self, held: &HeldFiles<'_>) -> bool {
        let merges = held.merges(self.options.l0_compaction_runs);
        let deepest = merges.map(|group| group.runs()).max();
        deepest.is_some_and(|runs| self.l0_sizes(held).len() > runs)
    }

    /// A job that divides held files at the edges of damaged files.
    pub(super) fn split_held(&self, held: &HeldFiles<'_>) -> Option<Job> {
        let groups = held.across_edges(self.version);
        groups.iter().find_map(|group| self.merge_in_l0(group))
    }

    /// The job that merges the files of `group` into the newest of their runs.
    fn merge_in_l0(&self, group: &L0Overlap<'_>) -> Option<Job> {
        self.unless_busy(Job {
            inputs: group.inputs(),
            output_level: 0,
            output_run: self.version.l0[group.newest()].number,
            kind: JobKind::Compact,
            reason: JobReason::Damage,
        })
    }

    /// Sizes in bytes of the runs of L0, without held files and without the runs that have no other
    /// files.
    pub(super) fn l0_sizes(&self, held: &HeldFiles<'_>) -> Vec<u64> {
        let runs = self.version.l0.iter();
        if held.is_empty() {
            return runs.map(|run| run.size()).collect();
        }
        let size = |run: &Run| {
            let free = run.files.iter().filter(|file| !held.has(file));
            free.map(|file| file.size).sum()
        };
        runs.map(|run| size(run)).filter(|size| *size > 0).collect()
    }

    /// The files of L0 that are not held, in groups ([`L0Overlap::chains`]).
    fn groups(&self, held: &HeldFiles<'_>) -> Vec<L0Overlap<'_>> {
        let runs = self.version.l0.iter().enumerate();
        let files = runs
            .flat_map(|(i, run)| run.files.iter().map(move |f| (i, f)))
            .filter(|(_, file)| !held.has(file));
        L0Overlap::chains(files.collect())
    }
}
