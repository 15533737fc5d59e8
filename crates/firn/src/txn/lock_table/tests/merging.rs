use super::*;
use LockMode::{Exclusive, Shared};

fn row(index: u32, number: u64) -> Vec<u8> {
    let mut key = index.to_be_bytes().to_vec();
    key.extend_from_slice(&number.to_be_bytes());
    key
}

fn lock_rows(table: &LockTable, owner: &Arc<LockOwner>, rows: impl Iterator<Item = u64>) {
    for number in rows {
        let granted = table.acquire(owner, &row(7, number), Exclusive, LONG);
        assert!(granted.unwrap().newly);
    }
}

const TRY: WaitPolicy = WaitPolicy::NoWait;

#[test]
fn a_million_rows_in_order_take_kilobytes() {
    let table = LockTable::merging_at(4096);
    let (one, two) = (LockOwner::new(1, 0), LockOwner::new(2, 0));
    lock_rows(&table, &one, (0..1_000_000).map(|n| 2 * n));
    assert_eq!(one.locks_held(), 1_000_000);
    let memory = table.memory();
    assert_eq!(memory.rows + memory.merged_rows, 1_000_000);
    assert!(memory.rows <= KEPT_ROWS as u64, "{memory:?}");
    assert!(memory.merged_bytes < 1000, "{memory:?}");
    assert!(
        one.held.lock().keys.capacity() < 10_000,
        "the list has shrunk"
    );
    let first = &table.locks(1)[0];
    assert_eq!((first.owner, first.mode), (1, Exclusive));
    assert_eq!(first.key, row(7, 0));
    assert_eq!(first.rows, memory.merged_rows);
    // A key between two locked ones is free.
    assert!(table.acquire(&two, &row(7, 1001), Exclusive, TRY).is_ok());
    assert!(table.acquire(&two, &row(7, 1000), Shared, TRY).is_err());
    assert_eq!(table.holds(&one, &row(7, 1000)), Some(Exclusive));
    let again = table.acquire(&one, &row(7, 1000), Shared, LONG).unwrap();
    assert!(!again.newly);
    table.release_all(&one);
    assert!(table.acquire(&two, &row(7, 1000), Shared, TRY).is_ok());
    table.release_all(&two);
    assert_eq!(table.memory(), LockMemory::default());
    assert!(table.locks(1).is_empty());
}

#[test]
fn refused_requests_leave_merged_locks_where_they_are() {
    let table = LockTable::merging_at(4096);
    let (one, two) = (LockOwner::new(1, 0), LockOwner::new(2, 0));
    lock_rows(&table, &one, 0..20_000);
    let before = table.memory();
    for number in 0..10_000 {
        assert!(table.acquire(&two, &row(7, number), Shared, TRY).is_err());
    }
    assert_eq!(table.memory(), before);
    assert_eq!(two.locks_held(), 0);
}

#[test]
fn a_lock_given_back_early_leaves_the_set() {
    let table = LockTable::merging_at(8);
    let (one, two) = (LockOwner::new(1, 0), LockOwner::new(2, 0));
    // A scan that keeps every third row.
    for number in 0..30_000 {
        lock_rows(&table, &one, std::iter::once(number));
        if number % 3 != 0 {
            assert!(table.release(&one, &row(7, number)));
            assert!(!table.release(&one, &row(7, number)));
        }
    }
    assert_eq!(one.locks_held(), 10_000);
    assert!(table.memory().merged_bytes < 1000, "{:?}", table.memory());
    // Release a key in the middle, too.
    assert!(table.release(&one, &row(7, 3000)));
    for number in 2990..3010 {
        let free = table.acquire(&two, &row(7, number), Exclusive, TRY).is_ok();
        assert_eq!(free, number % 3 != 0 || number == 3000, "row {number}");
    }
}

#[test]
fn shared_locks_that_become_exclusive() {
    let table = LockTable::merging_at(8);
    let (one, two) = (LockOwner::new(1, 0), LockOwner::new(2, 0));
    for owner in [&one, &two] {
        for number in 0..1000 {
            table.acquire(owner, &row(7, number), Shared, LONG).unwrap();
        }
    }
    let upgrade = table.acquire(&one, &row(7, 500), Exclusive, TRY);
    assert!(upgrade.is_err(), "both hold it");
    assert!(table.release(&two, &row(7, 500)));
    for number in [500, 501] {
        let upgrade = table.acquire(&one, &row(7, number), Exclusive, TRY);
        assert_eq!(upgrade.is_ok(), number == 500);
    }
    assert_eq!(table.holds(&one, &row(7, 500)), Some(Exclusive));
    assert_eq!(table.holds(&one, &row(7, 501)), Some(Shared));
    table.release_all(&two);
    for number in 0..1000 {
        table
            .acquire(&one, &row(7, number), Exclusive, TRY)
            .unwrap();
    }
    assert_eq!(one.locks_held(), 1000);
    let memory = table.memory();
    assert!(memory.merged_bytes < 1000 && memory.rows < 20, "{memory:?}");
    assert!(table.acquire(&two, &row(7, 999), Shared, TRY).is_err());
}

#[test]
fn indexes_are_shown_apart() {
    let table = LockTable::merging_at(4);
    let one = LockOwner::new(1, 0);
    for number in 0..100 {
        for index in [7, 9, 7 + 64] {
            let key = row(index, number);
            table.acquire(&one, &key, Exclusive, LONG).unwrap();
        }
    }
    let locks = table.locks(100);
    let mut merged: Vec<_> = locks.iter().filter(|lock| lock.last.is_some()).collect();
    merged.sort_by_key(|lock| lock.key.clone());
    let indexes: Vec<_> = merged.iter().map(|lock| lock.key[3]).collect();
    assert_eq!(indexes, [7, 9, 71]);
    assert_eq!(locks.iter().map(|lock| lock.rows).sum::<u64>(), 300);
    assert_eq!(table.locks(2).len(), 2);
    table.release_all(&one);
    assert!(table.locks(1).is_empty());
}

/// A merge leaves rows with a queue in the hash table and moves all others.
#[test]
fn a_row_somebody_waits_for_stays_a_row() {
    let table = LockTable::merging_at(4);
    let (one, two) = (LockOwner::new(1, 0), LockOwner::new(2, 0));
    lock_rows(&table, &one, 0..2);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| table.acquire(&two, &row(7, 1), Shared, LONG));
        until_waiting(&table, 1);
        lock_rows(&table, &one, 2..1000);
        let memory = table.memory();
        assert!(memory.rows < 10 && memory.merged_rows > 990, "{memory:?}");
        assert_eq!(table.waits()[0].blockers, [1]);
        table.release_all(&one);
        assert!(waiting.join().unwrap().unwrap().waited);
    });
    assert_eq!(two.locks_held(), 1);
}
