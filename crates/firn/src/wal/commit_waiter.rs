//! How a committer sleeps until its group is durable.

use super::Lsn;
use super::acknowledgement::Acknowledgement;
use crate::base::work_count;
use std::cell::Cell;
use std::collections::VecDeque;
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
    /// The woken committer must write the open group. Its write counts already among the writes
    /// that may be under way at the same time, although it has not begun.
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

/// The one who hears that a commit is written or durable.
#[derive(Debug)]
pub(super) enum Committer {
    /// A thread that sleeps.
    Asleep(Arc<Parker>),
    /// The thread went on without waiting.
    Absent(Acknowledgement),
}

/// A commit that waits until the log is written or durable up to `lsn`.
#[derive(Debug)]
pub(super) struct CommitWaiter {
    pub lsn: Lsn,
    pub durable: bool,
    pub committer: Committer,
}

/// The thread that must lead or sync next.
#[derive(Debug)]
pub(super) enum NextThread {
    /// This committer. It is not in the queue any more.
    Committer(CommitWaiter),
    /// The log writer, since the first committer in the queue is absent.
    LogWriter,
}

/// The commits that wait, ordered by their log positions.
///
/// Each method finds its answer by a binary search and does not visit all committers: there may be
/// ten thousand, and the methods are called under the log's mutex at every commit and every write.
#[derive(Debug, Default)]
pub(super) struct CommitQueue {
    /// Those that wait for the device.
    durable: VecDeque<CommitWaiter>,
    /// Those that wait for the operating system.
    written: VecDeque<CommitWaiter>,
}

fn up_to(waiters: &VecDeque<CommitWaiter>, lsn: Lsn) -> usize {
    waiters.partition_point(|waiter| {
        work_count::waiter_seen();
        waiter.lsn <= lsn
    })
}

/// Removes the committer at an index, if its thread sleeps.
fn take_at(waiters: &mut VecDeque<CommitWaiter>, at: usize) -> Option<NextThread> {
    Some(match waiters.get(at)?.committer {
        Committer::Asleep(_) => NextThread::Committer(waiters.remove(at)?),
        Committer::Absent(_) => NextThread::LogWriter,
    })
}

impl CommitQueue {
    /// Adds a committer. Committers come in about the order of their positions, so the insertion is
    /// near the end of the queue.
    pub(super) fn push(&mut self, waiter: CommitWaiter) {
        let waiters = match waiter.durable {
            true => &mut self.durable,
            false => &mut self.written,
        };
        let at = up_to(waiters, waiter.lsn);
        waiters.insert(at, waiter);
    }

    /// Number of committers that wait for a position beyond `lsn`.
    pub(super) fn beyond(&self, lsn: Lsn) -> usize {
        let of = |waiters| VecDeque::len(waiters) - up_to(waiters, lsn);
        of(&self.durable) + of(&self.written)
    }

    /// Number of committers that wait for a position up to `lsn`.
    pub(super) fn up_to(&self, lsn: Lsn) -> usize {
        up_to(&self.durable, lsn) + up_to(&self.written, lsn)
    }

    /// Whether a committer waits for the device beyond `lsn`.
    pub(super) fn is_durable_wanted_beyond(&self, lsn: Lsn) -> bool {
        self.durable.back().is_some_and(|waiter| waiter.lsn > lsn)
    }

    /// Moves the committers whose wait is over to `woken`: the log is durable up to `durable` and
    /// written up to `written`.
    pub(super) fn wake_done(&mut self, durable: Lsn, written: Lsn, woken: &mut WakeList) {
        for (waiters, end) in [(&mut self.durable, durable), (&mut self.written, written)] {
            let done = up_to(waiters, end);
            waiters
                .drain(..done)
                .for_each(|w| woken.push(w, WakeReason::Done));
        }
    }

    /// Moves all committers to `woken`: the log has failed.
    pub(super) fn wake_failed(&mut self, woken: &mut WakeList) {
        let all = self.durable.drain(..).chain(self.written.drain(..));
        all.for_each(|waiter| woken.push(waiter, WakeReason::Failed));
    }

    /// Returns the thread that syncs the log files for those that wait for the device, if there is
    /// one. The caller must wake that thread.
    pub(super) fn take_durable(&mut self) -> Option<NextThread> {
        take_at(&mut self.durable, 0)
    }

    /// Returns the thread that writes the open group for those that wait for a position beyond
    /// `lsn`, if there is one. The caller must wake that thread.
    pub(super) fn take_beyond(&mut self, lsn: Lsn) -> Option<NextThread> {
        let durable = up_to(&self.durable, lsn);
        let written = up_to(&self.written, lsn);
        match (self.durable.get(durable), self.written.get(written)) {
            (Some(one), Some(other)) if other.lsn < one.lsn => take_at(&mut self.written, written),
            (Some(_), _) => take_at(&mut self.durable, durable),
            (None, _) => take_at(&mut self.written, written),
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.durable.is_empty() && self.written.is_empty()
    }
}

/// Committers to wake once the log's mutex is released, because a wake-up is a system call. The
/// memory of the list is kept per thread for its next use.
pub(super) struct WakeList {
    asleep: Vec<(Arc<Parker>, WakeReason)>,
    /// The acknowledgements of absent committers, and whether their commits are durable. The log
    /// writer must send them.
    pub absent: Vec<(Acknowledgement, bool)>,
}

impl WakeList {
    pub(super) fn new() -> Self {
        Self {
            asleep: WOKEN.take(),
            absent: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, waiter: CommitWaiter, signal: WakeReason) {
        match waiter.committer {
            Committer::Asleep(parker) => self.asleep.push((parker, signal)),
            Committer::Absent(sent) => self.absent.push((sent, signal == WakeReason::Done)),
        }
    }

    /// Drops the list without waking anyone, and returns the reasons of the wake-ups.
    #[cfg(test)]
    pub(super) fn signals(mut self) -> Vec<WakeReason> {
        self.asleep.drain(..).map(|(_, signal)| signal).collect()
    }

    /// Wakes the committers in reverse push order. The next leader was pushed last, and the device
    /// is idle until the leader writes, so the leader is woken first.
    pub(super) fn wake(mut self) {
        while let Some((parker, signal)) = self.asleep.pop() {
            parker.wake(signal);
        }
        WOKEN.set(std::mem::take(&mut self.asleep));
    }
}

#[cfg(test)]
mod tests;
