//! The work of the background thread for a node: connections, late answers, probes, puts, figures.

use super::{DEADLINE_US_MAX, Node};
use crate::connection::{Connection, Received, Wait};
use crate::link::{Clock, Link};
use crate::meta::{Answer, Commands};
use crate::name::Name;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Longest time for a connect, or for an exchange of few bytes, microseconds.
const BACKGROUND_US: u64 = 100_000;
/// Bytes that a put is allowed a microsecond beyond that.
const PUT_BYTES_PER_US: u64 = 10;
/// Longest time for the answer to a probe.
const PROBE_US: u64 = 20_000;
/// Probes on one connection that may stay unanswered before another connection is tried.
const UNANSWERED_MAX: u32 = 8;
/// A node has room while less of its memory is used, and nothing was evicted lately. Nodes cannot
/// fill their memory: pages belong to size classes.
const ROOM_SHARE: f64 = 0.85;

/// The connection of the background thread.
#[derive(Default)]
pub(super) struct Background {
    connection: Option<Connection>,
    unanswered: u32,
    /// A probe has shown how far away the node is.
    is_measured: bool,
}

/// How a batch of puts ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PutOutcome {
    /// The node has executed it, but has refused so many of the values.
    Done { refused: u64 },
    /// Nobody knows.
    Failed,
}

impl Node {
    /// Drains late answers, opens the connections that callers want, and probes a node that is
    /// silent or whose breaker is open. Returns whether late answers are still to come.
    pub(crate) fn keep_up(&self, link: &dyn Link, clock: &dyn Clock) -> bool {
        if self.connections.drain(clock) {
            self.on_broken(clock.now_us(), "a connection broke");
        }
        match self.breaker.probe_at_us() {
            Some(probe_at_us) => {
                if clock.now_us() >= probe_at_us {
                    self.probe(link, clock);
                }
                return false;
            }
            None if self.connections.owes() => self.ask_whether_alive(link, clock),
            None => {}
        }
        if self.breaker.is_closed() && self.connections.wants() {
            match self.connect(link, clock) {
                Some(connection) => self.connections.add(connection),
                None => self.on_broken(clock.now_us(), "it refuses connections"),
            }
        }
        self.connections.has_late()
    }

    /// A new connection. If there is none, the reason is kept.
    fn connect(&self, link: &dyn Link, clock: &dyn Clock) -> Option<Connection> {
        match link.connect(&self.spec.address, clock.now_us() + BACKGROUND_US) {
            Ok(socket) => Some(Connection::new(socket)),
            Err(error) => {
                self.note_unreachable(&error, clock);
                None
            }
        }
    }

    fn note_unreachable(&self, error: &io::Error, clock: &dyn Clock) {
        self.unreachable
            .note(error, clock.now_us(), &self.spec, &self.log);
    }

    /// Closes all connections that nobody uses.
    pub(crate) fn close(&self) {
        self.connections.close();
        self.background.lock().connection = None;
    }

    /// The node owes a caller an answer. If it answers a probe, one answer is lost or slow, and the
    /// node is asked again; if not, the breaker opens.
    fn ask_whether_alive(&self, link: &dyn Link, clock: &dyn Clock) {
        if self.answers(link, clock) {
            self.connections.forgive();
        } else if self.breaker.on_silent(clock.now_us()) {
            self.connections.close();
            self.log_opened(clock.now_us(), "it is silent");
        }
    }

    /// Closes the breaker if the node answers.
    fn probe(&self, link: &dyn Link, clock: &dyn Clock) {
        let answers = self.answers(link, clock);
        let wants = answers && self.connections.wants();
        let connection = wants.then(|| self.connect(link, clock));
        match connection {
            None | Some(Some(_)) if answers => {
                // Late answers of before are of no use now.
                self.connections.close();
                if let Some(connection) = connection.flatten() {
                    self.connections.add(connection);
                }
                self.breaker.close(clock.now_us());
                if self.logged.load(Relaxed) {
                    (self.log)(&format!("pool node {} is asked again", self.spec.address));
                }
            }
            _ => self.breaker.probe_failed(clock.now_us()),
        }
    }

