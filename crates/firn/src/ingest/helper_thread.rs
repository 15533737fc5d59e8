//! A background thread that works for a statement while the statement continues.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

type Job = Box<dyn FnOnce() + Send>;

/// One background thread for all callers, started by the first one. The thread does one piece of
/// work at a time; a caller that finds it busy does its work itself.
///
/// Rejected: a thread for each piece of work. A large transaction writes many, and starting a
/// thread costs more than handing over a job.
#[derive(Default)]
pub(super) struct HelperThread {
    busy: Arc<AtomicBool>,
    thread: Mutex<Option<(SyncSender<Job>, JoinHandle<()>)>>,
}

impl HelperThread {
    /// Starts `work`, which must not panic. The values that `work` owns are dropped before its
    /// result can be received.
    ///
    /// # Errors
    /// Returns `work` if the thread is busy or cannot be started.
    pub(super) fn begin<T, F>(&self, work: F) -> Result<Receiver<T>, F>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let mut thread = self.thread.lock();
        if self.busy.load(Ordering::Acquire) {
            return Err(work);
        }
        if thread.is_none() {
            *thread = start();
        }
        let Some((jobs, _)) = &*thread else {
            return Err(work);
        };
        let (done, result) = sync_channel(1);
        self.busy.store(true, Ordering::Release);
        let busy = Arc::clone(&self.busy);
        let job = move || {
            let outcome = work();
            busy.store(false, Ordering::Release);
            // If the receiver is gone, the result is dropped.
            let _ = done.send(outcome);
        };
        jobs.send(Box::new(job))
            .expect("lives as long as its sender, and nothing there panics");
        Ok(result)
    }
}

fn start() -> Option<(SyncSender<Job>, JoinHandle<()>)> {
    let (sender, jobs) = sync_channel::<Job>(1);
    let thread = std::thread::Builder::new().name("firn-spill".to_owned());
    let thread = thread.spawn(move || jobs.into_iter().for_each(|job| job()));
    thread.ok().map(|thread| (sender, thread))
}

impl Drop for HelperThread {
    /// Waits for the thread to end: a job may use what the database closes next.
    fn drop(&mut self) {
        if let Some((jobs, thread)) = self.thread.get_mut().take() {
            drop(jobs);
            let _ = thread.join();
        }
    }
}
