//! Thousands of writers at the stall gate, on a virtual clock: the real queue of writers, token
//! bucket and ledger of the stall gate, with simulated threads that wake late, disks that stall,
//! and kills.
//!
//! Each event happens at a time that follows from the seed: a writer arrives, wakes by its timer or
//! because another has woken it, ends its commit, or is killed; or the mode of the gate changes.
//! Between a wakeup and the moment when the thread runs lies a random latency.

use firn::write::admission::{Admission, Arrival, GateCharge, Look, Mode, TicketNumber, Wake};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::rc::Rc;

/// Time between a wakeup and the moment when the thread runs, microseconds.
const LATENCY_US: Range<u64> = 10..200;

/// Time from a pass until the end of the commit, microseconds.
const COMMIT_US: Range<u64> = 50..2000;

/// Time after which a writer that has failed tries again, microseconds.
const RETRY_US: u64 = 50_000;

/// The parameters of a run.
#[derive(Debug, Clone)]
pub struct GatePlan {
    /// The seed of latencies and sizes.
    pub seed: u64,
    /// Writers at full speed.
    pub writers: usize,
    /// Bytes of a commit.
    pub size: Range<u64>,
    /// The size that the gate expects at first, bytes.
    pub typical: f64,
    /// Changes of the gate's mode, at times in microseconds.
    pub modes: Vec<(u64, Mode)>,
    /// Kills of writers, at times in microseconds.
    pub kills: Vec<(u64, usize)>,
    /// When writers stop to come again, microseconds.
    pub end_us: u64,
}

/// A pass of a writer that had to wait.
#[derive(Debug, Clone, Copy)]
pub struct Pass {
    /// Its ticket.
    pub ticket: TicketNumber,
    /// When it passed, microseconds.
    pub at_us: u64,
    /// How long it had waited, microseconds.
    pub wait_us: u64,
    /// How often its thread ran while it waited.
    pub runs: u64,
}

/// The outcome of a run.
#[derive(Debug, Default)]
pub struct GateOutcome {
    /// Passes after a wait, in the order of time.
    pub passes: Vec<Pass>,
    /// All passes.
    pub passed: u64,
    /// Committed bytes, by second.
    pub bytes: Vec<u64>,
    /// Writers that failed while the gate refused them.
    pub failed: u64,
    /// Times from a kill until its writer gave up, microseconds.
    pub kills_us: Vec<u64>,
    /// Writers that still waited when no event was left.
    pub lost: usize,
    /// The most writers that were woken and had not run yet.
    pub herd: usize,
    /// Times that writers were woken other than by their timers.
    pub wakes: u64,
    /// Visited tickets.
    pub visits: u64,
    /// Calls of the [`Admission`].
    pub calls: u64,
}

impl GateOutcome {
    /// The longest time by which a writer passed the gate after a writer that had come later,
    /// microseconds.
    pub fn overtaken_us(&self) -> u64 {
        let mut by_ticket: Vec<&Pass> = self.passes.iter().collect();
        by_ticket.sort_by_key(|pass| pass.ticket);
        let (mut longest, mut earliest_behind) = (0, u64::MAX);
        for pass in by_ticket.into_iter().rev() {
            longest = longest.max(pass.at_us.saturating_sub(earliest_behind));
            earliest_behind = earliest_behind.min(pass.at_us);
        }
        longest
    }

    /// The wait that the given share of all waits does not exceed, microseconds.
    pub fn wait_us(&self, share: f64) -> u64 {
        let mut waits: Vec<u64> = self.passes.iter().map(|pass| pass.wait_us).collect();
        waits.sort_unstable();
        let at = (waits.len() as f64 * share) as usize;
        waits
            .get(at.min(waits.len().saturating_sub(1)))
            .copied()
            .unwrap_or(0)
    }
}

/// The handle of a sleeping writer.
struct Sleeper {
    writer: usize,
    woken: Rc<RefCell<Vec<usize>>>,
}

impl Wake for Sleeper {
    fn wake(&self) {
        self.woken.borrow_mut().push(self.writer);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrive(usize),
    /// A timer with its number.
    Timer(usize, u64),
    /// A wakeup with its number.
    Woken(usize, u64),
    Commit(usize),
    Kill(usize),
    Mode(usize),
}

#[derive(Default, Clone)]
struct Writer {
    ticket: Option<TicketNumber>,
    came_us: u64,
    runs: u64,
    /// Number of the timer that is set; others have no effect.
    timer: u64,
    /// It was woken and has not run yet.
    woken: bool,
    /// Number of its last wakeup. A wakeup has no effect if the timer has let the writer run first.
    wakeup: u64,
    killed_us: Option<u64>,
    charge: GateCharge,
    bytes: u64,
}

struct Machine {
    plan: GatePlan,
    rng: StdRng,
    now: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    numbered: u64,
    line: Admission<Sleeper>,
    woken: Rc<RefCell<Vec<usize>>>,
    herd: usize,
    writers: Vec<Writer>,
    outcome: GateOutcome,
}

/// Runs `plan` until nothing is left to happen.
pub fn run(plan: GatePlan) -> GateOutcome {
    let mut machine = Machine {
        rng: StdRng::seed_from_u64(plan.seed),
        now: 0,
        events: BinaryHeap::new(),
        numbered: 0,
        line: Admission::default(),
        woken: Rc::default(),
        herd: 0,
        writers: vec![Writer::default(); plan.writers],
        outcome: GateOutcome::default(),
        plan,
    };
    for at in 0..machine.plan.modes.len() {
        machine.at(machine.plan.modes[at].0, Event::Mode(at));
    }
    for (when, writer) in machine.plan.kills.clone() {
        machine.at(when, Event::Kill(writer));
    }
    for writer in 0..machine.plan.writers {
        machine.at(1, Event::Arrive(writer));
    }
    while let Some(Reverse((now, _, event))) = machine.events.pop() {
        machine.now = now;
        machine.happens(event);
        machine.deliver();
    }
    machine.outcome.lost = machine.line.waiting();
    machine.outcome.wakes = machine.line.wakes();
    machine.outcome.visits = machine.line.visits();
    machine.outcome
}

impl Machine {
    fn at(&mut self, when: u64, event: Event) {
        self.numbered += 1;
        self.events.push(Reverse((when, self.numbered, event)));
    }

