//! Jobs on L0.

use super::{JOB_SIZE_MAX, Picking, compact_job, move_job};
use crate::base::range::KeyRange;
use crate::compaction::plan::{Input, Job, JobReason};
use crate::compaction::shape::Shape;
use crate::version::FileHandle;
use std::sync::Arc;

/// L0 files that hang together by overlaps.
struct Group<'a> {
    range: KeyRange,
    /// Position of the run in the version, and the file.
    files: Vec<(usize, &'a Arc<FileHandle>)>,
}

impl Group<'_> {
    /// Runs that a read of a key in the range may have to ask.
    fn depth(&self) -> usize {
        let mut runs: Vec<usize> = self.files.iter().map(|(run, _)| *run).collect();
        runs.sort_unstable();
        runs.dedup();
        runs.len()
    }
}

impl Picking<'_> {
    /// A job that takes files of L0 down.
    ///
    /// It considers the oldest runs, as many as fit a job: newer ones stay above whatever is done
    /// to these. Their files fall into groups that share no key. Groups of one file that overlap
    /// nothing below move as they are, all in one job (append-only tables sink without being
    /// rewritten); otherwise the deepest group is merged into the level below.
    pub(super) fn sink_l0(&self, shape: &Shape, reason: JobReason) -> Option<Job> {
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
        merged.sort_by_key(|group| std::cmp::Reverse(group.depth()));
        merged.into_iter().find_map(|group| {
            let lower = self.overlap(output, &group.range);
            self.unless_busy(compact_job(inputs(group), output, lower, reason))
        })
    }

    /// The groups of the oldest runs.
    fn groups(&self) -> Vec<Group<'_>> {
        let l0 = &self.version.l0;
        let room = JOB_SIZE_MAX * self.options.target_file_size;
        let mut size = 0;
        let mut from = l0.len();
        while from > 0 {
            size += l0[from - 1].size();
            let taken = l0.len() - from;
            if size > room && taken >= self.options.l0_compaction_runs.max(1) {
                break;
            }
            from -= 1;
        }
        let runs = l0.iter().enumerate().skip(from);
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
                _ => groups.push(Group {
                    range: file.range(),
                    files: vec![(run, file)],
                }),
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
