//! One node: its connections, its breaker, and what is known of it.
//!
//! A get takes an idle connection, or waits a moment for one that another caller has, or goes
//! without: no caller ever connects. If the answer misses the deadline, the caller goes, and the
//! connection is *late*. Callers pass the node by while it owes an answer. The background thread,
//! which is woken, asks it for an empty answer at once: if that comes, callers are back, and the
//! late
//! connection serves again when it is drained; if not, the breaker opens.

mod connections;
mod unreachable;
mod upkeep;

use crate::ask::HitShares;
use crate::breaker::Breaker;
use crate::connection::{Received, Wait};
use crate::counters::{NodeCounters, NodeStats};
use crate::latency::MeanLatency;
use crate::link::Clock;
use crate::meta::Answer;
use crate::name::Name;
use crate::node_list::NodeSpec;
use connections::{Connections, Taken};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use unreachable::Unreachable;
use upkeep::Background;

pub(crate) use upkeep::PutOutcome;

/// The deadline is this many times the mean time of an answer,
const DEADLINE_FACTOR: f64 = 4.0;
/// but not shorter than this, microseconds,
pub(crate) const DEADLINE_US_MIN: u64 = 150;
/// and, but for the time that many bytes take, not longer than this.
pub(crate) const DEADLINE_US_MAX: u64 = 2000;
/// Time that each further value of a batch is allowed, microseconds.
const FURTHER_US: u64 = 8;
/// Bytes that are allowed a microsecond, beyond the first [`FREE_BYTES`], at most: 8 gigabit a
/// second. It is less after answers that took longer,
const BYTES_PER_US_MAX: u64 = 1000;
/// but not less than this: 0.8 gigabit a second.
const BYTES_PER_US_MIN: u64 = 100;
/// Bytes of a usual block.
const FREE_BYTES: u64 = 16 << 10;
/// The mean before the first answer to a probe, microseconds.
const FIRST_MEAN_US: u32 = 100;
/// Longest time that a caller polls, microseconds.
const POLL_US_MAX: u64 = 50;
/// Shortest time between two messages that a node is not asked, microseconds.
const LOG_PAUSE_US: u64 = 60_000_000;

/// Where messages for the administrator go.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// A node.
pub(crate) struct Node {
    pub(crate) spec: NodeSpec,
    pub(crate) breaker: Breaker,
    pub(crate) counters: NodeCounters,
    pub(crate) hit_shares: HitShares,
    latency: MeanLatency,
    /// Bytes that are allowed a microsecond now.
    bytes_per_us: AtomicU64,
    log: Log,
    connections: Connections,
    background: Mutex<Background>,
    figures: Figures,
    unreachable: Unreachable,
    /// When the next message that it is not asked may be logged; 0 if none was.
    log_after_us: AtomicU64,
    /// The last such message was logged, so its end is, too.
    logged: AtomicBool,
}

/// Figures that the node reports of itself.
#[derive(Default)]
struct Figures {
    used_bytes: AtomicU64,
    limit_bytes: AtomicU64,
    items: AtomicU64,
    evictions: AtomicU64,
    has_room: AtomicBool,
}

/// Limits of a batch: bytes and time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// Number of blocks, and the sum of their lengths.
    pub(crate) blocks: usize,
    pub(crate) bytes: usize,
    /// Longest value, bytes.
    pub(crate) value_max: usize,
    /// When the caller gives up.
    pub(crate) deadline_us: u64,
    /// The batch is one block: its caller may wait for a connection.
    pub(crate) is_single: bool,
}

impl Budget {
    /// Whether the time of the answer shows how far away the node is. Batches are received one
    /// after the other, and large blocks take the time of their bytes.
    fn is_sample(&self) -> bool {
        self.is_single && self.bytes as u64 <= 2 * FREE_BYTES
    }
}

/// A batch of gets on its way. Dropped unfinished, as in a panic, it gives its place back.
pub(crate) struct Exchange<'a> {
    node: &'a Node,
    taken: Option<Taken>,
    sent_us: u64,
    budget: Budget,
}

