//! A thread that works beside a statement.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

type Job = Box<dyn FnOnce() + Send>;

/// One thread for all who want something done beside them, started by the first one. It takes one thing at a time: who
/// comes meanwhile does it alone.
///
/// Rejected: a thread for each piece of work. The allocator gives each a heap of its own and keeps what they leave, a
/// quarter of a gigabyte of an INSERT of a million rows.
#[derive(Default)]
pub(super) struct Beside {
    busy: Arc<AtomicBool>,
    thread: Mutex<Option<(SyncSender<Job>, JoinHandle<()>)>>,
}

impl Beside {
    /// Begins `work`, which must not panic. What it holds is dropped before the result can be received.
    ///
    /// # Errors
    /// `work`, if the thread is busy or cannot be started.
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
            // Nobody waits any more: the result goes.
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

impl Drop for Beside {
    /// The code of the thread may be unloaded next.
    fn drop(&mut self) {
        if let Some((jobs, thread)) = self.thread.get_mut().take() {
            drop(jobs);
            let _ = thread.join();
        }
    }
}