    /// Lets the threads run later that the last event has woken.
    fn deliver(&mut self) {
        for writer in self.woken.take() {
            if !std::mem::replace(&mut self.writers[writer].woken, true) {
                self.herd += 1;
                self.outcome.herd = self.outcome.herd.max(self.herd);
                self.writers[writer].wakeup += 1;
                let runs = self.now + self.rng.random_range(LATENCY_US);
                self.at(runs, Event::Woken(writer, self.writers[writer].wakeup));
            }
        }
    }

    fn happens(&mut self, event: Event) {
        self.outcome.calls += 1;
        match event {
            Event::Mode(at) => {
                let typical = Some(self.plan.typical);
                self.line.set_mode(self.now, self.plan.modes[at].1, typical);
            }
            Event::Arrive(writer) => self.arrive(writer),
            Event::Timer(writer, timer) => {
                if self.writers[writer].timer == timer {
                    self.runs(writer);
                }
            }
            Event::Woken(writer, wakeup) => {
                let Writer {
                    woken,
                    wakeup: last,
                    ..
                } = self.writers[writer];
                if woken && wakeup == last {
                    self.runs(writer);
                }
            }
            Event::Kill(writer) => {
                self.writers[writer].killed_us = Some(self.now);
                self.woken.borrow_mut().push(writer);
            }
            Event::Commit(writer) => {
                let Writer { charge, bytes, .. } = self.writers[writer];
                self.line.committed(bytes);
                self.line.settle(self.now, charge, bytes);
                let second = (self.now / 1_000_000) as usize;
                if self.outcome.bytes.len() <= second {
                    self.outcome.bytes.resize(second + 1, 0);
                }
                self.outcome.bytes[second] += bytes;
                if self.now < self.plan.end_us {
                    self.arrive(writer);
                }
            }
        }
    }

    fn arrive(&mut self, writer: usize) {
        let woken = Rc::clone(&self.woken);
        let arrival = self.line.arrive(self.now, || Sleeper { writer, woken });
        match arrival {
            Arrival::Pass(charge) => self.pass(writer, charge),
            Arrival::Fail => self.fail(writer),
            Arrival::Wait(ticket) => {
                let waiting = &mut self.writers[writer];
                waiting.ticket = Some(ticket);
                waiting.came_us = self.now;
                waiting.runs = 0;
                self.look(writer);
            }
        }
    }

    fn pass(&mut self, writer: usize, charge: GateCharge) {
        self.outcome.passed += 1;
        self.writers[writer].charge = charge;
        self.writers[writer].bytes = self.rng.random_range(self.plan.size.clone());
        let ends = self.now + self.rng.random_range(COMMIT_US);
        self.at(ends, Event::Commit(writer));
    }

    fn fail(&mut self, writer: usize) {
        self.outcome.failed += 1;
        if self.now < self.plan.end_us {
            self.at(self.now + RETRY_US, Event::Arrive(writer));
        }
    }

    /// The thread of a waiting writer runs, because of its timer or of a wakeup.
    fn runs(&mut self, writer: usize) {
        if std::mem::take(&mut self.writers[writer].woken) {
            self.herd -= 1;
        }
        self.look(writer);
    }

    /// A writer looks at its ticket.
    fn look(&mut self, writer: usize) {
        let Some(ticket) = self.writers[writer].ticket else {
            return;
        };
        self.writers[writer].timer += 1;
        self.writers[writer].runs += 1;
        let Writer {
            timer,
            came_us,
            runs,
            killed_us,
            ..
        } = self.writers[writer];
        match self.line.look(self.now, ticket) {
            Look::Sleep(_) if killed_us.is_some_and(|killed| killed >= came_us) => {
                self.writers[writer].ticket = None;
                self.line.give_up(self.now, ticket);
                let killed_us = killed_us.unwrap_or(self.now);
                self.outcome.kills_us.push(self.now - killed_us);
            }
            Look::Sleep(until) => {
                if let Some(until) = until {
                    let runs = until + self.rng.random_range(LATENCY_US);
                    self.at(runs, Event::Timer(writer, timer));
                }
            }
            Look::Pass(charge) => {
                self.writers[writer].ticket = None;
                self.outcome.passes.push(Pass {
                    ticket,
                    at_us: self.now,
                    wait_us: self.now - came_us,
                    runs,
                });
                self.pass(writer, charge);
            }
            Look::Fail => {
                self.writers[writer].ticket = None;
                self.fail(writer);
            }
        }
    }
}

#[cfg(test)]
mod tests;
