//! Jobs on L0.

use super::{Picking, TOMBSTONE_SHARE, compact_job, move_job, share_over};
use crate::base::range::KeyRange;
use crate::compaction::plan::{Input, Job, JobReason};
use crate::compaction::shape::Shape;
use crate::version::{FileHandle, FileMeta, Version};
use std::sync::Arc;

/// A group whose files, with what they overlap below, exceed this many target sizes goes in parts.
/// Small jobs make room often, run side by side, and hold their space for a short time.
const L0_JOB_SIZE_MAX: u64 = 4;

/// L0 may have so many times more runs than are due by depth.
const RUNS_PER_DEPTH: f64 = 4.0;

/// L0 files that hang together by overlaps.
struct Group<'a> {
    range: KeyRange,
    /// Position of the run in the version, and the file.
    files: Vec<(usize, &'a Arc<FileHandle>)>,
}

impl<'a> Group<'a> {
    /// The group of these files, which are not none.
    fn of(files: Vec<(usize, &'a Arc<FileHandle>)>) -> Self {
        let mut range = files[0].1.range();
        files.iter().for_each(|(_, f)| range.extend(&f.range()));
        Self { range, files }
    }

    /// Most runs that a read of one key has to ask.
    fn depth(&self) -> usize {
        depth(self.files.iter().map(|(_, f)| &**f.meta()))
    }

    /// Whether it is mostly deletions.
    fn is_dense(&self) -> bool {
        let sum = |of: fn(&FileMeta) -> u64| self.files.iter().map(|(_, f)| of(f)).sum();
        share_over(sum(|f| f.deletes), sum(|f| f.entries), TOMBSTONE_SHARE)
    }

    fn size(&self) -> u64 {
        self.files.iter().map(|(_, f)| f.size).sum()
    }
}

/// The largest number of files that share a key.
fn depth<'a>(files: impl Iterator<Item = &'a FileMeta>) -> usize {
    // A file that ends where another begins overlaps it: starts come first.
    let mut edges: Vec<(&[u8], bool)> = files
        .flat_map(|f| [(f.smallest.as_slice(), false), (f.largest.as_slice(), true)])
        .collect();
    edges.sort_unstable();
    let (mut open, mut deepest) = (0, 0);
    for (_, ends) in edges {
        open = if ends { open - 1 } else { open + 1 };
        deepest = deepest.max(open);
    }
    deepest
}

/// Most runs of L0 that a read of one key has to ask.
pub fn l0_depth(version: &Version) -> usize {
    let files = version.l0.iter().flat_map(|run| &run.files);
    depth(files.map(|f| &**f.meta()))
}

