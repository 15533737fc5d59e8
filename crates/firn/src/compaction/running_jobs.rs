//! Descriptions of compactions, and the list of the running ones.

use crate::base::key_range::KeyRange;
use crate::version::{Edit, FileHandle, FileMeta};
use std::collections::HashMap;
use std::ops::Range;
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
}

/// One compaction.
#[derive(Debug, Clone)]
pub struct Job {
    /// The inputs, ordered so that of two versions of a key the newer one is in the earlier input.
    pub inputs: Vec<JobInput>,
    /// Level that the job writes or moves its output to.
    pub output_level: u8,
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
        let added = outputs.into_iter().map(|meta| (self.output_level, 0, meta));
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

    fn zone(&self) -> Option<Zone> {
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
struct Zone {
    range: KeyRange,
    top: u8,
    bottom: u8,
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
    /// The inputs of running jobs and the files in quarantine, by file id, with their levels. It
    /// has metadata instead of file handles, because a handle would keep a dropped file on disk.
    files: HashMap<u64, (u8, Arc<FileMeta>)>,
    next: u64,
}

/// Number that stands in place of a job's number at the zone of a file in quarantine.
/// [`RunningJobs::begin`] never returns it, so [`RunningJobs::end`] never removes such a zone.
const QUARANTINED: u64 = 0;

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

    /// Puts an input of `job` that turned out to be damaged into quarantine: no later job reads the
    /// file or moves data past it. Jobs on other key ranges are not affected. Call it after
    /// [`Self::end`]. Returns whether `file_id` is an input of `job`.
    pub fn quarantine(&mut self, job: &Job, file_id: u64) -> bool {
        let Some((level, file)) = job.files().find(|(_, f)| f.file_id == file_id) else {
            return false;
        };
        let zone = Zone {
            range: file.range(),
            top: level,
            bottom: level,
        };
        self.jobs.push((QUARANTINED, zone));
        self.files.insert(file_id, (level, Arc::clone(file.meta())));
        true
    }

    /// Whether the file is an input of a running job, or in quarantine.
    pub fn holds(&self, file_id: u64) -> bool {
        self.files.contains_key(&file_id)
    }

    /// The inputs of all running jobs and the files in quarantine, with their levels.
    pub(super) fn files(&self) -> impl Iterator<Item = (u8, &FileMeta)> {
        self.files.values().map(|(level, file)| (*level, &**file))
    }

    /// The zones of running jobs and of files in quarantine, with which no new job may overlap: a
    /// range of levels, both ends included, and a key range.
    pub(super) fn zones(&self) -> impl Iterator<Item = (Range<u8>, &KeyRange)> {
        let zones = self.jobs.iter().map(|(_, zone)| zone);
        zones.map(|zone| (zone.top..zone.bottom, &zone.range))
    }

    /// Whether a job is running.
    pub fn is_busy(&self) -> bool {
        self.jobs.iter().any(|(ticket, _)| *ticket != QUARANTINED)
    }

    /// Whether a running job reads or writes keys of `range`, in any level.
    pub fn is_busy_in(&self, range: &KeyRange) -> bool {
        let mut jobs = self.jobs.iter();
        jobs.any(|(ticket, zone)| *ticket != QUARANTINED && zone.range.overlaps(range))
    }

    /// Whether a running job reads or writes keys of `range` in `level`, or a file in quarantine
    /// has such keys there.
    pub fn works_on(&self, level: u8, range: &KeyRange) -> bool {
        let levels = |zone: &Zone| zone.top <= level && level <= zone.bottom;
        let mut jobs = self.jobs.iter();
        jobs.any(|(_, zone)| levels(zone) && zone.range.overlaps(range))
    }

    /// Whether `job` must not start now, because of a running job or a file in quarantine.
    pub fn conflicts(&self, job: &Job) -> bool {
        let Some(zone) = job.zone() else { return false };
        job.files().any(|(_, f)| self.holds(f.file_id))
            || self.jobs.iter().any(|(_, other)| {
                let levels = zone.top <= other.bottom && other.top <= zone.bottom;
                levels && zone.range.overlaps(&other.range)
            })
    }
}

#[cfg(test)]
mod tests;
