//! Picks compactions of L0.

use super::l0_overlap::{FileInRun, L0Overlap, L0Selection};
use super::{PickerContext, compact_job, move_job};
use crate::base::key_range::KeyRange;
use crate::compaction::level_targets::LevelTargets;
use crate::compaction::running_jobs::{Job, JobReason};
use crate::version::{FileHandle, FileMeta};
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
        let groups = self.groups();
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
        if !moved.is_empty() {
            return Some(move_job(0, moved, output, reason));
        }
        let crowded = self.version.l0.len() as f64
            >= CROWDED_FACTOR * self.options.l0_compaction_runs.max(1) as f64;
        let oldest = self.version.l0.len().saturating_sub(1);
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

    /// The files of L0 in groups, ascending by key. Files that overlap are in the same group, and
    /// so are files that other files connect in a chain of overlaps.
    fn groups(&self) -> Vec<L0Overlap<'_>> {
        let runs = self.version.l0.iter().enumerate();
        let mut files: Vec<FileInRun<'_>> = runs
            .flat_map(|(i, run)| run.files.iter().map(move |f| (i, f)))
            .collect();
        files.sort_by(|a, b| a.1.smallest.cmp(&b.1.smallest));
        let mut groups: Vec<(KeyRange, Vec<FileInRun<'_>>)> = Vec::new();
        for (run, file) in files {
            match groups.last_mut() {
                Some((range, of)) if file.smallest <= range.largest => {
                    range.extend(&file.range());
                    of.push((run, file));
                }
                _ => groups.push((file.range(), vec![(run, file)])),
            }
        }
        groups
            .into_iter()
            .map(|(_, of)| L0Overlap::of(of))
            .collect()
    }
}
