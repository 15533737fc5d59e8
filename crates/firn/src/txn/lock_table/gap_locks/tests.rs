use super::*;
use crate::txn::lock_table::{LockTable, WaitPolicy};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::thread;
use std::time::Duration;

const SECONDS_10: u64 = 10_000_000;

fn key(n: u32) -> Vec<u8> {
    let mut key = 7_u32.to_be_bytes().to_vec();
    key.extend_from_slice(&n.to_be_bytes());
    key
}

/// The locked ranges of all owners as a plain list: owner, lower bound, upper bound.
#[derive(Default)]
struct Model(Vec<(u64, u32, u32)>);

impl Model {
    fn is_locked_against(&self, owner: u64, n: u32) -> bool {
        let mut all = self.0.iter();
        all.any(|&(other, lower, upper)| other != owner && lower <= n && n < upper)
    }

    fn holds(&self, owner: u64, n: u32) -> bool {
        let mut all = self.0.iter();
        all.any(|&(other, lower, upper)| other == owner && lower <= n && n < upper)
    }
}

#[test]
fn ranges_are_those_of_a_plain_list() {
    const KEYS: u32 = 40;
    for seed in 0..400 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let table = GapLockTable::new(Arc::default());
        let owners: Vec<_> = (1..5).map(|id| LockOwner::new(id, 0)).collect();
        let mut model = Model::default();
        for _ in 0..60 {
            let owner = &owners[rng.random_range(0..owners.len())];
            let lower = rng.random_range(0..KEYS);
            let upper = rng.random_range(lower..=KEYS);
            if rng.random_range(0..10) == 0 {
                table.release_all(owner);
                model.0.retain(|(id, _, _)| *id != owner.id());
            } else {
                let mut held = (lower..upper).map(|n| model.holds(owner.id(), n));
                let expected = match lower == upper || held.clone().all(|h| h) {
                    true => GapGrant::Before,
                    false if held.any(|h| h) => GapGrant::Partly,
                    false => GapGrant::Newly,
                };
                let grant = table.lock(owner, &key(lower), &key(upper));
                assert_eq!(grant, expected, "seed {seed}");
                model.0.push((owner.id(), lower, upper));
                if grant == GapGrant::Newly && rng.random() {
                    // Give a part of the range back, as a scan does when it meets a key that
                    // another transaction has inserted.
                    let from = rng.random_range(lower..=upper);
                    table.unlock(owner, &key(from), &key(upper));
                    model.0.pop();
                    model.0.push((owner.id(), lower, from));
                }
            }
            for owner in &owners {
                for n in 0..KEYS {
                    assert_eq!(
                        table.is_locked_against(owner, &key(n)),
                        model.is_locked_against(owner.id(), n),
                        "seed {seed}, owner {}, key {n}",
                        owner.id()
                    );
                }
            }
        }
        owners.iter().for_each(|owner| table.release_all(owner));
        for slot in &table.slots {
            assert!(slot.indexes.lock().is_empty());
            assert_eq!(slot.owners.load(Ordering::SeqCst), 0);
        }
    }
}

#[test]
fn a_scan_keeps_one_range() {
    let table = GapLockTable::new(Arc::default());
    let owner = LockOwner::new(1, 0);
    for n in 0..10_000 {
        table.lock(&owner, &key(n), &key(n + 1));
    }
    assert_eq!(owner.gaps_held(), 1);
    let mut ranges = 0;
    table.for_each(|_, _, _| ranges += 1, |_, _| {});
    assert_eq!(ranges, 1);
}

#[test]
fn an_insert_waits_for_all_who_have_locked_its_gap() {
    let table = Arc::new(LockTable::merging_at(100));
    let (a, b, c) = (
        LockOwner::new(1, 0),
        LockOwner::new(2, 0),
        LockOwner::new(3, 0),
    );
    table.lock_gap(&a, &key(0), &key(10));
    table.lock_gap(&b, &key(5), &key(20));
    assert!(table.is_gap_locked(&c, &key(7)));
    assert!(table.is_gap_locked(&a, &key(7)));
    assert!(!table.is_gap_locked(&a, &key(2)));
    let waiting = {
        let (table, c) = (Arc::clone(&table), Arc::clone(&c));
        thread::spawn(move || table.await_gap(&c, &key(7), SECONDS_10))
    };
    let wait = || loop {
        if let [wait] = &table.waits()[..] {
            return wait.clone();
        }
        thread::sleep(Duration::from_millis(1));
    };
    assert!(wait().is_insert);
    assert_eq!(wait().blockers, [1, 2]);
    table.release_all(&a);
    assert_eq!(wait().blockers, [2]);
    table.release_all(&b);
    waiting.join().unwrap().unwrap();
    assert!(!table.is_gap_locked(&c, &key(7)));
}

