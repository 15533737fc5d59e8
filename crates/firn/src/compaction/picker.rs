//! Chooses the next compaction. Pure: it does no I/O and depends on its input alone.
//!
//! The order of precedence: remove files of dropped indexes; merge runs of L0 that must stay above
//! a damaged file, unless the rest of L0 has more runs; compact L0 or a level over its target, the
//! fullest relative to the level below first; compact ranges that scans have reported; compact
//! files above the last level, if they refer to a large share of all blobs, so that blobs of old
//! versions become garbage; rewrite garbage (deletions, old versions, remains of dropped indexes);
//! when idle, move everything into the last level.
//!
//! The sequence of jobs ends if no data arrives: each job moves data strictly down, or rewrites a
//! file of the last level for which [`changes_at_rest`] is true, and for its output it is false.

mod candidates;
mod key_ranges;
mod l0;

use super::drop_rule::{RetiredIndexes, droppable};
use super::held_files::{HeldFiles, crosses};
use super::level_targets::LevelTargets;
use super::running_jobs::{Job, JobInput, JobKind, JobReason, RunningJobs, Zone};
use crate::base::key_range::KeyRange;
use crate::base::{IndexId, Seqno, options::Options};
use crate::version::{
    DEAD_SHARES, FileHandle, FileList, FileMeta, FileSpan, LAST_LEVEL, LEVELS, Version, share_over,
};
use candidates::Wanted;
use std::ops::Bound;
use std::sync::Arc;

pub use key_ranges::{RestOrder, RestlessFiles, is_at_rest, pick_within, restless_files};

const LAST: u8 = LAST_LEVEL as u8;

/// A moved file may overlap at most this many target file sizes in the level below its new one.
/// If it overlapped more, the next job on it would rewrite much more data than it moves.
const MOVE_OVERLAP_MAX: u64 = 20;

/// A job that rewrites neighbouring files in the last level takes files of up to this many target
/// file sizes together.
const JOB_SIZE_MAX: u64 = 16;

/// If the base level is exactly at its target, L0 is compacted before the base level only once L0
/// is this many times deeper than `l0_compaction_runs`. So L0 grows deep before the base level
/// exceeds its target. Both take disk space, but for the same space a deep L0 costs fewer writes.
const L0_DEPTH: f64 = 3.0;

/// A file of the last level is rewritten if more than this share of its entries is garbage.
const GARBAGE: DeadShare = DeadShare(2);

/// When the tree moves towards the resting state, a file of the last level is rewritten if more
/// than this share of its entries is garbage under [`RestGoal::WhereItPays`], or if any entry is
/// garbage ([`ANY_GARBAGE`]) under [`RestGoal::Complete`].
const GARBAGE_AT_REST: DeadShare = DeadShare(1);
const ANY_GARBAGE: DeadShare = DeadShare(0);

/// A position in [`DEAD_SHARES`].
#[derive(Clone, Copy, PartialEq, Eq)]
struct DeadShare(usize);

impl DeadShare {
    fn percent(self) -> u64 {
        DEAD_SHARES[self.0]
    }
}

/// Files above the last level are compacted down when they refer to more than this share (percent)
/// of all blob bytes.
const BLOB_SHARE: u64 = 8;

/// The picker's input.
pub struct PickerContext<'a> {
    /// The tree.
    pub version: &'a Version,
    /// Sizes and thresholds.
    pub options: &'a Options,
    /// The running jobs.
    pub running: &'a RunningJobs,
    /// Dropped indexes.
    pub retired: &'a RetiredIndexes,
    /// The oldest seqno at which a read may happen ([`super::Snapshots::oldest`]).
    pub oldest_read: Seqno,
    /// Ranges in which scans have skipped too many deletions or old versions. The caller removes a
    /// range once no job for it is left, and adds it again only after the oldest snapshot has
    /// moved.
    pub reported: &'a [KeyRange],
    /// How far to go towards the resting state.
    pub rest: RestGoal,
}

/// How far the picker goes towards the resting state, in which the last level holds everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestGoal {
    /// Not at all: writers are active.
    No,
    /// Only jobs that move or free a minimum share of their inputs. The picker gets this goal when
    /// nothing was written for a while.
    WhereItPays,
    /// To the end.
    Complete,
}

/// Smallest share of its inputs, in percent, that a job towards the resting state must move or free
/// under [`RestGoal::WhereItPays`]. So the tree shrinks to within about this share of its smallest
/// possible size, and a few entries written now and then do not make jobs rewrite the last level.
const REST_SHARE: u64 = DEAD_SHARES[1];

