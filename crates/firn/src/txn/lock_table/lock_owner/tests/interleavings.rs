//! Checks with `loom` every interleaving of a session that ends, and a waiter that has found it
//! among its blockers.
//!
//! The model repeats the steps of `LockTable::report_blockers`, `LockOwner::with_host` and
//! `LockOwner::detach_host` in their order. The waiter finds the blocker under the shard's lock and
//! unlocks the shard; then it takes the host's context and passes it to the observer. The blocker
//! detaches and releases its lock; then the host frees the context. In each broken variant, `loom`
//! must find a use of the freed context.

use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Arc, Mutex};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Broken {
    Not,
    /// The session ends without detaching; it only releases its lock.
    NotDetached,
    /// The waiter reads the context under its mutex, but uses it after unlocking.
    ToldBehindTheLock,
    /// The session detaches after the context is freed.
    DetachedLate,
}

struct World {
    broken: Broken,
    /// Whether the blocker holds the row; the mutex stands for the shard's.
    held: Mutex<bool>,
    /// Whether the owner has a context.
    host: Mutex<bool>,
    freed: AtomicBool,
}

impl World {
    fn use_host(&self) {
        assert!(!self.freed.load(Ordering::SeqCst), "the context is gone");
        loom::thread::yield_now();
        assert!(!self.freed.load(Ordering::SeqCst), "the context is gone");
    }

    fn wait(&self) {
        let blocked = *self.held.lock().unwrap();
        if !blocked {
            return;
        }
        let host = self.host.lock().unwrap();
        if !*host {
            return;
        }
        if self.broken == Broken::ToldBehindTheLock {
            drop(host);
        }
        self.use_host();
    }

    fn detach(&self) {
        *self.host.lock().unwrap() = false;
    }

    fn end(&self) {
        if self.broken == Broken::Not || self.broken == Broken::ToldBehindTheLock {
            self.detach();
        }
        *self.held.lock().unwrap() = false;
        self.freed.store(true, Ordering::SeqCst);
        if self.broken == Broken::DetachedLate {
            self.detach();
        }
    }
}

fn run(broken: Broken) {
    loom::model(move || {
        let world = Arc::new(World {
            broken,
            held: Mutex::new(true),
            host: Mutex::new(true),
            freed: AtomicBool::new(false),
        });
        let waiter = {
            let world = Arc::clone(&world);
            loom::thread::spawn(move || world.wait())
        };
        world.end();
        waiter.join().unwrap();
    });
}

#[test]
fn a_context_is_used_only_while_it_is_there() {
    run(Broken::Not);
}

#[test]
#[should_panic(expected = "the context is gone")]
fn a_lock_given_up_is_not_enough() {
    run(Broken::NotDetached);
}

#[test]
#[should_panic(expected = "the context is gone")]
fn the_context_is_handed_on_under_its_lock() {
    run(Broken::ToldBehindTheLock);
}

#[test]
#[should_panic(expected = "the context is gone")]
fn detaching_comes_before_freeing() {
    run(Broken::DetachedLate);
}
