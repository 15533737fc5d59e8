//! Gets, alone and in batches.

use super::{Pool, Shared, WantedBlock};
use crate::class::Class;
use crate::connection::Received;
use crate::counters::add;
use crate::hot_blocks::Heat;
use crate::name::Name;
use crate::node::{Budget, Exchange, Node, NotSent};
use crate::put_queue::{Order, QueuedOrder, Rank};
use crate::random::mixed;
use crate::ring::Ring;
use crate::value::{Stored, open, value_len};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Blocks of one batch.
const BATCH_MAX: usize = 32;
/// Bytes of one batch of several blocks.
const BATCH_BYTES_MAX: usize = 256 << 10;

/// Where a block is asked for.
#[derive(Clone, Copy)]
struct Target {
    node: usize,
    rank: Rank,
}

/// A block of a batch, under its masked name.
#[derive(Clone, Copy)]
struct BatchedBlock {
    /// Index in the caller's list.
    index: usize,
    rank: Rank,
    block: WantedBlock,
}

/// What is asked of one node at a time.
struct Batch<'a> {
    ring: &'a Ring,
    node: &'a Node,
    blocks: &'a [BatchedBlock],
    class: Class,
}

/// What a get of a block would do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outlook {
    /// It would ask a node.
    Asks,
    /// Asking does not pay, so it would ask now and then only.
    Tries,
    /// It would ask nobody.
    Passes,
}

impl Pool {
    /// What a get of this block would do now. Asks nobody, and a get may decide otherwise.
    pub fn outlook(&self, name: &Name, class: Class) -> Outlook {
        let shared = &*self.shared;
        let name = shared.masked(name);
        if !shared.is_enabled() || !class.looks_up() || !shared.known.contains(name.short()) {
            return Outlook::Passes;
        }
        let ring = shared.ring.load();
        let Some((first, second)) = ring.place(&name) else {
            return Outlook::Passes;
        };
        let second = second.filter(|_| shared.hot.heat(name.short()) == Heat::Copied);
        let outlook = |node: usize| {
            let node = &ring.nodes()[node];
            if !node.breaker.is_closed() || node.owes() {
                return Outlook::Passes;
            }
            let shares = &node.hit_shares;
            match shares.pays(&shared.costs, class, node.latency_us()) {
                true => Outlook::Asks,
                false => Outlook::Tries,
            }
        };
        match outlook(first) {
            Outlook::Passes => second.map_or(Outlook::Passes, outlook),
            outlook => outlook,
        }
    }

    /// The stored bytes of a block, if the pool has them and they come in time.
    ///
    /// Length, name and authenticity are checked here. `is_right` checks the rest, which is the
    /// engine's: the placed checksum of the block. Bytes that are not right count as a lie of the
    /// node, are deleted there and never returned.
    pub fn get(
        &self,
        block: &WantedBlock,
        class: Class,
        is_right: &dyn Fn(&[u8]) -> bool,
    ) -> Option<Stored> {
        let shared = &*self.shared;
        let ring = shared.ring.load();
        let block = WantedBlock {
            name: shared.masked(&block.name),
            ..*block
        };
        let target = shared.target(&ring, &block, class)?;
        let blocks = [BatchedBlock {
            index: 0,
            rank: target.rank,
            block,
        }];
        let node = &*ring.nodes()[target.node];
        let batch = Batch {
            ring: &ring,
            node,
            blocks: &blocks,
            class,
        };
        let deadline_us = shared.clock.now_us() + node.patience_us(1, block.len);
        let exchange = shared.begin(&batch, deadline_us, true)?;
        let mut found = None;
        shared.finish(
            &batch,
            exchange,
            &|_, bytes| is_right(bytes),
            &mut |_, stored| {
                found = Some(stored);
            },
        );
        found
    }

