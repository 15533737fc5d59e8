//! Uploads of local files in the background.
//!
//! An upload is tried again until it succeeds or is aborted: the job that needs it waits. Files up
//! to 32 MiB are one request, larger ones are parts of 16 MiB. All uploads together hold at most
//! 64 MiB in memory.
//!
//! A name is *held* from [`Uploads::enqueue`] to [`Uploads::release`], which the caller calls once
//! the manifest names the object, or never will. Held names are not swept. Without that, a sweep
//! could find the object after the upload and before the edit, and take it for a stray.

mod send;
mod sweep;

use crate::budget::Budget;
use crate::env::{Clock, Files, Jobs};
use crate::error::{Error, ErrorKind, Result};
use crate::retry::{Deadlines, Retrying};
use crate::store::UploadId;
use parking_lot::{Condvar, Mutex};
use std::collections::{HashMap, HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use send::UploadJob;
pub use sweep::Swept;

/// Bytes of files in memory.
const MEMORY_BYTES_MAX: u64 = 64 << 20;
/// How long a request is tried before the upload looks whether it is to end.
const REQUEST_US: u64 = 20_000_000;

/// A file to be uploaded.
#[derive(Clone, Debug)]
pub struct Upload {
    /// The name of the object. It never stands for other bytes, not even after an abort or a
    /// restart: a request for it may be executed late.
    pub name: String,
    /// The local file, which does not change.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
}

/// Identifies an upload of this queue. Later ones have higher numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(u64);

/// An upload that has ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Which one.
    pub ticket: Ticket,
    /// The name of the object.
    pub name: String,
    /// How it ended.
    pub outcome: Outcome,
}

/// How an upload ended.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The store has the whole file.
    Stored {
        /// The SHA-256 of the file.
        sha256: [u8; 32],
    },
    /// Somebody aborted it, or the queue closes. The object may exist.
    Aborted,
    /// The local file cannot be uploaded.
    Failed(Error),
}

/// Figures of the queue.
#[derive(Clone, Debug, Default)]
pub struct UploadStats {
    /// Uploads that wait or run. A gate of flushes counts them.
    pub pending: u64,
    /// The bytes of their files.
    pub pending_bytes: u64,
    /// Files stored.
    pub stored: u64,
    /// Their bytes.
    pub stored_bytes: u64,
    /// Times that an upload began again.
    pub retries: u64,
    /// Why it did, the last time.
    pub last_error: Option<String>,
}

/// The queue. Dropping it aborts its uploads.
pub struct Uploads(Arc<Shared>);

struct Shared {
    store: Retrying,
    files: Arc<dyn Files>,
    clock: Arc<dyn Clock>,
    jobs: Arc<dyn Jobs>,
    memory: Budget,
    state: Mutex<QueueState>,
    /// An upload has ended, or a sweep has let a name go.
    changed: Condvar,
}

#[derive(Default)]
struct QueueState {
    last: u64,
    pending: HashMap<Ticket, Upload>,
    aborted: HashSet<Ticket>,
    closes: bool,
    held: HashSet<String>,
    /// Names that a sweep deletes right now.
    guarded: HashSet<String>,
    /// Names that a sweep has deleted, and until when they are not uploaded; seconds since 1970.
    swept: HashMap<String, u64>,
    /// Uploads in parts that this queue has begun.
    begun: HashSet<UploadId>,
    ended: VecDeque<Ended>,
    stats: UploadStats,
}

impl Uploads {
    /// A queue whose uploads run as `jobs`: as many at once as those have threads.
    pub fn new(
        store: &Retrying,
        files: Arc<dyn Files>,
        clock: Arc<dyn Clock>,
        jobs: Arc<dyn Jobs>,
    ) -> Self {
        let deadlines = Deadlines {
            read_us: REQUEST_US,
            write_us: REQUEST_US,
        };
        Self(Arc::new(Shared {
            store: store.with_deadlines(deadlines),
            files,
            clock,
            jobs,
            memory: Budget::new(MEMORY_BYTES_MAX),
            state: Mutex::default(),
            changed: Condvar::new(),
        }))
    }