/// The next job, if one is due and no running job conflicts with it.
pub fn pick(p: &PickerContext<'_>) -> Option<Job> {
    let level_targets = LevelTargets::of(p.version, p.options.base_level_size);
    let held = HeldFiles::of(p.version, level_targets.base);
    let by_size = || p.by_size(&level_targets, &held);
    let merge_held = || p.merge_held(&level_targets, &held);
    p.drop_files()
        .or_else(|| match p.is_free_l0_deeper(&held) {
            true => by_size().or_else(merge_held),
            false => merge_held().or_else(by_size),
        })
        .or_else(|| p.by_reported(&level_targets))
        .or_else(|| p.by_blobs(&level_targets, &held))
        .or_else(|| p.by_garbage(&level_targets))
        .or_else(|| match p.rest {
            RestGoal::No => None,
            _ => p.by_idleness(&level_targets, &held),
        })
}

/// Whether a rewrite of this file of the last level, without other inputs, would improve it. For
/// the output of such a rewrite the answer is false.
pub fn changes_at_rest(file: &FileMeta, retired: &RetiredIndexes, oldest_read: Seqno) -> bool {
    !file.at_rest || garbage(file, retired, oldest_read) > 0
}

/// Entries of a file of the last level that a rewrite certainly drops.
fn garbage(file: &FileMeta, retired: &RetiredIndexes, oldest_read: Seqno) -> u64 {
    // If the file has a version newer than the oldest read, a snapshot may need some of its old
    // versions, and the metadata do not tell which. Then count no old version as garbage.
    let dead = file.droppable_entries_min();
    let dead = if file.max_seqno <= oldest_read {
        dead
    } else {
        0
    };
    dead.max(retired_entries(file, retired, oldest_read))
}

fn retired_entries(file: &FileMeta, retired: &RetiredIndexes, oldest_read: Seqno) -> u64 {
    if retired.is_empty() {
        return 0;
    }
    let of = file.per_index.iter();
    let of = of.filter(|s| droppable(retired, s.index, oldest_read));
    of.map(|s| s.entries).sum()
}

