//! Puts and deletions: what callers order, and how the background thread sends it.

use super::{Pool, Shared, WantedBlock};
use crate::class::{Admission, Class};
use crate::counters::add;
use crate::hot_blocks::Heat;
use crate::meta::{Commands, VALUE_LEN_MAX};
use crate::name::Name;
use crate::node::{Node, PutOutcome};
use crate::put_queue::{Order, QueuedOrder, Rank};
use crate::ring::Ring;
use crate::value::{seal, value_len};

/// Bytes of one round of puts.
const ROUND_BYTES: usize = 1 << 20;

impl Pool {
    /// A block was read from its file. The pool takes it if its class and history say so. Returns
    /// whether it was taken.
    pub fn offer(&self, name: &Name, class: Class, stored: &[u8]) -> bool {
        let shared = &*self.shared;
        let name = shared.masked(name);
        shared.admits(&name, class) && shared.put(&name, class, stored)
    }

    /// Puts a block, whatever its history: after a compaction, one that stands for blocks in the
    /// pool. Returns whether the queue had room: it leaves half of itself to what queries read.
    pub fn put(&self, name: &Name, class: Class, stored: &[u8]) -> bool {
        let shared = &*self.shared;
        shared.is_enabled()
            && shared.queue.has_room_in_half(stored.len())
            && shared.put(&shared.masked(name), class, stored)
    }

    /// Deletes a block whose file is gone. One that the pool does not seem to have costs nothing.
    pub fn delete(&self, name: &Name, class: Class) {
        let shared = &*self.shared;
        let name = shared.masked(name);
        let short = name.short();
        // A put of the block that is still on its way is not seen. It costs the node memory until
        // that is needed, which is less than a deletion of every block of each file that goes.
        if !shared.is_enabled() || !shared.known.contains(short) {
            return;
        }
        shared.known.remove(short);
        for rank in [Rank::First, Rank::Second] {
            let may_have = matches!(shared.hot.heat(short), Heat::Ordered | Heat::Copied);
            if rank == Rank::First || may_have {
                shared.push(QueuedOrder {
                    name,
                    rank,
                    class,
                    order: Order::Delete,
                });
            }
        }
        shared.hot.set_heat(short, Heat::Hot);
    }

    /// Whether the pool probably has a block: for the hand-over after a compaction.
    pub fn probably_has(&self, block: &WantedBlock) -> bool {
        self.shared.is_enabled()
            && self
                .shared
                .known
                .contains(self.shared.masked(&block.name).short())
    }
}

impl Shared {
    fn admits(&self, name: &Name, class: Class) -> bool {
        let short = name.short();
        if !self.is_enabled() || class.admission() == Admission::Never {
            return false;
        }
        let ring = self.ring.load();
        let Some((first, _)) = ring.place(name) else {
            return false;
        };
        let node = &ring.nodes()[first];
        if !node.breaker.is_closed() {
            return false;
        }
        let second = || {
            self.first_touches
                .is_second(short, self.clock.now_us() / 1_000_000)
        };
        if self.known.contains(short) {
            // Its answer was late, and the node has it. Or it was not asked for because the node
            // has too little: then it may have lost all, and gets it again. What the file brings
            // sooner in any case is not put twice.
            let us = node.latency_us();
            let has_too_little =
                self.costs.pays(class, 1.0, us) && !node.hit_shares.pays(&self.costs, class, us);
            return has_too_little && second();
        }
        match class.admission() {
            Admission::First => true,
            Admission::FirstWhileRoom => node.has_room() || second(),
            Admission::Second => second(),
            Admission::Never => false,
        }
    }

    fn put(&self, name: &Name, class: Class, stored: &[u8]) -> bool {
        let fits = value_len(stored.len(), self.cipher.as_ref()) <= VALUE_LEN_MAX;
        if !fits || class == Class::Maintenance {
            return false;
        }
        if !self.queue.has_room(stored.len()) {
            self.count_dropped(name, class);
            return false;
        }
        let order = Order::Put(stored.to_vec());
        let pushed = self.push(QueuedOrder {
            name: *name,
            rank: Rank::First,
            class,
            order,
        });
        if !pushed {
            self.count_dropped(name, class);
        }
        pushed
    }

    fn count_dropped(&self, name: &Name, class: Class) {
        let ring = self.ring.load();
        if let Some((first, _)) = ring.place(name) {
            add(&ring.nodes()[first].counters.of(class).dropped_puts, 1);
        }
    }

    /// Adds an order to the queue and sees to it that the thread comes.
    pub(super) fn push(&self, order: QueuedOrder) -> bool {
        let pushed = self.queue.push(order);
        self.wake.wake();
        pushed
    }

    /// Sends what was queued when it began, a batch for each node.
    pub(super) fn send_puts(&self) {
        let ring = self.ring.load();
        let mut left = self.queue.len().1;
        while left > 0 && !self.wake.stops() {
            let orders = self.queue.take(ROUND_BYTES.min(left));
            if orders.is_empty() {
                break;
            }
            left = left.saturating_sub(ROUND_BYTES);
            let mut by_node: Vec<Vec<QueuedOrder>> =
                ring.nodes().iter().map(|_| Vec::new()).collect();
            for order in orders {
                match node_of(&ring, &order) {
                    Some(node) => by_node[node].push(order),
                    None => self.hot.set_heat(order.name.short(), Heat::Hot),
                }
            }
            for (node, orders) in ring.nodes().iter().zip(by_node) {
                if !orders.is_empty() {
                    self.send_to(node, &orders);
                }
            }
        }
    }

    fn send_to(&self, node: &Node, orders: &[QueuedOrder]) {
        let mut commands = Commands::default();
        for order in orders {
            match &order.order {
                Order::Put(stored) => {
                    let value = seal(&order.name, stored, self.cipher.as_ref());
                    commands.put(&order.name, order.class.ttl_s(), &value);
                }
                Order::Delete => commands.delete(&order.name),
            }
        }
        let outcome = node.put(&*self.link, &*self.clock, commands);
        // Nobody knows which values were refused. So nobody is told of any of the batch; ones that
        // were taken are read from their files and put again.
        let is_sure = outcome == PutOutcome::Done { refused: 0 };
        let mut refused = match outcome {
            PutOutcome::Done { refused } => refused,
            PutOutcome::Failed => u64::MAX,
        };
        let mut put = Vec::new();
        for order in orders {
            let (short, Order::Put(stored)) = (order.name.short(), &order.order) else {
                put.retain(|short| *short != order.name.short());
                continue;
            };
            let counters = node.counters.of(order.class);
            if refused > 0 {
                refused -= 1;
                add(&counters.dropped_puts, 1);
            } else {
                add(&counters.puts, 1);
                add(&counters.put_bytes, stored.len() as u64);
            }
            match order.rank {
                Rank::First => put.push(short),
                Rank::Second if is_sure => self.hot.set_heat(short, Heat::Copied),
                Rank::Second => self.hot.set_heat(short, Heat::Hot),
            }
        }
        if is_sure {
            let mut news = self.news.lock();
            for short in put {
                self.known.insert(short);
                news.announce(short);
            }
        }
    }

    /// Forgets what is queued, while the pool is off.
    pub(super) fn drop_puts(&self) {
        if self.queue.len().0 > 0 {
            self.queue.clear();
        }
        self.hot.forget_orders();
    }
}

fn node_of(ring: &Ring, order: &QueuedOrder) -> Option<usize> {
    let (first, second) = ring.place(&order.name)?;
    match order.rank {
        Rank::First => Some(first),
        Rank::Second => second,
    }
}
