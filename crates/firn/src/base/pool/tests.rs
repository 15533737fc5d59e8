use super::*;
use std::sync::atomic::{AtomicU32, Ordering};

/// Counts the values that exist.
struct Counted<'a>(&'a AtomicU32);

impl<'a> Counted<'a> {
    fn new(alive: &'a AtomicU32) -> Self {
        alive.fetch_add(1, Ordering::Relaxed);
        Self(alive)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn a_thread_finds_its_value_again() {
    let alive = AtomicU32::new(0);
    let pool = Pool::new();
    for _ in 0..100 {
        pool.with(|| Counted::new(&alive), |_| ());
    }
    assert_eq!(alive.load(Ordering::Relaxed), 1);
}

#[test]
fn a_value_that_failed_is_dropped() {
    let alive = AtomicU32::new(0);
    let pool = Pool::new();
    let made = AtomicU32::new(0);
    let call = |result: Result<(), ()>| {
        let make = || {
            made.fetch_add(1, Ordering::Relaxed);
            Counted::new(&alive)
        };
        assert_eq!(pool.try_with(make, |_| result), result);
        alive.load(Ordering::Relaxed)
    };
    assert_eq!(call(Ok(())), 1);
    assert_eq!(call(Err(())), 0);
    assert_eq!(call(Ok(())), 1);
    assert_eq!(made.load(Ordering::Relaxed), 2);
}

#[test]
fn nested_calls_get_values_of_their_own() {
    let pool = Pool::new();
    let inner = pool.with(|| 1, |_| pool.with(|| 2, |inner| *inner));
    assert_eq!(inner, 2);
}

/// Threads that use their values at the same time have one each, but few are kept.
#[test]
fn many_threads_leave_few_values() {
    let alive = AtomicU32::new(0);
    let pool = Pool::new();
    let together = std::sync::Barrier::new(200);
    std::thread::scope(|scope| {
        for _ in 0..200 {
            scope.spawn(|| pool.with(|| Counted::new(&alive), |_| together.wait()));
        }
    });
    let kept = alive.load(Ordering::Relaxed) as usize;
    assert!((1..=SLOTS).contains(&kept), "{kept}");
}