/// Why no batch was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NotSent {
    /// All connections are in use.
    Busy,
    /// The node owes a late answer, or the call has no time left.
    Silent,
    /// The connection broke.
    Broken,
}

impl Node {
    pub(crate) fn new(spec: NodeSpec, log: Log) -> Self {
        Self {
            spec,
            breaker: Breaker::new(),
            counters: NodeCounters::default(),
            hit_shares: HitShares::default(),
            latency: MeanLatency::new(FIRST_MEAN_US),
            bytes_per_us: AtomicU64::new(BYTES_PER_US_MAX),
            log,
            connections: Connections::default(),
            background: Mutex::default(),
            figures: Figures::default(),
            unreachable: Unreachable::default(),
            log_after_us: AtomicU64::new(0),
            logged: AtomicBool::new(true),
        }
    }

    /// Mean time of an answer, microseconds.
    pub(crate) fn latency_us(&self) -> f64 {
        self.latency.us()
    }

    /// Whether the node has memory that no value uses.
    pub(crate) fn has_room(&self) -> bool {
        self.figures.has_room.load(Relaxed)
    }

    /// How long a caller waits for so many blocks of so many bytes, microseconds.
    pub(crate) fn patience_us(&self, blocks: usize, bytes: usize) -> u64 {
        let us = (DEADLINE_FACTOR * self.latency.us()) as u64;
        let us = us.clamp(DEADLINE_US_MIN, DEADLINE_US_MAX);
        let further_us = FURTHER_US * blocks.saturating_sub(1) as u64;
        let bytes_per_us = self.bytes_per_us.load(Relaxed).max(1);
        let bytes_us = (bytes as u64).saturating_sub(FREE_BYTES) / bytes_per_us;
        (us + further_us).min(DEADLINE_US_MAX) + bytes_us
    }

    /// Learns from a batch of many bytes how long such ones are waited for. Racing updates may lose
    /// one.
    fn learn_rate(&self, budget: &Budget, took_us: u64, is_late: bool) {
        if budget.bytes as u64 <= 2 * FREE_BYTES {
            return;
        }
        let rate = self.bytes_per_us.load(Relaxed);
        let is_early = 2 * took_us <= self.patience_us(budget.blocks, budget.bytes);
        let new = match (is_late, is_early) {
            (true, _) => (rate / 2).max(BYTES_PER_US_MIN),
            (false, true) => (rate + rate / 16).min(BYTES_PER_US_MAX),
            (false, false) => rate,
        };
        if new != rate {
            self.bytes_per_us.store(new, Relaxed);
        }
    }

    /// Whether the node owes a late answer, so that no caller asks it.
    pub(crate) fn owes(&self) -> bool {
        self.connections.owes()
    }

