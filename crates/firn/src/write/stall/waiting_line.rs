//! The writers that wait at the gate, in the order in which they came.

use crate::base::Result;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::Thread;
use std::time::Duration;

/// A writer's place in the line. The thread that made it waits by it.
#[derive(Debug)]
pub(super) struct Ticket {
    thread: Thread,
    /// Set once, when the ticket leaves the line at the front.
    result: Mutex<Option<Result<()>>>,
}

impl Ticket {
    /// Sleeps until somebody wakes this writer, or longer; it may wake for nothing.
    pub(super) fn wait(&self, timeout: Duration) {
        std::thread::park_timeout(timeout);
    }

    /// Takes the result, once the ticket was admitted.
    pub(super) fn result(&self) -> Option<Result<()>> {
        self.result.lock().take()
    }

    fn admit(&self, result: Result<()>) {
        *self.result.lock() = Some(result);
        self.thread.unpark();
    }
}

/// A queue of tickets. Its owner's mutex guards it. All operations but [`Self::leave`] take the
/// same time however many wait.
#[derive(Debug, Default)]
pub(super) struct WaitingLine {
    tickets: VecDeque<Arc<Ticket>>,
}

impl WaitingLine {
    /// Puts the current thread at the end.
    pub(super) fn join(&mut self) -> Arc<Ticket> {
        let ticket = Arc::new(Ticket {
            thread: std::thread::current(),
            result: Mutex::new(None),
        });
        self.tickets.push_back(Arc::clone(&ticket));
        ticket
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tickets.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.tickets.len()
    }

    pub(super) fn is_first(&self, ticket: &Arc<Ticket>) -> bool {
        let first = self.tickets.front();
        first.is_some_and(|first| Arc::ptr_eq(first, ticket))
    }

    /// Takes the first ticket out of the line and gives it its result.
    pub(super) fn admit_first(&mut self, result: Result<()>) {
        if let Some(ticket) = self.tickets.pop_front() {
            ticket.admit(result);
        }
    }

    /// Wakes the first writer, so that it computes its timer.
    pub(super) fn wake_first(&self) {
        if let Some(ticket) = self.tickets.front() {
            ticket.thread.unpark();
        }
    }

    /// Takes a ticket out of the line whose writer has given up. The next first gets the timer.
    pub(super) fn leave(&mut self, ticket: &Arc<Ticket>) {
        self.tickets.retain(|other| !Arc::ptr_eq(other, ticket));
        self.wake_first();
    }
}

#[cfg(test)]
mod tests;
