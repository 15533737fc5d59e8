//! The session that waits at the stall gate, as the gate sees it.

use crate::base::parker::Parker;
use std::sync::Arc;
use std::time::Duration;

/// The session that passes the gate. The gate calls it on the session's own thread and holds no
/// lock meanwhile.
pub trait GateWaiter {
    /// Whether the session was killed. Asked after each wakeup.
    fn is_interrupted(&self) -> bool;

    /// Tells the session that its thread is about to sleep in `parker`, or with `None` that it
    /// sleeps no more. A thread that kills the session must wake the parker.
    fn parks(&self, parker: Option<Arc<Parker>>);

    /// The longest time that the session waits; `None` for no limit.
    fn timeout(&self) -> Option<Duration> {
        None
    }

    /// Tells the host that the thread is about to sleep for a while, so that a thread pool can
    /// start another one.
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
    /// Another thread woke the writer, because its time came earlier than expected or the gate
    /// opened.
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
