//! Descriptions of compactions, and the list of the running ones.

use crate::base::Error;
use crate::base::key_range::KeyRange;
use crate::version::{Edit, FileHandle, FileMeta};
use std::collections::HashMap;
use std::sync::Arc;

/// The input files of a job that belong to one run.
#[derive(Debug, Clone)]
pub struct JobInput {
    /// Level of the run.
    pub level: u8,
    /// The files, ascending by key.
    pub files: Vec<Arc<FileHandle>>,
}

/// How a job is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobKind {
    /// Merge the inputs into new files of the output level.
    Compact,
    /// Assign the files to the output level unchanged.
    Move,
    /// Remove the files, because all their entries belong to dropped indexes.
    DropFiles,
}

/// Why a job was picked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobReason {
    /// Too many L0 runs, or a level over its target.
    Size,
    /// Deletions, old versions, entries of dropped indexes or garbage blobs take too large a share.
    Garbage,
    /// A scan reported a range in which it skipped too many deletions or old versions.
    Reported,
    /// The engine is idle, and the job brings the tree closer to the state at rest.
    Idle,
    /// All entries of the files belong to dropped indexes.
    Drop,
    /// Many runs of L0 must stay above a damaged file, so they are merged with each other.
    Damage,
}

/// One compaction.
#[derive(Debug, Clone)]
pub struct Job {
    /// The inputs, ordered so that of two versions of a key the newer one is in the earlier input.
    pub inputs: Vec<JobInput>,
    /// Level that the job writes or moves its output to.
    pub output_level: u8,
    /// In L0 the number of the run that gets the output, which is the run of the first input; 0 in
    /// other levels.
    pub output_run: u64,
    /// How the job is done.
    pub kind: JobKind,
    /// Why the job was picked.
    pub reason: JobReason,
}

impl Job {
    /// All input files with their levels.
    pub fn files(&self) -> impl Iterator<Item = (u8, &Arc<FileHandle>)> {
        let inputs = self.inputs.iter();
        inputs.flat_map(|input| input.files.iter().map(move |f| (input.level, f)))
    }

    /// Sum of the sizes of the input files in bytes.
    pub fn size(&self) -> u64 {
        self.files().map(|(_, file)| file.size).sum()
    }

    /// Number of stored bytes that the job reads and writes again; 0 if it only moves or removes
    /// files.
    pub fn rewrites(&self) -> u64 {
        match self.kind {
            JobKind::Compact => self.size(),
            JobKind::Move | JobKind::DropFiles => 0,
        }
    }

    /// The edit that removes the inputs from the tree and adds `outputs` to the output level.
    pub fn edit(&self, outputs: Vec<FileMeta>) -> Edit {
        let added = outputs.into_iter();
        let added = added.map(|meta| (self.output_level, self.output_run, meta));
        Edit {
            removed: self.files().map(|(level, f)| (level, f.file_id)).collect(),
            added: added.collect(),
            ..Edit::default()
        }
    }

    /// The edit of a job that writes no file; `None` if the job is a [`JobKind::Compact`].
    pub fn edit_without_output(&self) -> Option<Edit> {
        match self.kind {
            JobKind::Compact => None,
            JobKind::DropFiles => Some(self.edit(Vec::new())),
            JobKind::Move => {
                let moved = self.files().map(|(_, f)| FileMeta::clone(f.meta()));
                Some(self.edit(moved.collect()))
            }
        }
    }

    /// The part of the tree that the job works on; `None` if it has no input.
    pub(super) fn zone(&self) -> Option<Zone> {
        let mut files = self.files();
        let (level, first) = files.next()?;
        let mut zone = Zone {
            range: first.range(),
            top: level.min(self.output_level),
            bottom: level.max(self.output_level),
        };
        for (level, file) in files {
            zone.range.extend(&file.range());
            zone.top = zone.top.min(level);
            zone.bottom = zone.bottom.max(level);
        }
        Some(zone)
    }
}

