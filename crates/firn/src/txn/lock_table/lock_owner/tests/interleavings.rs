//! Every interleaving of a session that ends with a waiter that found it among its blockers, under
//! `loom`.
//!
//! The steps are those of `LockTable::tell_observer`, `LockOwner::with_host` and `detach_host`, in
//! their order: the waiter finds the blocker under the shard and lets go of the shard; it looks for
//! the host's context and hands it to the observer; the blocker gives up its lock, detaches, and
//! the host frees the context. The ways to break them must be found out.

use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Arc, Mutex};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Broken {
    Not,
    /// The session ends without detaching: the lock that it gave up is to be enough.
    NotDetached,
    /// The context is read under its lock and handed on behind it.
    ToldBehindTheLock,
    /// The context is freed, then detached.
    DetachedLate,
}

struct World {
    broken: Broken,
    /// The row: whether the blocker holds it.
    held: Mutex<bool>,
    /// The owner's context: whether there is one.
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