    /// Uploads a file, and holds its name. Waits if a sweep deletes a stray of this name.
    ///
    /// # Errors
    /// `Invalid` if the name is held, `Throttled` if a sweep has deleted it within the hour: a
    /// request of that sweep may still be under way.
    pub fn enqueue(&self, upload: Upload) -> Result<Ticket> {
        crate::store::check_name(&upload.name)?;
        let ticket = {
            let mut state = self.0.state.lock();
            while state.guarded.contains(&upload.name) {
                self.0.changed.wait(&mut state);
            }
            let until_s = state.swept.get(&upload.name).copied().unwrap_or(0);
            if self.0.clock.unix_s() < until_s {
                let text = format!("{} was swept; its deletion may come again", upload.name);
                return Err(Error::new(ErrorKind::Throttled, text));
            }
            if !state.held.insert(upload.name.clone()) {
                let text = format!("{} is being uploaded", upload.name);
                return Err(Error::new(ErrorKind::Invalid, text));
            }
            state.last += 1;
            let ticket = Ticket(state.last);
            state.stats.pending += 1;
            state.stats.pending_bytes += upload.bytes;
            state.pending.insert(ticket, upload);
            ticket
        };
        let job = UploadJob::new(self.0.clone(), ticket);
        self.0.jobs.submit(Box::new(move || job.run()));
        Ok(ticket)
    }

    /// Ends an upload as soon as its request ends. It still appears among the ended ones.
    pub fn abort(&self, ticket: Ticket) {
        let mut state = self.0.state.lock();
        if state.pending.contains_key(&ticket) {
            state.aborted.insert(ticket);
        }
    }

    /// The uploads that have ended since the last call, in the order in which they did.
    pub fn take_ended(&self) -> Vec<Ended> {
        self.0.state.lock().ended.drain(..).collect()
    }

    /// Waits until an upload has ended.
    pub fn wait(&self, ticket: Ticket) {
        let mut state = self.0.state.lock();
        while state.pending.contains_key(&ticket) && !state.closes {
            self.0.changed.wait(&mut state);
        }
    }

    /// Waits until an upload has ended, at most for so long. Returns whether it has.
    pub fn wait_for(&self, ticket: Ticket, patience: Duration) -> bool {
        let mut state = self.0.state.lock();
        let is_pending =
            |state: &mut QueueState| state.pending.contains_key(&ticket) && !state.closes;
        let waited = self
            .0
            .changed
            .wait_while_for(&mut state, is_pending, patience);
        !waited.timed_out()
    }

    /// The name of an upload that has ended is no longer held.
    pub fn release(&self, name: &str) {
        self.0.state.lock().held.remove(name);
    }

    /// Figures.
    pub fn stats(&self) -> UploadStats {
        self.0.state.lock().stats.clone()
    }

    /// Aborts all uploads. Those under way end with their requests, which are not tried again after
    /// 20 s.
    pub fn close(&self) {
        self.0.state.lock().closes = true;
        self.0.changed.notify_all();
    }
}

impl Drop for Uploads {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn is_aborted(&self, ticket: Ticket) -> bool {
        let state = self.state.lock();
        state.closes || state.aborted.contains(&ticket)
    }

    fn end(&self, ticket: Ticket, outcome: Outcome) {
        let mut state = self.state.lock();
        state.aborted.remove(&ticket);
        if let Some(upload) = state.pending.remove(&ticket) {
            state.stats.pending -= 1;
            state.stats.pending_bytes -= upload.bytes;
            if let Outcome::Stored { .. } = outcome {
                state.stats.stored += 1;
                state.stats.stored_bytes += upload.bytes;
            }
            state.ended.push_back(Ended {
                ticket,
                name: upload.name,
                outcome,
            });
        }
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests;
