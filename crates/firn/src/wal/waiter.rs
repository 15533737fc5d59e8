//! How a committer sleeps until its group is durable.

use super::Lsn;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::Thread;

/// Why a waiter was woken. The waking thread takes it off the list first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum WakeReason {
    /// The wait is satisfied.
    Done = 1,
    /// The log has failed.
    Failed = 2,
    /// A write slot is held for it: it writes the open group.
    Lead = 3,
    /// It must sync: no other thread does until it has.
    Sync = 4,
}

impl WakeReason {
    fn from_u8(byte: u8) -> Option<Self> {
        [Self::Done, Self::Failed, Self::Lead, Self::Sync]
            .into_iter()
            .find(|s| *s as u8 == byte)
    }
}

/// The primitive on which a thread sleeps. A thread waits for one thing at a time, so it has one.
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
    /// The calling thread's.
    pub(super) fn current() -> Arc<Self> {
        PARKER.with(Arc::clone)
    }

    /// Sleeps until a signal is there and takes it. Called by the owner only.
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

/// A committer on the list.
#[derive(Debug)]
pub(super) struct CommitWaiter {
    pub lsn: Lsn,
    pub durable: bool,
    pub parker: Arc<Parker>,
}

/// Waiters to wake once the mutex is released: a wake-up is a system call. The list's memory is
/// kept per thread.
pub(super) struct WakeList(Vec<(Arc<Parker>, WakeReason)>);

impl WakeList {
    pub(super) fn new() -> Self {
        Self(WOKEN.take())
    }

    pub(super) fn push(&mut self, waiter: CommitWaiter, signal: WakeReason) {
        self.0.push((waiter.parker, signal));
    }

    /// Forgets the waiters and returns the reasons that they would have been woken for.
    #[cfg(test)]
    pub(super) fn signals(mut self) -> Vec<WakeReason> {
        self.0.drain(..).map(|(_, signal)| signal).collect()
    }

    /// Wakes waiters in reverse push order: the next leader was pushed last, and the device idles
    /// until it writes.
    pub(super) fn wake(mut self) {
        while let Some((parker, signal)) = self.0.pop() {
            parker.wake(signal);
        }
        WOKEN.set(std::mem::take(&mut self.0));
    }
}

#[cfg(test)]
mod tests;
