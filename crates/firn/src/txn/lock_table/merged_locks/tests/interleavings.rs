//! Checks with `loom` every interleaving of an owner that merges and releases its lock on a key,
//! and another owner's request for the same key.
//!
//! The model repeats the steps of the registry and the shard in their order: register the owner;
//! move the lock under the shard's lock; search under the shard's lock; move the lock back before a
//! wait; release merged locks before rows. `loom` must also find the error in each broken variant.

use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::sync::{Arc, Mutex};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Broken {
    Not,
    /// The owner registers after the first move.
    NamedLate,
    /// The shard is unlocked after the lock has left the row and before it is merged.
    GapInTheMove,
    /// The owner releases its rows before its merged locks.
    RowsFirst,
    /// A request that finds no registered owner may not see the work done under the lock.
    Relaxed,
}

/// The key's row.
#[derive(Default)]
struct Row {
    /// The owner holds the row.
    held: bool,
    /// The other owner waits for the row.
    waiting: bool,
    /// The other owner was granted the row.
    granted: bool,
}

struct World {
    broken: Broken,
    row: Mutex<Row>,
    /// The registry's number of owners.
    number: AtomicUsize,
    /// Whether the key is among the owner's merged locks.
    merged: Mutex<bool>,
    /// Whether the key is in the owner's list of held rows.
    listed: Mutex<bool>,
    /// Whether the owner is in the critical section that its lock protects.
    inside: AtomicBool,
}

impl World {
    /// The owner holds the row, and its list has the key.
    fn new(broken: Broken) -> Self {
        Self {
            broken,
            row: Mutex::new(Row {
                held: true,
                ..Row::default()
            }),
            number: AtomicUsize::new(0),
            merged: Mutex::new(false),
            listed: Mutex::new(true),
            inside: AtomicBool::new(true),
        }
    }

    fn name(&self) {
        self.number.fetch_add(1, Ordering::Relaxed);
    }

    fn merge(&self) {
        // The key leaves the owner's list of held rows before the lock moves to the merged locks,
        // and comes back to the list if the lock stays in the row.
        *self.listed.lock().unwrap() = false;
        if self.broken != Broken::NamedLate {
            self.name();
        }
        let mut row = self.row.lock().unwrap();
        let stays = row.waiting;
        if !stays && self.broken == Broken::GapInTheMove {
            row.held = false;
            drop(row);
            *self.merged.lock().unwrap() = true;
        } else if !stays {
            *self.merged.lock().unwrap() = true;
            row.held = false;
            drop(row);
        } else {
            drop(row);
        }
        if self.broken == Broken::NamedLate {
            self.name();
        }
        if stays {
            *self.listed.lock().unwrap() = true;
        }
    }

    fn release_all(&self) {
        self.inside.store(false, Ordering::Relaxed);
        if self.broken == Broken::RowsFirst {
            self.release_rows();
            *self.merged.lock().unwrap() = false;
        } else {
            *self.merged.lock().unwrap() = false;
            self.release_rows();
        }
        self.number.fetch_sub(1, Ordering::Release);
    }

    fn release_rows(&self) {
        if std::mem::take(&mut *self.listed.lock().unwrap()) {
            let mut row = self.row.lock().unwrap();
            assert!(row.held, "a listed row is held");
            row.held = false;
            row.granted = std::mem::take(&mut row.waiting);
        }
    }

    fn named(&self) -> bool {
        let order = match self.broken {
            Broken::Relaxed => Ordering::Relaxed,
            _ => Ordering::Acquire,
        };
        self.number.load(order) != 0
    }

    /// The other owner's request. If it waits, the release grants it.
    fn request(&self) {
        let mut row = self.row.lock().unwrap();
        let merged = self.named() && *self.merged.lock().unwrap();
        if !row.held && !merged {
            return self.granted();
        }
        // Before the wait, move the lock back to the row.
        if self.named() {
            let mut merged = self.merged.lock().unwrap();
            if std::mem::take(&mut *merged) {
                row.held = true;
                *self.listed.lock().unwrap() = true;
            }
        }
        match row.held {
            true => row.waiting = true,
            false => self.granted(),
        }
    }

    fn granted(&self) {
        assert!(!self.inside.load(Ordering::Relaxed), "granted to both");
    }
}

fn explore(broken: Broken) {
    loom::model(move || {
        let world = Arc::new(World::new(broken));
        let other = {
            let world = Arc::clone(&world);
            loom::thread::spawn(move || world.request())
        };
        world.merge();
        world.release_all();
        other.join().unwrap();
        let row = world.row.lock().unwrap();
        assert!(!row.waiting, "a wake-up was missed");
        assert!(!row.held && !*world.merged.lock().unwrap(), "still held");
    });
}

#[test]
fn no_lock_is_overlooked_and_no_waiter_forgotten() {
    explore(Broken::Not);
}

#[test]
#[should_panic(expected = "granted to both")]
fn an_owner_named_late_is_overlooked() {
    explore(Broken::NamedLate);
}

#[test]
#[should_panic(expected = "granted to both")]
fn a_lock_on_the_move_is_overlooked() {
    explore(Broken::GapInTheMove);
}

#[test]
#[should_panic(expected = "granted to both")]
fn what_was_done_under_a_lock_given_up_must_be_seen() {
    explore(Broken::Relaxed);
}

#[test]
#[should_panic(expected = "a wake-up was missed")]
fn rows_given_up_first_leave_a_waiter_behind() {
    explore(Broken::RowsFirst);
}