impl PickerContext<'_> {
    /// Whether neither a running job nor the quarantine has the file.
    fn is_free(&self, file: &FileMeta) -> bool {
        !self.running.holds(file.file_id) && !self.version.in_quarantine(file.file_id)
    }

    /// Whether a job in `zone` would move data past a file in quarantine below L0, or write data
    /// around it. It may take neighbours of the file away, and rewrite what lies below the file.
    /// [`HeldFiles`] has the rule for files in quarantine in L0.
    fn is_damaged(&self, zone: &Zone) -> bool {
        let mut levels = match zone.top == zone.bottom {
            true => zone.top.max(1)..=zone.bottom,
            false => zone.top + 1..=zone.bottom,
        };
        let KeyRange { smallest, largest } = &zone.range;
        levels.any(|level| {
            let damaged = self.version.damaged_ranges(level);
            damaged.find(smallest, largest).is_some()
        })
    }

    fn unless_busy(&self, job: Job) -> Option<Job> {
        let pays =
            job.reason != JobReason::Idle || self.rest == RestGoal::Complete || self.pays(&job);
        let damaged = || job.zone().is_some_and(|zone| self.is_damaged(&zone));
        (pays && !self.running.conflicts(&job) && !damaged()).then_some(job)
    }

    /// Whether a job moves or frees at least [`REST_SHARE`] percent of its inputs. Jobs that
    /// rewrite nothing always pay.
    fn pays(&self, job: &Job) -> bool {
        let gain = |(level, file): (u8, &Arc<FileHandle>)| {
            if level < job.output_level || !file.at_rest {
                return file.size + self.version.reclaimable_by(file);
            }
            let dead = garbage(file, self.retired, self.oldest_read);
            let share = u128::from(file.size) * u128::from(dead) / u128::from(file.entries.max(1));
            share as u64
        };
        let gain: u64 = job.files().map(gain).sum();
        job.kind != JobKind::Compact || share_over(gain, job.size(), REST_SHARE)
    }

    /// One job for all files that hold only entries of dropped indexes.
    fn drop_files(&self) -> Option<Job> {
        if self.retired.is_empty() {
            return None;
        }
        let indexes = self.droppable_indexes();
        if indexes.is_empty() {
            return None;
        }
        let mut inputs: Vec<JobInput> = Vec::new();
        for level in 0..LEVELS as u8 {
            for run in self.version.runs(level) {
                let mut from = 0;
                while let Some(at) = self.next_of_indexes(&run.files, from, &indexes) {
                    from = at + 1;
                    let file = &run.files[at];
                    let dead =
                        retired_entries(file, self.retired, self.oldest_read) == file.entries;
                    // A damaged file is not read, so it goes, too.
                    if dead && !self.running.holds(file.file_id) {
                        inputs.push(JobInput {
                            level,
                            files: vec![file.clone()],
                        });
                    }
                }
            }
        }
        let job = Job {
            inputs,
            output_level: LAST,
            output_run: 0,
            kind: JobKind::DropFiles,
            reason: JobReason::Drop,
        };
        // Removing dead files disturbs no other job, so key ranges of running jobs do not matter.
        let due = !job.inputs.is_empty() && !self.running.is_given_up(&job);
        due.then_some(job)
    }

    /// A job on L0, if it is deep enough, or on a level over its target. Of several such levels,
    /// prefers the one that is fullest relative to the level below it.
    ///
    /// Bytes that damaged files keep where they are do not count: no job can work them off.
    fn by_size(&self, level_targets: &LevelTargets, held: &HeldFiles<'_>) -> Option<Job> {
        // Subtract from each level the inputs of running jobs, but only those that are still in the
        // tree: a job counts as running for a moment after its edit was installed, and its inputs
        // have left the tree by then.
        let mut busy = [0_u64; LEVELS];
        let here = |(level, file): &(u8, &FileMeta)| self.version.has(*level, file);
        for (level, file) in self.running.files().filter(here) {
            busy[usize::from(level)] += file.size + self.version.reclaimable_by(file);
        }
        let size = |level: u8| {
            let (all, blocked) = (
                self.version.level_size(level),
                self.version.blocked(level).stored,
            );
            let movable = all.saturating_sub(blocked);
            let reclaimable = self.version.reclaimable(level);
            let reclaimable = match blocked {
                0 => reclaimable,
                // Assume that the blocked bytes have as many deletions as the others.
                _ => (reclaimable as f64 * movable as f64 / all as f64) as u64,
            };
            (movable + reclaimable).saturating_sub(busy[usize::from(level)])
        };
        let fill = |level: u8| match level {
            LAST => 1.0,
            _ => level_targets.fill(level, size(level)),
        };
        let sizes = self.l0_sizes(held);
        let l0_fill = sizes.len() as f64 / self.options.l0_compaction_runs.max(1) as f64;
        // The depth of L0 in whole runs: its bytes divided by those of its largest run. Do not
        // count runs: many runs of which only a few files are left do not make L0 urgent.
        let largest = sizes.iter().copied().max().unwrap_or(0).max(1);
        let depth = sizes.iter().sum::<u64>() as f64 / largest as f64;
        let score = depth / (L0_DEPTH * self.options.l0_compaction_runs.max(1) as f64);
        let mut scores = vec![(0, l0_fill, score / fill(level_targets.base).max(0.01))];
        for level in level_targets.base..LAST {
            let own = fill(level);
            scores.push((level, own, own / fill(level + 1).max(0.01)));
        }
        scores.retain(|(_, own, _)| *own >= 1.0);
        scores.sort_by(|a, b| b.2.total_cmp(&a.2));
        scores.into_iter().find_map(|(level, ..)| match level {
            0 => {
                let due = self.options.l0_compaction_runs.max(1);
                self.sink_l0(level_targets, JobReason::Size, due, |_| true)
            }
            level => self.sink(level_targets, level, JobReason::Size, Wanted::All),
        })
    }

    fn by_reported(&self, level_targets: &LevelTargets) -> Option<Job> {
        self.reported.iter().find_map(|range| {
            let dead = Wanted::DeadIn(range);
            let in_l0 = self.version.l0.iter().any(|run| {
                let upper = Bound::Included(range.largest.as_slice());
                let mut files = run.overlapping(&range.smallest, upper).iter();
                files.any(|file| dead.accepts(file))
            });
            in_l0
                .then(|| {
                    let wanted = |file: &FileMeta| dead.accepts(file);
                    self.sink_l0(level_targets, JobReason::Reported, 0, wanted)
                })
                .flatten()
                .or_else(|| {
                    (1..LAST).find_map(|l| self.sink(level_targets, l, JobReason::Reported, dead))
                })
                .or_else(|| self.in_place(JobReason::Reported, ANY_GARBAGE, dead))
        })
    }

    /// If the upper levels refer to many blobs: a job that moves files with blob references to the
    /// next level. The blob of an old version becomes garbage only when a compaction merges the new
    /// version with the old one in the last level. Such jobs are cheap, since the tree is small
    /// beside its blobs.
    ///
    /// Blobs of files that damaged files keep above the last level do not count: no job can make
    /// them garbage.
    fn by_blobs(&self, level_targets: &LevelTargets, held: &HeldFiles<'_>) -> Option<Job> {
        let uses = self.version.blob_uses();
        if uses.is_empty() {
            return None;
        }
        let above = (0..LAST).map(|level| self.version.level_sums(level).blob_bytes);
        let blocked = (1..LAST).map(|level| self.version.blocked(level).blobs);
        let blocked = blocked.sum::<u128>() + held.blob_bytes(self.version);
        let above = above.sum::<u128>().saturating_sub(blocked);
        let above = u64::try_from(above).unwrap_or(u64::MAX);
        if above < self.options.blob_garbage_min || !share_over(above, uses.bytes(), BLOB_SHARE) {
            return None;
        }
        let wanted = |file: &FileMeta| !file.blobs.is_empty();
        self.sink_l0(level_targets, JobReason::Garbage, 0, wanted)
            .or_else(|| {
                (1..LAST)
                    .find_map(|l| self.sink(level_targets, l, JobReason::Garbage, Wanted::Blobs))
            })
    }

    fn by_garbage(&self, level_targets: &LevelTargets) -> Option<Job> {
        self.in_place(JobReason::Garbage, GARBAGE, Wanted::All)
            .or_else(|| {
                (1..LAST).find_map(|l| {
                    self.sink(level_targets, l, JobReason::Garbage, Wanted::ManyDeletions)
                })
            })
    }

    fn by_idleness(&self, level_targets: &LevelTargets, held: &HeldFiles<'_>) -> Option<Job> {
        let share = match self.rest {
            RestGoal::Complete => ANY_GARBAGE,
            RestGoal::No | RestGoal::WhereItPays => GARBAGE_AT_REST,
        };
        self.sink_l0(level_targets, JobReason::Idle, 0, |_| true)
            .or_else(|| self.split_held(held))
            .or_else(|| {
                (1..LAST).find_map(|l| self.sink(level_targets, l, JobReason::Idle, Wanted::All))
            })
            .or_else(|| self.in_place(JobReason::Idle, share, Wanted::All))
    }

    /// The level into which data of `level` is compacted. For L0 it is the base level; the levels
    /// between them are empty, so data of L0 is never placed below older data.
    fn below(&self, level_targets: &LevelTargets, level: u8) -> u8 {
        level_targets.base.max(level + 1)
    }

    /// A job that compacts a file of `level`, which is neither L0 nor the last, into the level
    /// below. Of the candidates, takes the file for which the job rewrites the fewest bytes per
    /// byte that it moves or frees.
    fn sink(
        &self,
        level_targets: &LevelTargets,
        level: u8,
        reason: JobReason,
        wanted: Wanted<'_>,
    ) -> Option<Job> {
        let output = self.below(level_targets, level);
        let files = self.files(level);
        let mut seeds: Vec<(f64, usize)> = Vec::new();
        for i in self.candidates(level, output, wanted) {
            let file = &files[i];
            let overlap = self.overlap(output, &file.range()).sum().size;
            let gain = file.size + self.version.reclaimable_by(file);
            seeds.push((overlap as f64 / gain.max(1) as f64, i));
        }
        seeds.sort_by(|a, b| a.0.total_cmp(&b.0));
        seeds.into_iter().find_map(|(_, i)| {
            self.unless_busy(self.down(level_targets, level, output, files, i..i + 1, reason))
        })
    }

    /// The job that compacts the files at the positions `seed` in `files`, the files of `level`,
    /// into level `output`. It also takes files beside them in `level`, up to the size of a job, if
    /// their keys lie in the range of the files of `output` that the job rewrites anyway.
    fn down(
        &self,
        level_targets: &LevelTargets,
        level: u8,
        output: u8,
        files: &FileList,
        mut seed: std::ops::Range<usize>,
        reason: JobReason,
    ) -> Job {
        let seeds = files.range(seed.clone()).to_vec();
        let lower = self.overlap(output, &span(&seeds));
        if lower.is_empty() && self.movable(&seeds, output) {
            return move_job(level, seeds, output, reason);
        }
        if let (Some(first), Some(last)) = (lower.first(), lower.last()) {
            let mut size = lower.sum().size + files.range(seed.clone()).sum().size;
            let room = level_targets
                .job_size(self.options.target_file_size)
                .max(2 * size);
            let bounds = KeyRange {
                smallest: first.smallest.clone(),
                largest: last.largest.clone(),
            };
            let mut fits = |file: &FileMeta| {
                let fits = self.is_free(file)
                    && size + file.size <= room
                    && bounds.contains(&file.smallest)
                    && bounds.contains(&file.largest);
                size += if fits { file.size } else { 0 };
                fits
            };
            while seed.end < files.len() && fits(&files[seed.end]) {
                seed.end += 1;
            }
            while seed.start > 0 && fits(&files[seed.start - 1]) {
                seed.start -= 1;
            }
        }
        let upper = JobInput {
            level,
            files: files.range(seed).to_vec(),
        };
        compact_job(vec![upper], output, lower, reason)
    }

    /// Whether `files`, which must overlap nothing in `output`, may move there without being
    /// rewritten. A file across an edge of damage must be divided there.
    fn movable(&self, files: &[Arc<FileHandle>], output: u8) -> bool {
        let edges = self.version.edges(output);
        files.iter().all(|file| {
            if crosses(edges, file) || retired_entries(file, self.retired, self.oldest_read) > 0 {
                return false;
            }
            if output == LAST {
                return !changes_at_rest(file, self.retired, self.oldest_read);
            }
            let overlap = self.overlap(output + 1, &file.range()).sum().size;
            overlap <= MOVE_OVERLAP_MAX * self.options.target_file_size
        })
    }

    /// The first position from `from` on of a file of the last level that a rewrite may improve,
    /// see [`Version::improvable`], or that has entries of the dropped indexes `retired`.
    fn next_improvable(
        &self,
        from: usize,
        share: DeadShare,
        unrested: bool,
        retired: &[IndexId],
    ) -> Option<usize> {
        let improvable = (self.version).improvable(from, share.0, unrested, self.oldest_read);
        let retired = self.next_of_indexes(self.files(LAST), from, retired);
        improvable.into_iter().chain(retired).min()
    }

    /// A job that rewrites neighbouring files of the last level, each of which a rewrite would
    /// change. The first file must be worth a rewrite: more than `share` of its entries are
    /// garbage, or, unless `share` is [`GARBAGE`], it is not at rest. If `share` is
    /// [`GARBAGE_AT_REST`], every file of the job must be worth a rewrite.
    fn in_place(&self, reason: JobReason, share: DeadShare, wanted: Wanted<'_>) -> Option<Job> {
        let files = self.files(LAST);
        let changes = |f: &FileMeta| {
            self.is_free(f)
                && wanted.accepts(f)
                && changes_at_rest(f, self.retired, self.oldest_read)
        };
        let unrested = share != GARBAGE;
        let worth = |f: &FileMeta| {
            let dead = garbage(f, self.retired, self.oldest_read);
            let over = share_over(dead, f.entries, share.percent());
            changes(f) && (over || (unrested && !f.at_rest))
        };
        let goes_on = |f: &FileMeta| match share {
            GARBAGE_AT_REST => worth(f),
            _ => changes(f),
        };
        let retired = self.droppable_indexes();
        let room = JOB_SIZE_MAX * self.options.target_file_size;
        let next = |from: usize| self.next_improvable(from, share, unrested, &retired);
        let free = self.free_positions(LAST, LAST, wanted);
        free.into_iter().find_map(|part| {
            let mut from = part.start;
            while let Some(i) = next(from).filter(|i| *i < part.end) {
                from = i + 1;
                if !worth(&files[i]) {
                    continue;
                }
                let (mut size, mut end) = (files[i].size, i + 1);
                while end < part.end && size < room && goes_on(&files[end]) {
                    size += files[end].size;
                    end += 1;
                }
                let job = compact_job(Vec::new(), LAST, files.range(i..end), reason);
                if let Some(job) = self.unless_busy(job) {
                    return Some(job);
                }
            }
            None
        })
    }
}

fn span(files: &[Arc<FileHandle>]) -> KeyRange {
    KeyRange {
        smallest: files[0].smallest.clone(),
        largest: files[files.len() - 1].largest.clone(),
    }
}

fn move_job(level: u8, files: Vec<Arc<FileHandle>>, output: u8, reason: JobReason) -> Job {
    Job {
        inputs: vec![JobInput { level, files }],
        output_level: output,
        output_run: 0,
        kind: JobKind::Move,
        reason,
    }
}

fn compact_job(
    mut inputs: Vec<JobInput>,
    output: u8,
    lower: FileSpan<'_>,
    reason: JobReason,
) -> Job {
    if !lower.is_empty() {
        inputs.push(JobInput {
            level: output,
            files: lower.to_vec(),
        });
    }
    Job {
        inputs,
        output_level: output,
        output_run: 0,
        kind: JobKind::Compact,
        reason,
    }
}

#[cfg(test)]
mod tests;