#[test]
fn two_inserts_into_each_others_gaps_are_a_deadlock() {
    let table = Arc::new(LockTable::merging_at(100));
    let (a, b) = (LockOwner::new(1, 0), LockOwner::new(2, 0));
    for owner in [&a, &b] {
        table.lock_gap(owner, &key(0), &key(10));
    }
    a.set_changed_rows(1);
    let waiting = {
        let (table, a) = (Arc::clone(&table), Arc::clone(&a));
        thread::spawn(move || table.await_gap(&a, &key(3), SECONDS_10))
    };
    while table.waits().is_empty() {
        thread::sleep(Duration::from_millis(1));
    }
    let error = table.await_gap(&b, &key(4), SECONDS_10).unwrap_err();
    assert_eq!(*error.kind(), crate::base::ErrorKind::Deadlock);
    table.release_all(&b);
    waiting.join().unwrap().unwrap();
}

#[test]
fn a_deadlock_goes_through_rows_and_gaps() {
    let table = Arc::new(LockTable::merging_at(100));
    let (a, b) = (LockOwner::new(1, 0), LockOwner::new(2, 0));
    let wait = WaitPolicy::Wait {
        timeout_micros: SECONDS_10,
    };
    table.lock_gap(&a, &key(0), &key(10));
    let exclusive = crate::txn::LockMode::Exclusive;
    table.acquire(&b, &key(50), exclusive, wait).unwrap();
    b.set_changed_rows(5);
    let waiting = {
        let (table, b) = (Arc::clone(&table), Arc::clone(&b));
        thread::spawn(move || table.await_gap(&b, &key(3), SECONDS_10))
    };
    while table.waits().is_empty() {
        thread::sleep(Duration::from_millis(1));
    }
    let error = table.acquire(&a, &key(50), exclusive, wait).unwrap_err();
    assert_eq!(*error.kind(), crate::base::ErrorKind::Deadlock);
    table.release_all(&a);
    waiting.join().unwrap().unwrap();
}

#[test]
fn a_wait_for_a_gap_ends_with_its_time_and_with_a_kill() {
    let table = Arc::new(LockTable::merging_at(100));
    let (a, b) = (LockOwner::new(1, 0), LockOwner::new(2, 0));
    table.lock_gap(&a, &key(0), &key(10));
    for timeout in [0, 1000] {
        let error = table.await_gap(&b, &key(3), timeout).unwrap_err();
        assert_eq!(*error.kind(), crate::base::ErrorKind::LockTimeout);
    }
    let waiting = {
        let (table, b) = (Arc::clone(&table), Arc::clone(&b));
        thread::spawn(move || table.await_gap(&b, &key(3), SECONDS_10))
    };
    while table.waits().is_empty() {
        thread::sleep(Duration::from_millis(1));
    }
    b.interrupt();
    let error = waiting.join().unwrap().unwrap_err();
    assert_eq!(*error.kind(), crate::base::ErrorKind::Interrupted);
    assert!(table.waits().is_empty());
}

/// The end of one index equals the start of the next index, so ranges of both adjoin there. A
/// release finds both ranges.
#[test]
fn the_end_of_an_index_is_not_joined_to_the_next_one() {
    let prefix = |index: u32| index.to_be_bytes().to_vec();
    let table = GapLockTable::new(Arc::default());
    let (a, b) = (LockOwner::new(1, 0), LockOwner::new(2, 0));
    table.lock(&a, &prefix(7), &prefix(8));
    table.lock(&a, &prefix(8), &prefix(9));
    let key = [prefix(8), vec![1]].concat();
    assert!(table.is_locked_against(&b, &key));
    table.release_all(&a);
    assert!(!table.is_locked_against(&b, &key));
    table.for_each(|_, _, _| panic!("a range is left"), |_, _| {});
}
