//! The end of a compaction that has failed: damaged files go into quarantine, and jobs that fail
//! for other reasons are given up for a time.

use super::{BackgroundWork, CompactionStep};
use crate::base::event_listener::Severity;
use crate::base::{Error, ErrorKind, Result, check_stopping};
use crate::compaction::{ATTEMPTS_MAX, Job, JobKind};
use crate::store::{FileKind, file_name, parse_file_name};
use crate::version::{DamagedFile, FileHandle, FileMeta};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The errno of a call for which the system has no memory.
const ENOMEM: i32 = 12;

/// Time before an unreadable file is read again. It doubles each time that a file still cannot be
/// read, up to [`RECHECK_US_MAX`]. Microseconds.
const RECHECK_US_MIN: u64 = 60_000_000;
const RECHECK_US_MAX: u64 = 3_600_000_000;

/// The rechecks of unreadable files.
#[derive(Debug, Default)]
pub(super) struct Recheck {
    /// Time of the next one, microseconds.
    due_us: Option<u64>,
    /// The pause before it, microseconds.
    pause_us: u64,
    /// Id of the file that was read last.
    last: u64,
}

impl BackgroundWork {
    /// Ends a job. If the job failed because an input is damaged or unreadable, puts that file into
    /// quarantine until the next open: otherwise the picker would choose the same job again and
    /// again, and no other job would run. If no input is the reason, the job is given up for a time
    /// after some attempts. In both cases returns how the step has ended, which is reported.
    pub(super) fn end(
        &self,
        ticket: u64,
        job: &Job,
        error: Option<&Error>,
    ) -> Option<CompactionStep> {
        let Some(error) = error else {
            let mut running = self.running.lock();
            running.end(ticket, job);
            running.succeeded(job);
            *self.given_up.lock() = running.given_up_error().cloned();
            return None;
        };
        // After the database was poisoned no job can succeed, so a failure says nothing.
        let lasting = !is_passing(error)
            && self.health.check().is_ok()
            && !self.stopping.load(Ordering::Acquire);
        let last_attempt = || self.running.lock().failures(job) + 1 >= ATTEMPTS_MAX;
        let damaged = match lasting {
            true => self.damaged_input(job, error, last_attempt()),
            false => None,
        };
        let (damage, failures) = {
            let mut running = self.running.lock();
            running.set_time(self.env.monotonic_micros());
            // The file is in quarantine before the job ends: the picker must not see it free.
            let damage = damaged.and_then(|damaged| self.quarantine(damaged));
            running.end(ticket, job);
            let failures = match lasting && damage.is_none() {
                true => running.failed(job, error),
                false => 0,
            };
            *self.given_up.lock() = running.given_up_error().cloned();
            (damage, failures)
        };
        if let Some(damage) = damage {
            return Some(CompactionStep::MetDamage(damage));
        }
        if failures < ATTEMPTS_MAX {
            return None;
        }
        // The mover reports a store that is out; else each job would.
        if failures == ATTEMPTS_MAX && !error.is_unreachable() {
            let message = format!(
                "a compaction of {} files into level {} fails again and again, and is tried less often from now on: {error}",
                job.files().count(),
                job.output_level
            );
            self.options.listener.log(Severity::Error, &message);
        }
        self.tell_gate();
        Some(CompactionStep::GaveUp(error.clone()))
    }

    /// Puts a file into quarantine, and reports its damage. Returns the damage, also if the file is
    /// in quarantine already, or `None` if the file has left the tree.
    pub(super) fn quarantine(&self, damaged: DamagedFile) -> Option<Error> {
        let (id, error) = (damaged.meta.file_id, damaged.error.clone());
        {
            let _in_order = self.install.lock();
            match self.versions.quarantine(damaged) {
                Some(version) => self.publish(version, &[]),
                None => return self.damage(|file| file.file_id == id),
            }
        }
        let message = format!("a table file is damaged and left out of compactions: {error}");
        self.options.listener.log(Severity::Error, &message);
        self.tell_gate();
        Some(error)
    }

    /// Takes the files out of quarantine that `concerns` accepts and the device can read again, and
    /// lets compactions that were given up be tried again. `go_on` is called before each file.
    pub(in crate::db) fn recheck_unreadable(
        &self,
        concerns: impl Fn(&FileMeta) -> bool,
        go_on: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        self.health.check()?;
        self.running.lock().retry_all();
        *self.given_up.lock() = None;
        for (level, file) in self.versions.current().unreadable_files() {
            if concerns(&file) {
                go_on()?;
                check_stopping(&self.stopping)?;
                self.recheck(level, &file);
            }
        }
        Ok(())
    }