    /// As [`Self::get`] for many blocks: batches for all nodes, on their way at the same time.
    /// `is_right` gets the index of the block. The call has one deadline; what is not there by then
    /// is left out.
    pub fn get_many(
        &self,
        blocks: &[WantedBlock],
        class: Class,
        is_right: &dyn Fn(usize, &[u8]) -> bool,
    ) -> Vec<Option<Stored>> {
        let shared = &*self.shared;
        let ring = shared.ring.load();
        let mut found: Vec<Option<Stored>> = vec![None; blocks.len()];
        let mut by_node: Vec<Vec<BatchedBlock>> = vec![Vec::new(); ring.nodes().len()];
        for (index, block) in blocks.iter().enumerate() {
            let block = WantedBlock {
                name: shared.masked(&block.name),
                ..*block
            };
            if let Some(target) = shared.target(&ring, &block, class) {
                by_node[target.node].push(BatchedBlock {
                    index,
                    rank: target.rank,
                    block,
                });
            }
        }
        let bytes = |blocks: &[BatchedBlock]| blocks.iter().map(|b| b.block.len).sum::<usize>();
        let patience = |(node, blocks): (&std::sync::Arc<Node>, &Vec<BatchedBlock>)| {
            node.patience_us(blocks.len(), bytes(blocks))
        };
        let patience_us = ring
            .nodes()
            .iter()
            .zip(&by_node)
            .map(patience)
            .max()
            .unwrap_or(0);
        let deadline_us = shared.clock.now_us() + patience_us;
        let mut rest: Vec<&[BatchedBlock]> = by_node.iter().map(Vec::as_slice).collect();
        while rest.iter().any(|blocks| !blocks.is_empty()) {
            let mut sent = Vec::new();
            for (n, blocks) in rest.iter_mut().enumerate().filter(|(_, b)| !b.is_empty()) {
                let (now, later) = blocks.split_at(batch_len(blocks));
                *blocks = later;
                let batch = Batch {
                    ring: &ring,
                    node: &ring.nodes()[n],
                    blocks: now,
                    class,
                };
                let exchange = shared.begin(&batch, deadline_us, false);
                sent.push((n, batch, exchange));
            }
            for (n, batch, exchange) in sent {
                let ended = exchange.is_some_and(|exchange| {
                    shared.finish(&batch, exchange, is_right, &mut |index, stored| {
                        found[index] = Some(stored);
                    }) == Received::Ended
                });
                if !ended {
                    let left = std::mem::take(&mut rest[n]);
                    add(&shared.skips[class.index()].silent, left.len() as u64);
                }
            }
        }
        found
    }
}

/// How many of these blocks, at least one of which there is, make a batch.
fn batch_len(blocks: &[BatchedBlock]) -> usize {
    let mut bytes = 0;
    let fits = |block: &&BatchedBlock| {
        bytes += block.block.len;
        bytes <= BATCH_BYTES_MAX
    };
    blocks
        .iter()
        .take(BATCH_MAX)
        .take_while(fits)
        .count()
        .max(1)
}

impl Shared {
    /// The node to ask for a block, if any.
    fn target(&self, ring: &Ring, block: &WantedBlock, class: Class) -> Option<Target> {
        if !self.is_enabled() || !class.looks_up() {
            return None;
        }
        let (skips, short) = (&self.skips[class.index()], block.name.short());
        if !self.known.contains(short) {
            add(&skips.unknown, 1);
            return None;
        }
        let (first, second) = ring.place(&block.name)?;
        let first = Target {
            node: first,
            rank: Rank::First,
        };
        let second = second.map(|node| Target {
            node,
            rank: Rank::Second,
        });
        let second = second.filter(|_| self.hot.heat(short) == Heat::Copied);
        let target = self.sooner(ring, first, second);
        let node = &ring.nodes()[target.node];
        if !node.breaker.is_closed() {
            add(&skips.open_breaker, 1);
            return None;
        }
        let shares = &node.hit_shares;
        if !shares.pays(&self.costs, class, node.latency_us()) {
            if !shares.tries(class) {
                add(&skips.unprofitable, 1);
                return None;
            }
            self.costs.pool.on_try(class);
        }
        Some(target)
    }

    /// Of two nodes that have a block, one: the more often, the sooner it answers.
    fn sooner(&self, ring: &Ring, first: Target, second: Option<Target>) -> Target {
        let Some(second) = second else { return first };
        let [a, b] = [first, second].map(|target| &ring.nodes()[target.node]);
        match (a.breaker.is_closed(), b.breaker.is_closed()) {
            (_, false) => return first,
            (false, true) => return second,
            (true, true) => {}
        }
        let share = a.latency_us() / (a.latency_us() + b.latency_us()).max(1.0);
        let turn = mixed(self.hot_turns.fetch_add(1, Relaxed) as u64) % 1024;
        if (turn as f64) < share * 1024.0 {
            second
        } else {
            first
        }
    }

