//! Every interleaving of an owner that merges and releases with requests of another, under `loom`.
//!
//! One key. The steps are those of the registry and the shard, in their order: name the owner, move
//! the lock under the shard, look under the shard, bring the lock back before a wait, give up the
//! merged locks before the rows. The ways to break them must be found out.

use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::sync::{Arc, Mutex};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Broken {
    Not,
    /// The owner is named after the first move.
    NamedLate,
    /// The lock leaves the row before it is merged, and not under one hold of the shard.
    GapInTheMove,
    /// The rows are given up before the merged locks.
    RowsFirst,
    /// A request that finds no owner registered does not see the writes made under the lock.
    Relaxed,
}

/// The key's row: whether the owner holds it, and whether the other waits.
#[derive(Default)]
struct Row {
    held: bool,
    waiting: bool,
    granted: bool,
}

struct World {
    broken: Broken,
    row: Mutex<Row>,
    /// The registry's number of owners.
    number: AtomicUsize,
    /// The owner's merged locks: whether the key is among them.
    merged: Mutex<bool>,
    /// The owner's list of rows: whether the key is among them.
    listed: Mutex<bool>,
    /// The owner is inside what its lock protects.
    inside: AtomicBool,
}

impl World {
    /// The owner holds the row.
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
        // Taken off the list before anything is moved, and put back if it stays.
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

    /// The other's request. It may wait, and is then granted by whoever releases.
    fn request(&self) {
        let mut row = self.row.lock().unwrap();
        let merged = self.named() && *self.merged.lock().unwrap();
        if !row.held && !merged {
            return self.granted();
        }
        // As it begins to wait, it brings the lock back.
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