    /// Looks whether the device can read a file again that it could not read, from time to time and
    /// at one file after the other.
    pub(super) fn recheck_one_unreadable(&self) {
        let now_us = self.env.monotonic_micros();
        let Some(mut recheck) = self.recheck.try_lock() else {
            return;
        };
        let mut files = self.versions.current().unreadable_files();
        if files.is_empty() {
            *recheck = Recheck::default();
            return;
        }
        let due_us = *recheck.due_us.get_or_insert(now_us + RECHECK_US_MIN);
        if now_us < due_us {
            return;
        }
        files.sort_by_key(|(_, file)| (file.file_id <= recheck.last, file.file_id));
        let (level, file) = &files[0];
        recheck.last = file.file_id;
        recheck.pause_us = match self.recheck(*level, file) {
            true => RECHECK_US_MIN,
            false => (2 * recheck.pause_us).clamp(2 * RECHECK_US_MIN, RECHECK_US_MAX),
        };
        recheck.due_us = Some(now_us + recheck.pause_us);
    }

    /// Takes a file out of quarantine if it can be read again. Returns whether it can.
    fn recheck(&self, level: u8, file: &FileHandle) -> bool {
        let waited = self.limiter.take(file.size, &self.stopping);
        if waited.is_err() || read_whole(file).is_err() {
            return false;
        }
        {
            let _in_order = self.install.lock();
            let version = self.versions.release(file.file_id);
            self.publish(version, &[]);
        }
        let name = file_name(FileKind::Sst, file.file_id);
        let message = format!(
            "a table file can be read again and takes part in compactions: {name} of level {level}"
        );
        self.options.listener.log(Severity::Note, &message);
        self.blob_gc.try_all_again();
        self.tell_gate();
        self.signals.lock().compact = true;
        self.signal.notify_all();
        true
    }

    /// The last error of a compaction that is given up.
    pub(in crate::db) fn given_up_error(&self) -> Option<Error> {
        self.given_up.lock().clone()
    }

    /// The damage of the first file in quarantine that `concerns` accepts.
    pub(in crate::db) fn damage(&self, concerns: impl Fn(&FileMeta) -> bool) -> Option<Error> {
        let version = self.versions.current();
        let damaged = { version.quarantine().iter() }.find(|damaged| concerns(&damaged.meta));
        damaged.map(|damaged| damaged.error.clone())
    }

    /// The input of `job` that has failed it with `error`, if the input is damaged or cannot be
    /// read. Only an error of damaged bytes names the file, and a failed read looks like a failed
    /// write. So the inputs are read again, and one that still fails is as good as damaged. If a
    /// file that the error names can be read, the bytes may have been damaged on their way from the
    /// device. So it counts as damaged only if this was the last attempt at the job.
    fn damaged_input(&self, job: &Job, error: &Error, last_attempt: bool) -> Option<DamagedFile> {
        if job.kind != JobKind::Compact || *error.kind() == ErrorKind::Unreachable {
            return None;
        }
        if let ErrorKind::Corruption { file, .. } = error.kind()
            && let Some((FileKind::Sst, id)) = parse_file_name(file)
            && let Some((level, file)) = job.files().find(|(_, f)| f.file_id == id)
        {
            let named = || DamagedFile {
                level,
                meta: Arc::clone(file.meta()),
                error: error.clone(),
                unreadable: false,
            };
            return self
                .examine_paced(level, file)
                .or_else(|| last_attempt.then(named));
        }
        job.files()
            .find_map(|(level, file)| self.examine_paced(level, file))
    }

    /// As [`examine`], but waits for the rate limit first. Returns `None` if the database closes.
    fn examine_paced(&self, level: u8, file: &FileHandle) -> Option<DamagedFile> {
        self.limiter.take(file.size, &self.stopping).ok()?;
        examine(level, file)
    }
}

/// Whether the same work may succeed later although no file changes.
fn is_passing(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::NoSpace | ErrorKind::NoDescriptor | ErrorKind::Interrupted | ErrorKind::Poisoned
    )
}

/// Reads a whole file, and compares it with the manifest.
fn read_whole(file: &FileHandle) -> Result<()> {
    let reader = file.reader()?;
    reader.verify()?;
    let (found, expected) = (reader.properties().entries, file.entries);
    if found != expected {
        let what = format!("{found} entries, the manifest says {expected}");
        let name = file_name(FileKind::Sst, file.file_id);
        return Err(Error::corruption(name, 0, what));
    }
    Ok(())
}

/// Reads a whole file of `level`. Returns its damage, if it has any or cannot be read.
pub(super) fn examine(level: u8, file: &FileHandle) -> Option<DamagedFile> {
    // A read that found no memory, or no object store, says nothing about the file.
    let no_memory = ErrorKind::Io { os_errno: ENOMEM };
    let says_nothing = |kind: &ErrorKind| *kind == no_memory || *kind == ErrorKind::Unreachable;
    let error = read_whole(file).err();
    let error = error.filter(|error| !is_passing(error) && !says_nothing(error.kind()))?;
    let unreadable = matches!(error.kind(), ErrorKind::Io { .. } | ErrorKind::NotFound);
    let error = match unreadable {
        true => {
            let name = file_name(FileKind::Sst, file.file_id);
            Error::corruption(name, 0, format!("the file cannot be read: {error}"))
        }
        false => error,
    };
    Some(DamagedFile {
        level,
        meta: Arc::clone(file.meta()),
        error,
        unreadable,
    })
}

#[cfg(test)]
pub(super) mod tests;
