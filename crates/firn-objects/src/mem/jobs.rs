//! Jobs that wait until the test runs them.

use crate::env::{Job, Jobs};
use parking_lot::Mutex;
use std::collections::VecDeque;

/// A queue without threads.
#[derive(Default)]
pub struct QueuedJobs(Mutex<VecDeque<Job>>);

impl QueuedJobs {
    /// Runs the oldest job. Returns false if there is none.
    pub fn run_one(&self) -> bool {
        let job = self.0.lock().pop_front();
        job.map(|job| job()).is_some()
    }

    /// Forgets the jobs, as a crash does.
    pub fn clear(&self) {
        let jobs = std::mem::take(&mut *self.0.lock());
        drop(jobs);
    }
}

impl Jobs for QueuedJobs {
    fn submit(&self, job: Job) {
        self.0.lock().push_back(job);
    }
}
