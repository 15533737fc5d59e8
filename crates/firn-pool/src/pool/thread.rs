//! The background thread.

use super::Shared;
use parking_lot::{Condvar, Mutex};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long the thread lets puts gather after it was woken.
const GATHER: Duration = Duration::from_millis(1);

/// The thread, if it runs.
#[derive(Default)]
pub(super) struct Thread(Mutex<Option<JoinHandle<()>>>);

/// Wakes the thread out of a long pause.
#[derive(Default)]
pub(super) struct Wake {
    stop: AtomicBool,
    /// Somebody waits for more than puts.
    urgent: AtomicBool,
    /// Somebody has called since the last pause began.
    pending: AtomicBool,
    /// The thread is in a long pause; others need not call it.
    sleeps: AtomicBool,
    lock: Mutex<bool>,
    called: Condvar,
}

impl Wake {
    /// Ends a long pause, if the thread is in one.
    pub(super) fn wake(&self) {
        self.pending.store(true, SeqCst);
        if self.sleeps.swap(false, SeqCst) {
            *self.lock.lock() = true;
            self.called.notify_one();
        }
    }

    /// As [`Self::wake`], and the thread does not wait for more puts first.
    pub(super) fn hurry(&self) {
        self.urgent.store(true, SeqCst);
        self.wake();
    }

    /// Whether the thread is to end.
    pub(super) fn stops(&self) -> bool {
        self.stop.load(SeqCst)
    }

    /// A pause that [`Self::wake`] ends.
    fn sleep(&self, pause: Duration) {
        self.sleeps.store(true, SeqCst);
        let mut called = self.lock.lock();
        // A call between the last round and this pause found nobody asleep.
        *called |= self.pending.swap(false, SeqCst);
        if !*called && !self.stop.load(SeqCst) {
            self.called.wait_for(&mut called, pause);
        }
        let was_called = std::mem::take(&mut *called);
        drop(called);
        self.sleeps.store(false, SeqCst);
        if was_called && !self.stops() && !self.urgent.swap(false, SeqCst) {
            std::thread::sleep(GATHER);
        }
    }
}

impl Thread {
    pub(super) fn start(&self, shared: &Arc<Shared>) -> io::Result<()> {
        let mut thread = self.0.lock();
        // One that has failed is followed by another one.
        if thread.as_ref().is_none_or(JoinHandle::is_finished) {
            let shared = shared.clone();
            shared.wake.stop.store(false, SeqCst);
            let builder = std::thread::Builder::new().name("firn-pool".to_owned());
            *thread = Some(builder.spawn(move || {
                while !shared.wake.stop.load(SeqCst) {
                    // Without its thread the pool would stay on and do nothing.
                    match catch_unwind(AssertUnwindSafe(|| shared.tick())) {
                        Ok(pause_us) => shared.wake.sleep(Duration::from_micros(pause_us)),
                        Err(_) => {
                            shared.enabled.store(false, SeqCst);
                            (shared.log)("the memory pool is off: its thread has failed");
                            break;
                        }
                    }
                }
            })?);
        }
        Ok(())
    }

    /// Waits for the end of the thread: of the connect or the batch it may be in.
    pub(super) fn stop(&self, shared: &Shared) {
        // A start meanwhile waits until the old thread has seen its end.
        let mut running = self.0.lock();
        if let Some(thread) = running.take() {
            shared.wake.stop.store(true, SeqCst);
            shared.wake.wake();
            // A panic of the thread was printed; the pool is off either way.
            let _ = thread.join();
        }
    }
}
