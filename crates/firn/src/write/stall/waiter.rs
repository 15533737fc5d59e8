//! The session that waits at the stall gate, as the gate sees it.

use crate::base::parker::Parker;
use std::sync::Arc;
use std::time::Duration;

/// The session that passes the gate. All calls come from its own thread, without locks.
pub trait GateWaiter {
    /// Whether the session was killed. Asked after each wakeup.
    fn is_interrupted(&self) -> bool;

    /// The session is going to sleep in `parker`, or does not any more. Whoever kills the session
    /// wakes it there.
    fn parks(&self, parker: Option<Arc<Parker>>);

    /// How long the session waits at most; `None` for as long as it takes.
    fn timeout(&self) -> Option<Duration> {
        None
    }

    /// The thread is about to sleep for a while: a thread pool may start another one.
    fn sleeps(&self) {}

    /// The wait that [`Self::sleeps`] has announced is over.
    fn wakes(&self) {}
}

/// The event that ended a wait at the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum StallEnd {
    /// The writer's own timer: its time had come.
    Timer = 0,
    /// Another thread has woken it, because its time came earlier than expected or the gate opened.
    Woken = 1,
    /// The session was killed.
    Kill = 2,
    /// The session's lock wait timeout.
    Timeout = 3,
    /// The failure of the work for which it was stopped.
    Failure = 4,
}

/// All ends, with their names in reports.
pub const STALL_ENDS: [(StallEnd, &str); 5] = [
    (StallEnd::Timer, "at its time"),
    (StallEnd::Woken, "when woken"),
    (StallEnd::Kill, "after a kill"),
    (StallEnd::Timeout, "after the lock timeout"),
    (StallEnd::Failure, "after a failure"),
];
