//! A host that has fixed the order in which some transactions commit.

use super::*;
use LockMode::{Exclusive, Shared};
use std::cmp;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Transactions with contexts below 100 commit in the order of these numbers; others are free. The
/// observer remembers each reported pair of waiter and blocker.
#[derive(Default)]
struct Host(Mutex<Vec<(u64, u64)>>);

impl Host {
    fn reports(&self) -> Vec<(u64, u64)> {
        let mut reports = std::mem::take(&mut *self.0.lock());
        reports.sort_unstable();
        reports
    }
}

impl WaitObserver for Host {
    fn waits_for(&self, waiter: u64, blocker: u64) {
        self.0.lock().push((waiter, blocker));
    }

    fn commits_in_fixed_order(&self, one: u64, other: u64) -> bool {
        one < 100 && other < 100
    }

    fn preferred_victim(&self, one: u64, other: u64) -> cmp::Ordering {
        match self.commits_in_fixed_order(one, other) {
            true => other.cmp(&one),
            false => cmp::Ordering::Equal,
        }
    }
}

fn observed(table: &LockTable) -> Arc<Host> {
    let host = Arc::<Host>::default();
    table.set_observer(Some(Arc::clone(&host) as Arc<dyn WaitObserver>));
    host
}

fn owner(host: u64) -> Arc<LockOwner> {
    LockOwner::new(host, host)
}

fn key(n: u8) -> [u8; 5] {
    [0, 0, 0, 7, n]
}

const LONG_US: u64 = 120_000_000;

/// A failed assertion leaves requests behind: they must not wait as long as [`super::LONG`].
const LONG: WaitPolicy = WaitPolicy::Wait {
    timeout_micros: LONG_US,
};

#[test]
fn an_insert_does_not_wait_for_gap_locks_of_a_fixed_order() {
    for table in tables() {
        let host = observed(&table);
        let (first, second, free) = (owner(1), owner(2), owner(100));
        table.lock_gap(&second, &key(3), &key(6));
        assert!(!table.is_gap_locked(&first, &key(4)));
        table.await_gap(&first, &key(4), LONG_US).unwrap();
        // The order is fixed for both transactions, so neither waits for a gap lock of the other.
        table.lock_gap(&first, &key(7), &key(9));
        assert!(!table.is_gap_locked(&second, &key(8)));
        assert!(table.is_gap_locked(&free, &key(4)) && table.is_gap_locked(&free, &key(8)));
        // A session that has detached its context, and an owner without context, are outside the
        // order.
        second.detach_host();
        assert!(table.is_gap_locked(&first, &key(4)));
        assert!(table.is_gap_locked(&owner(0), &key(8)));
        assert_eq!((host.reports(), table.stats().waits), (vec![], 0));
    }
}

/// The insert waits for the transaction outside the order, and not for the one in its order.
#[test]
fn an_insert_is_granted_while_a_transaction_of_its_order_has_the_gap() {
    for table in tables() {
        let host = observed(&table);
        let (first, second, free) = (owner(1), owner(2), owner(100));
        table.lock_gap(&second, &key(3), &key(6));
        table.lock_gap(&free, &key(2), &key(5));
        thread::scope(|scope| {
            let waiting = scope.spawn(|| table.await_gap(&first, &key(4), LONG_US));
            until_waiting(&table, 1);
            assert_eq!(table.waits()[0].blockers, [100]);
            while host.0.lock().is_empty() {
                thread::yield_now();
            }
            table.release_all(&free);
            waiting.join().unwrap().unwrap();
        });
        assert_eq!(host.reports(), [(1, 100)]);
    }
}

#[test]
fn a_gap_lock_over_a_waiting_insert_is_reported() {
    for table in tables() {
        let host = observed(&table);
        let (first, second, one, two) = (owner(1), owner(2), owner(100), owner(101));
        table.lock_gap(&one, &key(3), &key(6));
        thread::scope(|scope| {
            let waiting = scope.spawn(|| table.await_gap(&first, &key(4), LONG_US));
            until_waiting(&table, 1);
            while host.0.lock().is_empty() {
                thread::yield_now();
            }
            assert_eq!(host.reports(), [(1, 100)]);
            // Four gap locks: one beside the insert's key; one over the key, by a transaction of
            // the fixed order; one over the key, by a free transaction; and the same again. Only
            // the third is reported.
            table.lock_gap(&two, &key(5), &key(8));
            table.lock_gap(&second, &key(1), &key(8));
            assert_eq!(host.reports(), []);
            table.lock_gap(&two, &key(1), &key(8));
            assert_eq!(host.reports(), [(1, 101)]);
            table.lock_gap(&two, &key(4), &key(5));
            assert_eq!(host.reports(), []);
            table.release_all(&one);
            table.release_all(&two);
            waiting.join().unwrap().unwrap();
        });
    }
}

