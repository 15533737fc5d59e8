//! The last flushes and compactions, for reports.

use crate::base::Error;
use crate::compaction::{Job, JobKind, JobReason, JobStats};
use parking_lot::Mutex;
use std::collections::VecDeque;

/// Jobs that are kept.
const KEPT: usize = 200;

/// A flush or compaction that has ended.
#[derive(Debug, Clone)]
pub struct JobReport {
    /// Number since the database was opened.
    pub number: u64,
    /// `flush`, `compact`, `move` or `drop`.
    pub kind: &'static str,
    /// The reason for which the picker chose the job; empty for a flush.
    pub reason: &'static str,
    /// The highest level (closest to L0) that an input of the job comes from; `None` for a flush,
    /// whose input is a memtable.
    pub from_level: Option<u8>,
    /// Level of its output.
    pub to_level: u8,
    /// Files read, moved or dropped.
    pub files_in: u64,
    /// Files written.
    pub files_out: u64,
    /// Its counters.
    pub stats: JobStats,
    /// When it began, microseconds since 1970.
    pub begun_us: u64,
    /// How long it took, microseconds.
    pub took_us: u64,
    /// The error with which it ended.
    pub error: Option<String>,
}

/// The last jobs, oldest first.
#[derive(Debug, Default)]
pub(in crate::db) struct JobHistory {
    recent: Mutex<(u64, VecDeque<JobReport>)>,
}

impl JobHistory {
    /// Adds a job, and gives it its number.
    fn add(&self, mut job: JobReport) {
        let mut recent = self.recent.lock();
        let (last, jobs) = &mut *recent;
        *last += 1;
        job.number = *last;
        if jobs.len() == KEPT {
            jobs.pop_front();
        }
        jobs.push_back(job);
    }

    /// Adds a flush.
    pub(super) fn add_flush(&self, stats: &JobStats, begun_us: u64, took_us: u64) {
        self.add(JobReport {
            number: 0,
            kind: "flush",
            reason: "",
            from_level: None,
            to_level: 0,
            files_in: 0,
            files_out: stats.files_written,
            stats: *stats,
            begun_us,
            took_us,
            error: None,
        });
    }

    /// Adds a compaction.
    pub(super) fn add_job(
        &self,
        job: &Job,
        done: Result<&JobStats, &Error>,
        begun_us: u64,
        took_us: u64,
    ) {
        let stats = done.copied().unwrap_or_default();
        self.add(JobReport {
            number: 0,
            kind: match job.kind {
                JobKind::Compact => "compact",
                JobKind::Move => "move",
                JobKind::DropFiles => "drop",
            },
            reason: match job.reason {
                JobReason::Size => "size",
                JobReason::Garbage => "garbage",
                JobReason::Reported => "reported",
                JobReason::Idle => "rest",
                JobReason::Drop => "drop",
                JobReason::Damage => "damage",
            },
            from_level: job.files().map(|(level, _)| level).min(),
            to_level: job.output_level,
            files_in: job.files().count() as u64,
            files_out: stats.files_written,
            stats,
            begun_us,
            took_us,
            error: done.err().map(Error::to_string),
        });
    }

    /// The jobs, oldest first.
    pub(in crate::db) fn list(&self) -> Vec<JobReport> {
        self.recent.lock().1.iter().cloned().collect()
    }
}