    /// Sends a batch of gets.
    pub(crate) fn begin<'a, 'n>(
        &'a self,
        clock: &dyn Clock,
        names: impl Iterator<Item = &'n Name>,
        budget: Budget,
    ) -> Result<Exchange<'a>, NotSent> {
        if self.owes() {
            return Err(NotSent::Silent);
        }
        // A caller that gets a connection too late would find the answer late, through no fault of
        // the node. But half of the time is for that: the mean may be as long as the deadline, and
        // only answers shorten it.
        let now_us = clock.now_us();
        let left_us = budget.deadline_us.saturating_sub(now_us);
        if left_us == 0 {
            return Err(NotSent::Silent);
        }
        let answer_us = (self.latency.us() as u64).min(left_us / 2);
        let until_us = budget.deadline_us - answer_us;
        let taken = self.connections.take(clock, until_us, budget.is_single);
        let taken = taken.ok_or(NotSent::Busy)?;
        let mut exchange = Exchange {
            node: self,
            taken: Some(taken),
            sent_us: clock.now_us(),
            budget,
        };
        let sent = exchange.taken.as_mut().is_some_and(|taken| {
            taken
                .connection
                .send_gets(names, budget.value_max, budget.deadline_us)
        });
        if !sent {
            drop(exchange);
            self.on_broken(clock.now_us(), "a request could not be sent");
            return Err(NotSent::Broken);
        }
        Ok(exchange)
    }

    fn on_broken(&self, now_us: u64, why: &str) {
        self.connections.close();
        if self.breaker.on_broken(now_us) {
            self.log_opened(now_us, why);
        }
    }

    /// Logs that the breaker has opened, unless that was logged lately: a node may flap.
    fn log_opened(&self, now_us: u64, why: &str) {
        let logs = now_us >= self.log_after_us.load(Relaxed);
        self.logged.store(logs, Relaxed);
        if logs {
            self.log_after_us.store(now_us + LOG_PAUSE_US, Relaxed);
            (self.log)(&format!(
                "pool node {} is not asked for now: {why}",
                self.spec.address
            ));
        }
    }

    /// The figures that reports show. `weight` is the one of the current list.
    pub(crate) fn stats(&self, weight: u32) -> NodeStats {
        let figure = |figure: &AtomicU64| figure.load(Relaxed);
        NodeStats {
            address: self.spec.address.to_string(),
            weight,
            breaker_open: !self.breaker.is_closed(),
            breaker_opened: self.breaker.opened(),
            connect_error: self.unreachable.reason(),
            used_bytes: figure(&self.figures.used_bytes),
            limit_bytes: figure(&self.figures.limit_bytes),
            items: figure(&self.figures.items),
            evictions: figure(&self.figures.evictions),
            latency_us: self.latency.us(),
            latency_counts: self.counters.latency.counts(),
            classes: std::array::from_fn(|class| self.counters.classes[class].snapshot()),
        }
    }
}

impl Exchange<'_> {
    /// Waits for the values of the batch until the deadline.
    pub(crate) fn finish(
        mut self,
        clock: &dyn Clock,
        polls: bool,
        on_value: &mut dyn FnMut(usize, &[u8]),
    ) -> Received {
        let node = self.node;
        let poll_us = if polls {
            (node.latency.us() * 1.5) as u64
        } else {
            0
        };
        let poll_until_us = self.sent_us + poll_us.min(POLL_US_MAX);
        let wait = Wait {
            poll_until_us,
            deadline_us: self.budget.deadline_us,
        };
        let Some(taken) = &mut self.taken else {
            return Received::Broken;
        };
        let received = taken.connection.receive(clock, wait, &mut |index, answer| {
            if let Answer::Value { value, .. } = answer {
                on_value(index, value);
            }
        });
        let now_us = clock.now_us();
        let all_us = now_us.saturating_sub(self.sent_us);
        let took_us = all_us.clamp(1, DEADLINE_US_MAX);
        // The time of a late one counts, too: deadlines follow a slower network.
        if self.budget.is_sample() && received != Received::Broken {
            node.latency.add(took_us);
        }
        if received != Received::Broken {
            node.learn_rate(&self.budget, all_us, received == Received::Late);
        }
        match (received, self.taken.take()) {
            (Received::Ended, Some(taken)) => {
                if self.budget.is_sample() {
                    node.counters.latency.add(took_us);
                }
                node.breaker.on_time();
                node.connections.give_back(taken);
            }
            (Received::Late, Some(taken)) => {
                node.connections.give_late(taken, now_us);
                // A batch may be late because of its bytes. If the node hangs, the probe that
                // follows opens the breaker.
                if self.budget.is_sample() && node.breaker.on_late(self.sent_us, now_us) {
                    node.connections.close();
                    node.log_opened(now_us, "its answers are late");
                }
            }
            (_, taken) => {
                self.taken = taken;
                drop(self);
                node.on_broken(now_us, "a connection broke");
            }
        }
        received
    }
}

impl Drop for Exchange<'_> {
    fn drop(&mut self) {
        if let Some(taken) = self.taken.take() {
            self.node.connections.lose();
            drop(taken);
        }
    }
}