/// The part of the tree that a job works on: a key range in a range of levels.
#[derive(Debug, Clone)]
pub(super) struct Zone {
    pub(super) range: KeyRange,
    /// The first of the levels.
    pub(super) top: u8,
    /// The last of the levels.
    pub(super) bottom: u8,
}

impl Zone {
    /// Whether the two zones have a key and a level in common.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        let levels = self.top <= other.bottom && other.top <= self.bottom;
        levels && self.range.overlaps(&other.range)
    }
}

/// The list of the running jobs.
///
/// Two jobs may run at the same time if they share no input, and their zones have no key in common
/// or no level in common. This has three consequences. The outputs of two jobs never overlap in a
/// level. No job moves data below older data that another job is moving down. And if no level below
/// the output of a job has a key when the job starts, no level below has it until the job ends.
#[derive(Debug, Default)]
pub struct RunningJobs {
    jobs: Vec<(u64, Zone)>,
    /// The inputs of running jobs, by file id, with their levels. It has metadata instead of file
    /// handles, because a handle would keep a dropped file on disk.
    files: HashMap<u64, (u8, Arc<FileMeta>)>,
    next: u64,
    /// The jobs that have failed for a reason that does not pass by itself, by the ids of their
    /// inputs, ascending.
    failures: HashMap<Vec<u64>, JobFailures>,
    /// The present, see [`Self::set_time`], microseconds.
    now_us: u64,
}

/// How often a job has failed.
#[derive(Debug)]
struct JobFailures {
    times: u32,
    /// The picker does not choose the job before this time, microseconds.
    retry_at_us: u64,
    /// The last error.
    error: Error,
}

/// A job that has failed this often is given up for a time. Otherwise the picker would choose the
/// same job again and again, and no other one would run.
pub const ATTEMPTS_MAX: u32 = 3;

/// For how long a job is given up at first. The time doubles with each further failure, up to
/// [`RETRY_US_MAX`]. Microseconds.
const RETRY_US_MIN: u64 = 10_000_000;
const RETRY_US_MAX: u64 = 600_000_000;

impl JobFailures {
    fn is_given_up(&self) -> bool {
        self.times >= ATTEMPTS_MAX
    }
}

impl RunningJobs {
    /// Records that `job` begins. Returns the number of the running job, which the caller passes to
    /// [`Self::end`].
    pub fn begin(&mut self, job: &Job) -> u64 {
        self.next += 1;
        self.jobs.extend(job.zone().map(|zone| (self.next, zone)));
        self.files.extend(
            job.files()
                .map(|(level, f)| (f.file_id, (level, f.meta().clone()))),
        );
        self.next
    }

    /// Records that `job` has ended. Call it after the edit of the job was installed, or after the
    /// job was given up.
    pub fn end(&mut self, ticket: u64, job: &Job) {
        self.jobs.retain(|(running, _)| *running != ticket);
        job.files().for_each(|(_, f)| {
            self.files.remove(&f.file_id);
        });
    }

    /// Tells the time, microseconds. A job that was given up before is tried again when its time
    /// has come.
    pub fn set_time(&mut self, now_us: u64) {
        self.now_us = self.now_us.max(now_us);
    }

    /// Records that `job` has failed with `error` for a reason that does not pass by itself.
    /// Returns how often it has failed so far. From [`ATTEMPTS_MAX`] times on it is given up for a
    /// time. If an object store does not answer, that is at once: each attempt waits for it.
    pub fn failed(&mut self, job: &Job, error: &Error) -> u32 {
        let failures = self.failures.entry(inputs_of(job));
        let failures = failures.or_insert_with(|| JobFailures {
            times: 0,
            retry_at_us: 0,
            error: error.clone(),
        });
        failures.times += 1;
        if error.is_unreachable() {
            failures.times = failures.times.max(ATTEMPTS_MAX);
        }
        failures.error = error.clone();
        if let Some(before) = failures.times.checked_sub(ATTEMPTS_MAX) {
            let pause_us = RETRY_US_MIN << before.min(16);
            failures.retry_at_us = self.now_us + pause_us.min(RETRY_US_MAX);
        }
        failures.times
    }