impl Picking<'_> {
    /// A job that takes files of L0 down: where they lie at least `depth_min` deep, where they
    /// overlap nothing, and the oldest ones if there are far too many runs.
    ///
    /// Files fall into groups that share no key. Groups of one file that overlap nothing below move
    /// as they are, all in one job (append-only tables sink without being rewritten); otherwise the
    /// deepest group that need not wait is merged into the level below. Of a group too large for one
    /// job, a tall rectangle goes: see [`Self::rectangle`].
    pub(super) fn sink_l0(
        &self,
        shape: &Shape,
        reason: JobReason,
        depth_min: usize,
        wanted: impl Fn(&FileMeta) -> bool,
    ) -> Option<Job> {
        let output = self.below(shape, 0);
        let groups = self.groups();
        let mut moved: Vec<Arc<FileHandle>> = Vec::new();
        let mut merged: Vec<&Group<'_>> = Vec::new();
        for group in &groups {
            let alone = group.files.len() == 1 && self.overlap(output, &group.range).is_empty();
            let file = group.files[0].1;
            if alone && self.movable(std::slice::from_ref(file), output) {
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
            >= RUNS_PER_DEPTH * self.options.l0_compaction_runs.max(1) as f64;
        let oldest = self.version.l0.len().saturating_sub(1);
        let mut ranked: Vec<(usize, &Group<'_>)> = merged
            .into_iter()
            .filter(|group| group.files.iter().any(|(_, f)| wanted(f)))
            .map(|group| {
                let old = crowded && group.files.iter().any(|(run, _)| *run == oldest);
                let alone = || self.overlap(output, &group.range).is_empty();
                let due = match group.depth() {
                    _ if old => usize::MAX,
                    // Nothing is gained by waiting; or what is deleted in order, and so never deep,
                    // would stay in the levels below.
                    depth if (depth == 1 && alone()) || group.is_dense() => depth.max(depth_min),
                    depth => depth,
                };
                (due, group)
            })
            .filter(|(depth, _)| *depth >= depth_min)
            .collect();
        ranked.sort_by_key(|(depth, _)| std::cmp::Reverse(*depth));
        ranked.into_iter().find_map(|(_, group)| {
            let whole = |group: &Group<'_>| {
                let lower = self.overlap(output, &group.range);
                self.unless_busy(compact_job(inputs(group), output, lower, reason))
            };
            let lower: u64 = self
                .overlap(output, &group.range)
                .iter()
                .map(|f| f.size)
                .sum();
            if group.size() + lower <= L0_JOB_SIZE_MAX * self.options.target_file_size {
                return whole(group);
            }
            let mut parts: Vec<Group<'_>> = Vec::new();
            for &(run, file) in &group.files {
                // From the oldest file of a place upwards.
                let bottom = !group
                    .files
                    .iter()
                    .any(|(other, f)| *other > run && f.overlaps(&file.smallest, &file.largest));
                if bottom {
                    parts.push(self.rectangle(group, &file.range()));
                }
            }
            parts.retain(|part| part.files.iter().any(|(_, f)| wanted(f)));
            parts.sort_by_key(|part| (std::cmp::Reverse(part.depth()), part.size()));
            parts.iter().find_map(whole)
        })
    }

    /// The files of `group` over `range`, and for each of them everything older that it overlaps:
    /// nothing older than an output may stay above it. What is newer may stay. The newest runs are
    /// left out as long as the rest is too large for one job.
    fn rectangle<'a>(&self, group: &Group<'a>, range: &KeyRange) -> Group<'a> {
        let room = L0_JOB_SIZE_MAX * self.options.target_file_size;
        let mut newest = 0;
        loop {
            let mut files: Vec<(usize, &Arc<FileHandle>)> = Vec::new();
            for &(run, file) in &group.files {
                if run >= newest && file.overlaps(&range.smallest, &range.largest) {
                    files.push((run, file));
                }
            }
            let mut at = 0;
            while at < files.len() {
                let (run, file) = files[at];
                for &(other, f) in &group.files {
                    let older = other > run && f.overlaps(&file.smallest, &file.largest);
                    if older && !files.iter().any(|(_, known)| known.file_id == f.file_id) {
                        files.push((other, f));
                    }
                }
                at += 1;
            }
            let part = Group::of(files);
            if part.size() <= room || part.depth() <= self.options.l0_compaction_runs.max(1) {
                return part;
            }
            newest += 1;
        }
    }

    /// The groups of files that hang together.
    fn groups(&self) -> Vec<Group<'_>> {
        let runs = self.version.l0.iter().enumerate();
        let mut files: Vec<(usize, &Arc<FileHandle>)> = runs
            .flat_map(|(i, run)| run.files.iter().map(move |f| (i, f)))
            .collect();
        files.sort_by(|a, b| a.1.smallest.cmp(&b.1.smallest));
        let mut groups: Vec<Group<'_>> = Vec::new();
        for (run, file) in files {
            match groups.last_mut() {
                Some(group) if file.smallest <= group.range.largest => {
                    group.range.extend(&file.range());
                    group.files.push((run, file));
                }
                _ => groups.push(Group::of(vec![(run, file)])),
            }
        }
        groups
    }
}

/// The group's files by run, newest run first.
fn inputs(group: &Group<'_>) -> Vec<Input> {
    let mut files = group.files.clone();
    files.sort_by(|a, b| (a.0, &a.1.smallest).cmp(&(b.0, &b.1.smallest)));
    files
        .chunk_by(|a, b| a.0 == b.0)
        .map(|run| Input {
            level: 0,
            files: run.iter().map(|(_, f)| Arc::clone(f)).collect(),
        })
        .collect()
}