    /// Whether the node answers an empty batch. A connection whose probe is unanswered is kept: a
    /// stopped node would get one connection after the other.
    fn answers(&self, link: &dyn Link, clock: &dyn Clock) -> bool {
        let mut background = self.background.lock();
        if background.unanswered >= UNANSWERED_MAX {
            *background = Background {
                is_measured: background.is_measured,
                ..Default::default()
            };
        }
        if background.connection.is_none() {
            background.connection = self.connect(link, clock);
        }
        let Some(connection) = &mut background.connection else {
            return false;
        };
        let sent_us = clock.now_us();
        let wait = Wait {
            poll_until_us: 0,
            deadline_us: sent_us + PROBE_US,
        };
        let was_pending = connection.is_pending();
        let received =
            match was_pending || connection.send_puts(Commands::default(), wait.deadline_us) {
                true => connection.receive(clock, wait, &mut |_, _| {}),
                false => Received::Broken,
            };
        match received {
            Received::Ended => {
                self.unreachable.clear();
                background.unanswered = 0;
                if !was_pending && !background.is_measured {
                    background.is_measured = true;
                    let took_us = clock.now_us().saturating_sub(sent_us);
                    self.latency.set(took_us.clamp(1, DEADLINE_US_MAX));
                }
            }
            Received::Late => background.unanswered += 1,
            // By TLS, a node turns a client away after that thinks it is connected.
            Received::Broken => {
                let connection = background.connection.take();
                drop(background);
                if let Some(error) = connection.as_ref().and_then(Connection::error) {
                    self.note_unreachable(error, clock);
                }
            }
        }
        received == Received::Ended
    }

    /// Sends a batch of puts and deletions, and waits for its end.
    pub(crate) fn put(&self, link: &dyn Link, clock: &dyn Clock, commands: Commands) -> PutOutcome {
        let mut refused = 0;
        let us = BACKGROUND_US + commands.bytes().len() as u64 / PUT_BYTES_PER_US;
        let done = self.in_background(link, clock, us, |connection, wait| {
            connection.send_puts(commands, wait.deadline_us)
                && connection.receive(clock, wait, &mut |_, _| refused += 1) == Received::Ended
        });
        if done {
            PutOutcome::Done { refused }
        } else {
            PutOutcome::Failed
        }
    }

    /// Gets values of at most `value_max` bytes without the deadline of a query. None if the node
    /// did not answer all.
    pub(crate) fn get_in_background(
        &self,
        link: &dyn Link,
        clock: &dyn Clock,
        names: &[Name],
        value_max: usize,
    ) -> Option<Vec<Option<Vec<u8>>>> {
        let mut values = vec![None; names.len()];
        let done = self.in_background(link, clock, BACKGROUND_US, |connection, wait| {
            connection.send_gets(names.iter(), value_max, wait.deadline_us)
                && connection.receive(clock, wait, &mut |index, answer| {
                    if let (Some(slot), Answer::Value { value, .. }) =
                        (values.get_mut(index), answer)
                    {
                        *slot = Some(value.to_vec());
                    }
                }) == Received::Ended
        });
        done.then_some(values)
    }

    /// Asks the node how much memory it has and uses.
    pub(crate) fn read_figures(&self, link: &dyn Link, clock: &dyn Clock) {
        let evictions = self.figures.evictions.load(Relaxed);
        let done = self.in_background(link, clock, BACKGROUND_US, |connection, wait| {
            connection.send_stats(wait.deadline_us)
                && connection.receive(clock, wait, &mut |_, answer| self.note(answer))
                    == Received::Ended
        });
        if !done {
            return;
        }
        let [used, limit] = [&self.figures.used_bytes, &self.figures.limit_bytes];
        let below = (used.load(Relaxed) as f64) < limit.load(Relaxed) as f64 * ROOM_SHARE;
        let evicts = self.figures.evictions.load(Relaxed) > evictions;
        self.figures.has_room.store(below && !evicts, Relaxed);
    }

    /// Bytes that the node says it may use, when it was last asked.
    pub(crate) fn limit_bytes(&self) -> u64 {
        self.figures.limit_bytes.load(Relaxed)
    }

    fn note(&self, answer: Answer) {
        let Answer::Counter(name, value) = answer else {
            return;
        };
        let figure: &AtomicU64 = match name {
            "bytes" => &self.figures.used_bytes,
            "limit_maxbytes" => &self.figures.limit_bytes,
            "curr_items" => &self.figures.items,
            "evictions" => &self.figures.evictions,
            _ => return,
        };
        if let Ok(value) = value.parse() {
            figure.store(value, Relaxed);
        }
    }

    /// Does something with the background thread's connection, which is opened if need be. What
    /// fails closes it; the breaker opens if a probe on another one fails, too.
    fn in_background(
        &self,
        link: &dyn Link,
        clock: &dyn Clock,
        us: u64,
        work: impl FnOnce(&mut Connection, Wait) -> bool,
    ) -> bool {
        if !self.breaker.is_closed() {
            return false;
        }
        let mut background = self.background.lock();
        if background.connection.is_none() {
            background.connection = self.connect(link, clock);
        }
        let done = background.connection.as_mut().is_some_and(|connection| {
            let deadline_us = clock.now_us() + us;
            work(
                connection,
                Wait {
                    poll_until_us: 0,
                    deadline_us,
                },
            )
        });
        if !done {
            background.connection = None;
            drop(background);
            if !self.answers(link, clock) {
                self.on_broken(clock.now_us(), "it does not answer");
            }
        }
        done
    }
}
