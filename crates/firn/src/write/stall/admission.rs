//! The writers that wait at the stall gate, in the order in which they came: the *line*. This
//! module has no clock, no lock and no thread. The gate gives it the time and wakes the threads; in
//! the simulation, the simulation does both.
//!
//! Each waiting writer has a ticket with a [`Place`], from which the time follows at which the
//! writer may go. Only the first [`WINDOW`] writers of the line, the *window*, sleep with a timer.
//! All others sleep until they are woken. A writer that leaves wakes the writer that thereby enters
//! the window, and that one sets its timer. So each wait costs two wakeups, however many writers
//! wait, and at most `WINDOW` woken writers contend for the gate's mutex at a time. The times of
//! tickets change while writers sleep: when the rate changes, when a transaction commits another
//! size than it was charged, when a writer ahead is killed, and when the gate opens. Then the
//! writers of the window whose timers are late are woken, and further writers when these leave. So
//! each change costs the same, however many writers wait.
//!
//! Rejected: a timer for each waiting writer. The differences between charges and sizes add up over
//! thousands of tickets, so most timers are wrong, and it costs a wakeup to set one again.
//!
//! Invariants
//! - Positions grow along the line. So the writers that may go are the first ones of the line. A
//!   new writer whose position is granted passes at once, and does not wait for the threads before
//!   it to wake up: those may go in any case, even if granted bytes are taken back.
//! - If a writer of the window may go now, or may go much earlier than its timer says, it has been
//!   woken. Each change, and each writer that leaves, restores this invariant.
//! - The ticket of a writer that has given up stays in the line until it is the first ticket. Then
//!   its bytes are granted, so the writers behind it go sooner, and the writers before it do not.

use super::pace::{Pace, Place};
use std::collections::VecDeque;

/// Number of writers at the head of the line that sleep with timers. About this many writers pass
/// in the millisecond that a thread may take to wake up.
pub const WINDOW: usize = 16;

/// A timer may be late by this many microseconds before its writer is woken to set it anew. This is
/// less than the time for which unused bytes of the rate stay granted, so no rate is lost.
const LATE_US: u64 = 5000;

/// Wakes a sleeping writer, which then looks at its ticket. If the writer does not sleep yet, the
/// wakeup makes its next sleep end at once.
pub trait Wake {
    /// Wakes the writer.
    fn wake(&self);
}

/// Whether writers pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// All pass.
    Open,
    /// Writers pass at this rate, bytes a second.
    Limited(u64),
    /// Nobody passes.
    Stopped,
    /// Nobody passes, and the background work that should make room fails: all writers give up.
    Failing,
}

/// The sum of the charges for a transaction's passes through the gate. It is settled when the
/// transaction ends. The default is no charge.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GateCharge {
    limit: u64,
    bytes: u64,
    passes: u32,
}

impl GateCharge {
    /// Adds the charge of a further statement.
    pub fn add(&mut self, further: Self) {
        if self.limit != further.limit {
            // A charge of an earlier limit is void.
            *self = further;
        } else {
            self.bytes += further.bytes;
            self.passes += further.passes;
        }
    }

    /// Whether there is nothing to settle.
    pub fn is_empty(&self) -> bool {
        self.passes == 0
    }
}

/// Number of a waiting writer in the order of arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TicketNumber(u64);

/// The answer to a writer that arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// The writer passes.
    Pass(GateCharge),
    /// The writer waits with this ticket.
    Wait(TicketNumber),
    /// The writer gives up.
    Fail,
}

/// The answer to a waiting writer that looks at its ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// The writer passes, and its ticket is gone.
    Pass(GateCharge),
    /// The writer gives up, and its ticket is gone.
    Fail,
    /// The writer sleeps until this time in microseconds, or, for `None`, until it is woken.
    Sleep(Option<u64>),
}

struct Ticket<W> {
    place: Place,
    /// The time at which the writer wakes by its timer, `u64::MAX` without a timer. If the writer
    /// was woken since it set the timer: the time for which it was woken.
    wakes_us: u64,
    /// `None` once the writer has passed or given up.
    writer: Option<W>,
    /// If the writer has given up: the bytes of its place in the line. They are granted to the
    /// writers behind it when this ticket has become the first of the line.
    unused: f64,
}

/// The line; see the top of this file.
pub struct Admission<W> {
    pace: Pace,
    mode: Mode,
    /// Number of the limit in force, or else of the last one.
    limit: u64,
    line: VecDeque<Ticket<W>>,
    /// Number of the first ticket in `line`.
    first: u64,
    /// Writers that wait.
    waiting: usize,
    wakes: u64,
    /// Tickets visited.
    visits: u64,
}

impl<W> Default for Admission<W> {
    fn default() -> Self {
        Self {
            pace: Pace::default(),
            mode: Mode::Open,
            limit: 0,
            line: VecDeque::new(),
            first: 0,
            waiting: 0,
            wakes: 0,
            visits: 0,
        }
    }
}

