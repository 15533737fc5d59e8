//! Puts and deletions that wait for the background thread. The queue is bounded: what does not fit
//! is dropped, so no query waits for a node that takes its time.

use crate::class::Class;
use crate::name::Name;
use parking_lot::Mutex;
use std::collections::VecDeque;

/// Bytes that an order takes beside its stored bytes.
const ORDER_BYTES: usize = 64;

/// Which of the two nodes of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rank {
    /// The one that has the name.
    First,
    /// The one that has copies of hot blocks.
    Second,
}

/// The change of a name in a node.
#[derive(PartialEq, Eq, Debug)]
pub enum Order {
    /// Put these stored bytes.
    Put(Vec<u8>),
    /// Delete the value.
    Delete,
}

/// An order for a node.
#[derive(PartialEq, Eq, Debug)]
pub struct QueuedOrder {
    /// The name of the value.
    pub name: Name,
    /// Which of its nodes.
    pub rank: Rank,
    /// Why the block was read: for its time to live, and for statistics.
    pub class: Class,
    /// The change.
    pub order: Order,
}

/// The queue.
pub struct PutQueue {
    bytes_max: usize,
    orders: Mutex<Orders>,
}

#[derive(Default)]
struct Orders {
    queue: VecDeque<QueuedOrder>,
    bytes: usize,
}

impl QueuedOrder {
    fn bytes(&self) -> usize {
        let stored = if let Order::Put(stored) = &self.order {
            stored.len()
        } else {
            0
        };
        stored + ORDER_BYTES
    }
}

impl PutQueue {
    /// A queue for so many bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            orders: Mutex::default(),
        }
    }

    /// Whether so many stored bytes would fit now. Saves the caller a copy of them.
    pub fn has_room(&self, len: usize) -> bool {
        self.orders.lock().bytes + len + ORDER_BYTES <= self.bytes_max
    }

    /// Whether so many stored bytes would fit into the first half.
    pub fn has_room_in_half(&self, len: usize) -> bool {
        self.orders.lock().bytes + len + ORDER_BYTES <= self.bytes_max / 2
    }

    /// Adds an order, unless the queue is full. Returns whether it fitted.
    pub fn push(&self, order: QueuedOrder) -> bool {
        let mut orders = self.orders.lock();
        if orders.bytes + order.bytes() > self.bytes_max {
            return false;
        }
        orders.bytes += order.bytes();
        orders.queue.push_back(order);
        true
    }

    /// Takes the oldest orders, about `bytes` of them.
    pub fn take(&self, bytes: usize) -> Vec<QueuedOrder> {
        let mut orders = self.orders.lock();
        let (mut taken, mut sum) = (Vec::new(), 0);
        while sum < bytes
            && let Some(order) = orders.queue.pop_front()
        {
            sum += order.bytes();
            taken.push(order);
        }
        orders.bytes -= sum;
        taken
    }

    /// Orders and bytes in the queue.
    pub fn len(&self) -> (usize, usize) {
        let orders = self.orders.lock();
        (orders.queue.len(), orders.bytes)
    }

    /// Drops all orders.
    pub fn clear(&self) {
        // They are freed without the mutex, which callers take.
        let dropped = std::mem::take(&mut *self.orders.lock());
        drop(dropped);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(len: usize) -> QueuedOrder {
        let name = Name::of_block(len as u64, 0, 0);
        let order = Order::Put(vec![1; len]);
        QueuedOrder {
            name,
            rank: Rank::First,
            class: Class::Point,
            order,
        }
    }

    #[test]
    fn it_is_a_queue_that_drops_what_does_not_fit() {
        let queue = PutQueue::new(1000);
        assert!(queue.push(put(300)) && queue.push(put(301)));
        assert!(queue.has_room(200) && !queue.has_room(300));
        assert!(!queue.push(put(302)));
        assert!(queue.push(put(10)));
        assert_eq!(queue.take(400), vec![put(300), put(301)]);
        assert_eq!(queue.len(), (1, 10 + ORDER_BYTES));
        assert_eq!(queue.take(usize::MAX), vec![put(10)]);
        assert!(queue.push(put(900)));
        queue.clear();
        assert_eq!(queue.len(), (0, 0));
    }
}