    /// Sends a batch.
    fn begin<'a>(
        &self,
        batch: &Batch<'a>,
        deadline_us: u64,
        is_single: bool,
    ) -> Option<Exchange<'a>> {
        let count = batch.blocks.len() as u64;
        let longest = batch.blocks.iter().map(|b| b.block.len).max().unwrap_or(0);
        let value_max = value_len(longest, self.cipher.as_ref());
        let budget = Budget {
            blocks: batch.blocks.len(),
            bytes: batch.blocks.iter().map(|b| b.block.len).sum(),
            value_max,
            deadline_us,
            is_single,
        };
        let names = batch.blocks.iter().map(|b| &b.block.name);
        let skips = &self.skips[batch.class.index()];
        match batch.node.begin(&*self.clock, names, budget) {
            Ok(exchange) => return Some(exchange),
            Err(NotSent::Busy) => {
                add(&skips.busy, count);
                self.wake.hurry();
            }
            Err(NotSent::Silent) => add(&skips.silent, count),
            Err(NotSent::Broken) => {
                add(&batch.node.counters.of(batch.class).gets, count);
                add(&batch.node.counters.of(batch.class).broken, count);
            }
        }
        None
    }

    /// Receives a batch, judges its values and learns from what came and what did not.
    fn finish(
        &self,
        batch: &Batch,
        exchange: Exchange,
        is_right: &dyn Fn(usize, &[u8]) -> bool,
        on_found: &mut dyn FnMut(usize, Stored),
    ) -> Received {
        let counters = batch.node.counters.of(batch.class);
        add(&counters.gets, batch.blocks.len() as u64);
        let permit = PollPermit::take(&self.polling, self.polling_max);
        // A bit for each block of the batch.
        let mut answered = 0u32;
        // They are judged when all are there: the time of that is not the node's.
        let mut values = Vec::with_capacity(batch.blocks.len());
        let received = exchange.finish(&*self.clock, permit.is_some(), &mut |at, value| {
            if let Some(asked) = batch.blocks.get(at) {
                answered |= 1 << at;
                values.push((asked, value.to_vec()));
            }
        });
        drop(permit);
        for (asked, value) in values {
            let block = &asked.block;
            let stored = open(&block.name, Some(block.len), value, self.cipher.as_ref());
            match stored.filter(|stored| is_right(asked.index, stored)) {
                Some(stored) => {
                    self.on_hit(batch, asked, &stored);
                    on_found(asked.index, stored);
                }
                None => self.on_lie(batch, asked),
            }
        }
        let silent = (0..)
            .zip(batch.blocks)
            .filter(|(at, _)| answered >> at & 1 == 0);
        match received {
            Received::Ended => {
                for (_, asked) in silent {
                    add(&counters.misses, 1);
                    batch.node.hit_shares.on_answer(batch.class, false);
                    self.forget(asked);
                }
            }
            Received::Late => {
                for _ in silent {
                    add(&counters.late, 1);
                    // The time of late answers counts for single blocks only. So what comes in
                    // batches too slowly stops paying by this.
                    if batch.blocks.len() > 1 {
                        batch.node.hit_shares.on_answer(batch.class, false);
                    }
                }
                self.wake.hurry();
            }
            Received::Broken => add(&counters.broken, silent.count() as u64),
        }
        received
    }

    fn on_hit(&self, batch: &Batch, asked: &BatchedBlock, stored: &Stored) {
        let (counters, name) = (batch.node.counters.of(batch.class), asked.block.name);
        let short = name.short();
        add(&counters.hits, 1);
        add(&counters.hit_bytes, stored.len() as u64);
        batch.node.hit_shares.on_answer(batch.class, true);
        self.known.on_hit(short);
        self.hot.note(short, batch.ring.nodes().len());
        let wants_copy = asked.rank == Rank::First && self.hot.heat(short) == Heat::Hot;
        if wants_copy && self.hot.claim(short) {
            let order = Order::Put(stored.to_vec());
            let order = QueuedOrder {
                name,
                rank: Rank::Second,
                class: batch.class,
                order,
            };
            if !self.push(order) {
                self.hot.set_heat(short, Heat::Hot);
            }
        }
    }

    fn on_lie(&self, batch: &Batch, asked: &BatchedBlock) {
        add(&batch.node.counters.of(batch.class).lying, 1);
        batch.node.hit_shares.on_answer(batch.class, false);
        self.forget(asked);
        let (name, rank) = (asked.block.name, asked.rank);
        self.push(QueuedOrder {
            name,
            rank,
            class: batch.class,
            order: Order::Delete,
        });
    }

    /// A node does not have a block. The first one may have it still if the second does not.
    fn forget(&self, asked: &BatchedBlock) {
        let short = asked.block.name.short();
        match asked.rank {
            Rank::First => self.known.remove(short),
            Rank::Second => self.hot.set_heat(short, Heat::Hot),
        }
    }
}

/// The right to poll.
struct PollPermit<'a>(&'a AtomicUsize);

impl<'a> PollPermit<'a> {
    fn take(polling: &'a AtomicUsize, max: usize) -> Option<Self> {
        let more = |polling| (polling < max).then_some(polling + 1);
        polling
            .fetch_update(Relaxed, Relaxed, more)
            .ok()
            .map(|_| Self(polling))
    }
}

impl Drop for PollPermit<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}
