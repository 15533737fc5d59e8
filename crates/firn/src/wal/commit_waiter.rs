//! How a committer sleeps until its group is durable.

use super::Lsn;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::Thread;

/// Why a waiting committer was woken. The waking thread removes the committer from the list of
/// waiters first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum WakeReason {
    /// The log is written or durable up to the position that the committer waits for.
    Done = 1,
    /// The log has failed.
    Failed = 2,
    /// The woken committer must write the open group. A write slot is reserved for it.
    Lead = 3,
    /// The woken committer must sync the log files. No other thread syncs until it has finished.
    Sync = 4,
}

impl WakeReason {
    fn from_u8(byte: u8) -> Option<Self> {
        [Self::Done, Self::Failed, Self::Lead, Self::Sync]
            .into_iter()
            .find(|s| *s as u8 == byte)
    }
}

/// The primitive on which a thread sleeps. A thread sleeps in one wait at a time, so each thread
/// has one `Parker`.
#[derive(Debug)]
pub(super) struct Parker {
    thread: Thread,
    signal: AtomicU8,
}

thread_local! {
    static PARKER: Arc<Parker> = Arc::new(Parker {
        thread: std::thread::current(),
        signal: AtomicU8::new(0),
    });
    static WOKEN: Cell<Vec<(Arc<Parker>, WakeReason)>> = const { Cell::new(Vec::new()) };
}

impl Parker {
    /// Returns the `Parker` of the calling thread.
    pub(super) fn current() -> Arc<Self> {
        PARKER.with(Arc::clone)
    }

    /// Sleeps until another thread has called [`Self::wake`], and returns the reason. Only the
    /// thread that owns this `Parker` calls it.
    pub(super) fn wait(&self) -> WakeReason {
        loop {
            if let Some(signal) = WakeReason::from_u8(self.signal.swap(0, Ordering::Acquire)) {
                return signal;
            }
            std::thread::park();
        }
    }

    fn wake(&self, signal: WakeReason) {
        self.signal.store(signal as u8, Ordering::Release);
        self.thread.unpark();
    }
}

/// A committer on the log's list of waiters.
#[derive(Debug)]
pub(super) struct CommitWaiter {
    pub lsn: Lsn,
    pub durable: bool,
    pub parker: Arc<Parker>,
}

/// Committers to wake once the log's mutex is released, because a wake-up is a system call. The
/// memory of the list is kept per thread for its next use.
pub(super) struct WakeList(Vec<(Arc<Parker>, WakeReason)>);

impl WakeList {
    pub(super) fn new() -> Self {
        Self(WOKEN.take())
    }

    pub(super) fn push(&mut self, waiter: CommitWaiter, signal: WakeReason) {
        self.0.push((waiter.parker, signal));
    }

    /// Drops the list without waking anyone, and returns the reasons of the wake-ups.
    #[cfg(test)]
    pub(super) fn signals(mut self) -> Vec<WakeReason> {
        self.0.drain(..).map(|(_, signal)| signal).collect()
    }

    /// Wakes the committers in reverse push order. The next leader was pushed last, and the device
    /// is idle until the leader writes, so the leader is woken first.
    pub(super) fn wake(mut self) {
        while let Some((parker, signal)) = self.0.pop() {
            parker.wake(signal);
        }
        WOKEN.set(std::mem::take(&mut self.0));
    }
}

#[cfg(test)]
mod tests;