impl<W: Wake> Admission<W> {
    /// Changes the mode of the gate. If the gate was open, is not open with the new mode, and no
    /// writer waits, a limit begins. Only then is `typical` used: the mean size of recent commits
    /// in bytes, `None` if it is not known.
    pub fn set_mode(&mut self, now_us: u64, mode: Mode, typical: Option<f64>) {
        // If writers of an earlier limit still wait, do not begin a new limit: the positions of
        // these writers would lose their order.
        if self.mode == Mode::Open && mode != Mode::Open && self.waiting == 0 {
            self.limit += 1;
            self.pace.begin(now_us, typical);
        }
        let rate = match mode {
            Mode::Limited(rate) => rate.max(1),
            Mode::Open | Mode::Stopped | Mode::Failing => 0,
        };
        self.mode = mode;
        self.pace.set_rate(now_us, rate);
        self.wake_window();
    }

    /// The mode in force.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Decides about a writer that arrives. Calls `writer` for a handle to wake it by, if it has to
    /// wait.
    pub fn arrive(&mut self, now_us: u64, writer: impl FnOnce() -> W) -> Arrival {
        self.pace.advance(now_us);
        match self.mode {
            Mode::Open => return Arrival::Pass(GateCharge::default()),
            Mode::Failing => return Arrival::Fail,
            Mode::Limited(_) | Mode::Stopped => {}
        }
        let place = self.pace.place();
        if self.may_go(place) {
            return Arrival::Pass(self.charge(place));
        }
        let number = self.first + self.line.len() as u64;
        self.line.push_back(Ticket {
            place,
            // The writer looks at its ticket before it sleeps.
            wakes_us: 0,
            writer: Some(writer()),
            unused: 0.0,
        });
        self.waiting += 1;
        Arrival::Wait(TicketNumber(number))
    }

    /// Decides about a waiting writer that is about to sleep or has woken up.
    pub fn look(&mut self, now_us: u64, number: TicketNumber) -> Look {
        self.pace.advance(now_us);
        let at = (number.0 - self.first) as usize;
        let place = self.line[at].place;
        let answer = match self.mode {
            Mode::Open => Look::Pass(GateCharge::default()),
            Mode::Failing => Look::Fail,
            Mode::Limited(_) if self.may_go(place) => Look::Pass(self.charge(place)),
            Mode::Limited(_) | Mode::Stopped => {
                let due_us = self.pace.due_us(self.first_position(), place.position);
                let until = due_us.filter(|_| at < WINDOW);
                self.line[at].wakes_us = until.unwrap_or(u64::MAX);
                return Look::Sleep(until);
            }
        };
        self.leave(at);
        answer
    }

    /// Removes a waiting writer that gives up, because it was killed or has waited for too long.
    pub fn give_up(&mut self, now_us: u64, number: TicketNumber) {
        self.pace.advance(now_us);
        let at = (number.0 - self.first) as usize;
        let unused = self.pace.give_up(self.line[at].place);
        self.line[at].unused = unused;
        self.leave(at);
    }

    /// Counts the bytes of a commit.
    pub fn committed(&mut self, bytes: u64) {
        if self.mode != Mode::Open {
            self.pace.committed(bytes);
        }
    }

    /// Corrects the granted bytes after a transaction has ended: at the gate it was charged
    /// `charge`, an estimate, and in fact it has committed `bytes`.
    pub fn settle(&mut self, now_us: u64, charge: GateCharge, bytes: u64) {
        if charge.limit != self.limit || charge.is_empty() {
            return;
        }
        self.pace.advance(now_us);
        self.pace.settle(charge.bytes, charge.passes, bytes);
        self.wake_window();
    }

    /// Writers that wait.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Number of times that a writer was woken other than by its timer.
    pub fn wakes(&self) -> u64 {
        self.wakes
    }

    /// Number of visits to tickets, as a measure of the work.
    pub fn visits(&self) -> u64 {
        self.visits
    }

    /// The token bucket.
    pub fn pace(&self) -> &Pace {
        &self.pace
    }

    fn may_go(&self, place: Place) -> bool {
        matches!(self.mode, Mode::Limited(_)) && self.pace.is_due(place.position)
    }

    fn charge(&mut self, place: Place) -> GateCharge {
        self.pace.goes(place.position);
        GateCharge {
            limit: self.limit,
            bytes: place.charge,
            passes: 1,
        }
    }

    fn leave(&mut self, at: usize) {
        self.line[at].writer = None;
        self.waiting -= 1;
        while self.line.front().is_some_and(|t| t.writer.is_none()) {
            self.visits += 1;
            let gone = self.line.pop_front();
            self.first += 1;
            self.pace.grant(gone.map_or(0.0, |gone| gone.unused));
        }
        self.wake_window();
    }

    fn first_position(&self) -> f64 {
        self.line
            .front()
            .map_or(0.0, |ticket| ticket.place.position)
    }

    /// Wakes the writers of the window that sleep for too long.
    fn wake_window(&mut self) {
        let first = self.first_position();
        for ticket in self.line.iter_mut().take(WINDOW) {
            self.visits += 1;
            let Some(writer) = &ticket.writer else {
                continue;
            };
            let due_us = match self.mode {
                Mode::Open | Mode::Failing => 0,
                Mode::Limited(_) | Mode::Stopped => self
                    .pace
                    .due_us(first, ticket.place.position)
                    .unwrap_or(u64::MAX),
            };
            if ticket.wakes_us > due_us.saturating_add(LATE_US) {
                ticket.wakes_us = due_us;
                self.wakes += 1;
                writer.wake();
            }
        }
    }
}

#[cfg(test)]
mod tests;