/// A shared request that waits behind an exclusive one does not wait for a shared holder, but it
/// does wait for this holder once the holder upgrades its lock.
#[test]
fn an_upgrade_ahead_of_waiting_requests_is_reported() {
    for table in tables() {
        for another_holder in [false, true] {
            let host = observed(&table);
            let (holder, writer, reader, other) = (owner(1), owner(2), owner(3), owner(4));
            table.acquire(&holder, b"a", Shared, LONG).unwrap();
            if another_holder {
                table.acquire(&other, b"a", Shared, LONG).unwrap();
            }
            thread::scope(|scope| {
                let writing = scope.spawn(|| table.acquire(&writer, b"a", Exclusive, LONG));
                until_waiting(&table, 1);
                let reading = scope.spawn(|| table.acquire(&reader, b"a", Shared, LONG));
                until_waiting(&table, 2);
                // Both waits have begun, but their threads may not have reported them yet.
                let begun = [(3, 2), (2, 1)].into_iter();
                let begun: Vec<_> = begun.chain(another_holder.then_some((2, 4))).collect();
                let reported = || begun.iter().all(|pair| host.0.lock().contains(pair));
                while !reported() {
                    thread::yield_now();
                }
                host.reports();
                let upgrading = scope.spawn(|| table.acquire(&holder, b"a", Exclusive, LONG));
                if another_holder {
                    until_waiting(&table, 3);
                    table.release_all(&other);
                }
                upgrading.join().unwrap().unwrap();
                let own = another_holder.then_some((1, 4));
                let expected: Vec<_> = own.into_iter().chain([(2, 1), (3, 1)]).collect();
                let reports = host.reports();
                // The report of the other shared holder may be missing, since that holder may
                // release its lock before the report. The two waiting requests are always reported.
                assert!(
                    reports == expected || reports == [(2, 1), (3, 1)],
                    "{reports:?}"
                );
                table.release_all(&holder);
                writing.join().unwrap().unwrap();
                table.release_all(&writer);
                reading.join().unwrap().unwrap();
                table.release_all(&reader);
            });
        }
    }
}

#[test]
fn the_transaction_that_commits_last_is_the_victim() {
    for table in tables() {
        observed(&table);
        // The transaction that commits later is the victim, whichever of the two closes the cycle,
        // and although it is heavier.
        for closed_by_first in [false, true] {
            let (first, second) = (owner(1), owner(2));
            second.set_changed_rows(1000);
            table.acquire(&first, b"a", Exclusive, LONG).unwrap();
            table.acquire(&second, b"b", Exclusive, LONG).unwrap();
            let first_waits = || table.acquire(&first, b"b", Exclusive, LONG);
            let second_waits = || {
                let result = table.acquire(&second, b"a", Exclusive, LONG);
                table.release_all(&second);
                result
            };
            thread::scope(|scope| {
                let (won, lost) = if closed_by_first {
                    let lost = scope.spawn(second_waits);
                    until_waiting(&table, 1);
                    (first_waits(), lost.join().unwrap())
                } else {
                    let won = scope.spawn(first_waits);
                    until_waiting(&table, 1);
                    let lost = second_waits();
                    (won.join().unwrap(), lost)
                };
                assert_eq!(lost.unwrap_err().kind(), &ErrorKind::Deadlock);
                won.unwrap();
            });
            table.release_all(&first);
        }
    }
}

/// Looks whether the blocker has released its lock during the report.
#[derive(Default)]
struct Slow {
    reports: AtomicBool,
    released: AtomicBool,
    too_early: AtomicBool,
}

impl WaitObserver for Slow {
    fn waits_for(&self, _waiter: u64, _blocker: u64) {
        self.reports.store(true, Ordering::SeqCst);
        thread::sleep(Duration::from_millis(20));
        let released = self.released.load(Ordering::SeqCst);
        self.too_early.store(released, Ordering::SeqCst);
    }
}

/// A host that interrupts the reported blocker must not meet its session's next transaction.
#[test]
fn the_blocker_cannot_go_on_while_it_is_reported() {
    for table in tables() {
        for gap in [false, true] {
            let slow = Arc::<Slow>::default();
            table.set_observer(Some(Arc::clone(&slow) as Arc<dyn WaitObserver>));
            let (waiter, blocker) = (owner(1), owner(2));
            match gap {
                true => _ = table.lock_gap(&blocker, &key(3), &key(6)),
                false => _ = table.acquire(&blocker, &key(4), Exclusive, LONG).unwrap(),
            }
            thread::scope(|scope| {
                scope.spawn(|| {
                    while !slow.reports.load(Ordering::SeqCst) {
                        thread::yield_now();
                    }
                    table.release_all(&blocker);
                    slow.released.store(true, Ordering::SeqCst);
                });
                match gap {
                    true => table.await_gap(&waiter, &key(4), LONG_US).unwrap(),
                    false => _ = table.acquire(&waiter, &key(4), Exclusive, LONG).unwrap(),
                }
            });
            assert!(!slow.too_early.load(Ordering::SeqCst), "gap lock: {gap}");
            table.release_all(&waiter);
        }
    }
}
