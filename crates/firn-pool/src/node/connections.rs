//! The connections of callers to a node: idle, taken by one thread each, or late.
//!
//! While a node owes a late answer, callers pass it by. The number of answers that it owes is kept
//! under the same mutex as the list of late connections, those that are being drained included, and
//! callers read it without the mutex.

use crate::connection::{Connection, Received, Wait};
use crate::link::Clock;
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// Connections to a node: the background thread has one, callers share the others.
const CONNECTIONS: usize = 8;
const CALLERS_MAX: usize = CONNECTIONS - 1;
/// A connection whose answer is late for longer than this is dropped.
const LATE_US_MAX: u64 = 1_000_000;

/// The connections.
#[derive(Default)]
pub(super) struct Connections {
    lists: Mutex<Lists>,
    /// Signalled when a caller gives a connection back.
    given_back: Condvar,
    /// Copy of [`Lists::owed`].
    owed: AtomicUsize,
}

#[derive(Default)]
struct Lists {
    idle: Vec<Connection>,
    late: Vec<LateConnection>,
    taken: usize,
    /// Late connections that are away from `late` while they are drained.
    draining: usize,
    /// Late answers that keep callers away.
    owed: usize,
    /// Connections of an older generation are dropped when they come back.
    generation: u64,
    /// A caller found none, and fewer than allowed are open.
    wanted: bool,
}

struct LateConnection {
    connection: Connection,
    given_up_at_us: u64,
    /// It is one of [`Lists::owed`].
    is_owed: bool,
}

/// A connection that a caller has.
pub(super) struct Taken {
    pub(super) connection: Connection,
    generation: u64,
}

impl Connections {
    /// Whether callers pass the node by because it owes a late answer.
    pub(super) fn owes(&self) -> bool {
        self.owed.load(Relaxed) > 0
    }

    /// An idle connection. With `waits`, waits for one until `until_us`, while others have some.
    pub(super) fn take(&self, clock: &dyn Clock, until_us: u64, waits: bool) -> Option<Taken> {
        let mut lists = self.lists.lock();
        loop {
            if let Some(connection) = lists.idle.pop() {
                lists.taken += 1;
                return Some(Taken {
                    connection,
                    generation: lists.generation,
                });
            }
            lists.wanted |= lists.open() < CALLERS_MAX;
            if !waits || lists.taken == 0 {
                return None;
            }
            let left_us = until_us.saturating_sub(clock.now_us());
            if left_us == 0 {
                return None;
            }
            self.given_back
                .wait_for(&mut lists, Duration::from_micros(left_us));
        }
    }

    /// The batch has ended.
    pub(super) fn give_back(&self, taken: Taken) {
        let mut lists = self.lists.lock();
        lists.taken -= 1;
        // A dropped connection closes its socket: not under the mutex.
        let old = match taken.generation == lists.generation {
            true => {
                lists.idle.push(taken.connection);
                None
            }
            false => Some(taken.connection),
        };
        drop(lists);
        self.given_back.notify_one();
        drop(old);
    }

    /// The batch missed its deadline.
    pub(super) fn give_late(&self, taken: Taken, now_us: u64) {
        let mut lists = self.lists.lock();
        lists.taken -= 1;
        if taken.generation != lists.generation {
            drop(lists);
            return;
        }
        lists.late.push(LateConnection {
            connection: taken.connection,
            given_up_at_us: now_us,
            is_owed: true,
        });
        lists.owed += 1;
        self.owed.store(lists.owed, Relaxed);
    }

    /// A taken connection is useless.
    pub(super) fn lose(&self) {
        self.lists.lock().taken -= 1;
        self.given_back.notify_one();
    }

    /// Closes all connections, taken ones when they come back.
    pub(super) fn close(&self) {
        let mut lists = self.lists.lock();
        lists.generation += 1;
        lists.owed = 0;
        self.owed.store(0, Relaxed);
        let closed = (
            std::mem::take(&mut lists.idle),
            std::mem::take(&mut lists.late),
        );
        drop(lists);
        drop(closed);
    }

    /// The node answers others: callers need not wait for what it owes.
    pub(super) fn forgive(&self) {
        let mut lists = self.lists.lock();
        lists.late.iter_mut().for_each(|late| late.is_owed = false);
        lists.owed = 0;
        self.owed.store(0, Relaxed);
    }

    /// Takes what has arrived of late answers, without waiting. Called by the background thread
    /// only.
    /// Returns whether the node has sent what the protocol does not allow, or has hung up.
    pub(super) fn drain(&self, clock: &dyn Clock) -> bool {
        let mut lists = self.lists.lock();
        if lists.late.is_empty() {
            return false;
        }
        let late = std::mem::take(&mut lists.late);
        lists.draining = late.len();
        let generation = lists.generation;
        drop(lists);
        let (mut still_late, mut drained, mut dropped) = (Vec::new(), Vec::new(), Vec::new());
        let (mut broken, mut paid) = (false, 0);
        for mut late in late {
            let now_us = clock.now_us();
            // One read a call: a node that floods does not hold this thread up.
            let wait = Wait {
                poll_until_us: now_us,
                deadline_us: now_us,
            };
            let received = late.connection.receive(clock, wait, &mut |_, _| {});
            if received == Received::Late && now_us < late.given_up_at_us + LATE_US_MAX {
                still_late.push(late);
                continue;
            }
            broken |= received == Received::Broken;
            paid += usize::from(late.is_owed);
            match received {
                Received::Ended => drained.push(late.connection),
                _ => dropped.push(late.connection),
            }
        }
        let mut lists = self.lists.lock();
        lists.draining = 0;
        if lists.generation == generation {
            lists.idle.append(&mut drained);
            lists.late.append(&mut still_late);
            lists.owed = lists.owed.saturating_sub(paid);
            self.owed.store(lists.owed, Relaxed);
        }
        drop(lists);
        self.given_back.notify_all();
        broken
    }

    /// Whether late answers are to come.
    pub(super) fn has_late(&self) -> bool {
        !self.lists.lock().late.is_empty()
    }

    /// Whether another connection is to be opened.
    pub(super) fn wants(&self) -> bool {
        let lists = self.lists.lock();
        lists.open() == 0 || lists.wanted && lists.open() < CALLERS_MAX
    }

    /// Adds an open connection.
    pub(super) fn add(&self, connection: Connection) {
        let mut lists = self.lists.lock();
        lists.wanted = false;
        lists.idle.push(connection);
        drop(lists);
        self.given_back.notify_one();
    }
}

impl Lists {
    fn open(&self) -> usize {
        self.idle.len() + self.late.len() + self.draining + self.taken
    }
}