    /// How often a job with the inputs of `job` has failed.
    pub fn failures(&self, job: &Job) -> u32 {
        if self.failures.is_empty() {
            return 0;
        }
        let failures = self.failures.get(&inputs_of(job));
        failures.map_or(0, |failures| failures.times)
    }

    /// The last error of a job that is given up, or that is tried again after it was given up.
    pub fn given_up_error(&self) -> Option<&Error> {
        let mut failures = self.failures.values();
        let given_up = failures.find(|failures| failures.is_given_up());
        given_up.map(|failures| &failures.error)
    }

    /// Records that the edit of `job` was installed, so that its inputs have left the tree or have
    /// moved.
    pub fn succeeded(&mut self, job: &Job) {
        if !self.failures.is_empty() {
            let inputs = inputs_of(job);
            let gone = |id: &u64| inputs.binary_search(id).is_ok();
            self.failures.retain(|ids, _| !ids.iter().any(gone));
        }
    }

    /// Lets the picker choose all jobs again that were given up.
    pub fn retry_all(&mut self) {
        self.failures.clear();
    }

    /// Whether a job with these inputs has failed so often that it is not tried again now.
    pub fn is_given_up(&self, job: &Job) -> bool {
        if self.failures.is_empty() {
            return false;
        }
        let failures = self.failures.get(&inputs_of(job));
        failures.is_some_and(|failures| self.is_waiting(failures))
    }

    /// Whether the file is an input of a job that is given up.
    pub fn is_given_up_with(&self, file_id: u64) -> bool {
        let mut failures = self.failures.iter();
        failures.any(|(inputs, failures)| {
            self.is_waiting(failures) && inputs.binary_search(&file_id).is_ok()
        })
    }

    fn is_waiting(&self, failures: &JobFailures) -> bool {
        failures.is_given_up() && self.now_us < failures.retry_at_us
    }

    /// Whether the file is an input of a running job.
    pub fn holds(&self, file_id: u64) -> bool {
        self.files.contains_key(&file_id)
    }

    /// The inputs of all running jobs, with their levels.
    pub(super) fn files(&self) -> impl Iterator<Item = (u8, &FileMeta)> {
        self.files.values().map(|(level, file)| (*level, &**file))
    }

    /// The zones of running jobs, with which no new job may overlap.
    pub(super) fn zones(&self) -> impl Iterator<Item = &Zone> {
        self.jobs.iter().map(|(_, zone)| zone)
    }

    /// Whether a job is running.
    pub fn is_busy(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// Whether a running job reads or writes keys of `range`, in any level.
    pub fn is_busy_in(&self, range: &KeyRange) -> bool {
        self.jobs.iter().any(|(_, zone)| zone.range.overlaps(range))
    }

    /// Whether a running job reads or writes keys of `range` in `level`.
    pub fn works_on(&self, level: u8, range: &KeyRange) -> bool {
        let levels = |zone: &Zone| zone.top <= level && level <= zone.bottom;
        let mut jobs = self.jobs.iter();
        jobs.any(|(_, zone)| levels(zone) && zone.range.overlaps(range))
    }

    /// Whether `job` must not start now, because of a running job or because it is given up.
    pub fn conflicts(&self, job: &Job) -> bool {
        let Some(zone) = job.zone() else { return false };
        job.files().any(|(_, f)| self.holds(f.file_id))
            || self.zones().any(|other| zone.overlaps(other))
            || self.is_given_up(job)
    }
}

/// The ids of the inputs of a job, ascending.
fn inputs_of(job: &Job) -> Vec<u64> {
    let mut ids: Vec<u64> = job.files().map(|(_, file)| file.file_id).collect();
    ids.sort_unstable();
    ids
}

#[cfg(test)]
mod tests;
