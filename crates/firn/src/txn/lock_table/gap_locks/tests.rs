use super::*;
use crate::txn::lock_table::{LockTable, WaitPolicy};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::thread;
use std::time::Duration;

const LONG_US: u64 = 120_000_000;

fn key(n: u32) -> Vec<u8> {
    let mut key = 7_u32.to_be_bytes().to_vec();
    key.extend_from_slice(&n.to_be_bytes());
    key
}

/// Numbers of keys below this one belong to index 7, the others to index 8. The first key of index
/// 8 is the end of index 7.
const FIRST_OF_8: u32 = 20;
const KEYS: u32 = 40;

/// The key with number `n` of the two indexes.
fn numbered(n: u32) -> Vec<u8> {
    match n.checked_sub(FIRST_OF_8) {
        None if n == 0 => 7_u32.to_be_bytes().to_vec(),
        None => key(n),
        Some(0) => 8_u32.to_be_bytes().to_vec(),
        Some(n) => [&8_u32.to_be_bytes()[..], &n.to_be_bytes()].concat(),
    }
}

/// The owners that have locked each key.
struct Model(Vec<Vec<u64>>);

impl Model {
    fn is_locked_against(&self, owner: u64, n: u32) -> bool {
        self.0[n as usize].iter().any(|other| *other != owner)
    }

    fn holds(&self, owner: u64, n: u32) -> bool {
        self.0[n as usize].contains(&owner)
    }

    fn set(&mut self, owner: u64, lower: u32, upper: u32, holds: bool) {
        for owners in &mut self.0[lower as usize..upper as usize] {
            owners.retain(|other| *other != owner);
            if holds {
                owners.push(owner);
            }
        }
    }
}

/// A random range within one of the two indexes, often a whole index.
fn random_range(rng: &mut SmallRng) -> (u32, u32) {
    let (first, end) = match rng.random() {
        true => (0, FIRST_OF_8),
        false => (FIRST_OF_8, KEYS),
    };
    if rng.random_range(0..8) == 0 {
        return (first, end);
    }
    let lower = rng.random_range(first..=end);
    (lower, rng.random_range(lower..=end))
}

/// The ranges of each owner are those of the tree, and none of them adjoin within an index.
fn check_own_ranges(table: &GapLockTable, owners: &[Arc<LockOwner>]) {
    let mut listed = Vec::new();
    table.for_each_range(|lower, upper, owner| {
        listed.push((owner.id(), lower.to_vec(), upper.to_vec()));
    });
    let mut own = Vec::new();
    for owner in owners {
        let gaps = owner.gaps.lock();
        let mut before: Option<(IndexId, &[u8])> = None;
        for (lower, upper) in &gaps.ranges {
            let index = index_of(lower);
            assert!(before.is_none_or(|(of, end)| of != index || end < &lower[..]));
            before = Some((index, upper));
            own.push((owner.id(), lower.to_vec(), upper.clone()));
        }
    }
    listed.sort();
    own.sort();
    assert_eq!(listed, own);
}

#[test]
fn ranges_are_those_of_a_plain_list() {
    for seed in 0..400 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let table = GapLockTable::new(Arc::default());
        let owners: Vec<_> = (1..5).map(|id| LockOwner::new(id, 0)).collect();
        let mut model = Model(vec![Vec::new(); KEYS as usize]);
        let mut waiters: Vec<(Arc<LockRequest>, u32)> = Vec::new();
        for _ in 0..80 {
            let owner = &owners[rng.random_range(0..owners.len())];
            let (lower, upper) = random_range(&mut rng);
            match rng.random_range(0..10) {
                0 => {
                    table.release_all(owner);
                    model.set(owner.id(), 0, KEYS, false);
                }
                1 => {
                    let n = rng.random_range(0..KEYS);
                    let waiter = table.enqueue(owner, &numbered(n));
                    assert_eq!(waiter.is_some(), model.is_locked_against(owner.id(), n));
                    waiters.extend(waiter.map(|waiter| (waiter, n)));
                }
                _ => {
                    let mut held = (lower..upper).map(|n| model.holds(owner.id(), n));
                    let expected = match lower == upper || held.clone().all(|h| h) {
                        true => GapGrant::Before,
                        false if held.any(|h| h) => GapGrant::Partly,
                        false => GapGrant::Newly,
                    };
                    let grant = table.lock(owner, &numbered(lower), &numbered(upper));
                    assert_eq!(grant, expected, "seed {seed}");
                    model.set(owner.id(), lower, upper, true);
                    if grant == GapGrant::Newly && rng.random() {
                        // Give a part of the range back, as a scan does when it meets a key that
                        // another transaction has inserted, or a row that it skips. An insert may
                        // have begun to wait in between.
                        let n = rng.random_range(lower..upper);
                        let other = &owners[rng.random_range(0..owners.len())];
                        let waiter = table.enqueue(other, &numbered(n));
                        assert_eq!(waiter.is_some(), model.is_locked_against(other.id(), n));
                        waiters.extend(waiter.map(|waiter| (waiter, n)));
                        let from = rng.random_range(lower..=upper);
                        let to = rng.random_range(from..=upper);
                        table.unlock(owner, &numbered(from), &numbered(to));
                        model.set(owner.id(), from, to, false);
                    }
                }
            }
            check_own_ranges(&table, &owners);
            for owner in &owners {
                for n in 0..KEYS {
                    assert_eq!(
                        table.is_locked_against(owner, &numbered(n)),
                        model.is_locked_against(owner.id(), n),
                        "seed {seed}, owner {}, key {n}",
                        owner.id()
                    );
                }
            }
            waiters.retain(|(waiter, n)| {
                let waits = waiter.outcome() == WaitOutcome::Waiting;
                let blocked = model.is_locked_against(waiter.owner.id(), *n);
                // An insert that was granted once does not wait again.
                assert!(waits == blocked, "seed {seed}, insert of {n}");
                waits
            });
        }
        owners.iter().for_each(|owner| table.release_all(owner));
        for (waiter, _) in &waiters {
            assert_eq!(waiter.outcome(), WaitOutcome::Granted);
        }
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
    table.for_each_range(|_, _, _| ranges += 1);
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
        thread::spawn(move || table.await_gap(&c, &key(7), LONG_US))
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
        thread::spawn(move || table.await_gap(&a, &key(3), LONG_US))
    };
    while table.waits().is_empty() {
        thread::sleep(Duration::from_millis(1));
    }
    let error = table.await_gap(&b, &key(4), LONG_US).unwrap_err();
    assert_eq!(*error.kind(), crate::base::ErrorKind::Deadlock);
    table.release_all(&b);
    waiting.join().unwrap().unwrap();
}

#[test]
fn a_deadlock_goes_through_rows_and_gaps() {
    let table = Arc::new(LockTable::merging_at(100));
    let (a, b) = (LockOwner::new(1, 0), LockOwner::new(2, 0));
    let wait = WaitPolicy::Wait {
        timeout_micros: LONG_US,
    };
    table.lock_gap(&a, &key(0), &key(10));
    let exclusive = crate::txn::LockMode::Exclusive;
    table.acquire(&b, &key(50), exclusive, wait).unwrap();
    b.set_changed_rows(5);
    let waiting = {
        let (table, b) = (Arc::clone(&table), Arc::clone(&b));
        thread::spawn(move || table.await_gap(&b, &key(3), LONG_US))
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
        thread::spawn(move || table.await_gap(&b, &key(3), LONG_US))
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
    table.for_each_range(|_, _, _| panic!("a range is left"));
}
