//! Which keys a rollback gives back.

use super::*;
use crate::txn::write_set::WriteSet;

/// Savepoints after 0, 1, 2, … writes.
fn marks(number: usize) -> Vec<Savepoint> {
    let mut writes = WriteSet::new(u64::MAX, None);
    let mut marks = vec![writes.mark()];
    for _ in 1..number {
        writes.delete(b"key").unwrap();
        marks.push(writes.mark());
    }
    marks
}

fn released(locks: &mut WriteLocks, mark: Savepoint) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    for group in locks.roll_back(mark) {
        group.for_each(|key| keys.push(key.to_vec()));
    }
    keys.sort();
    keys
}

fn add(locks: &mut WriteLocks, key: &str, statement: Savepoint) {
    locks.add([key.as_bytes()], statement);
}

#[test]
fn a_statement_gives_back_its_own_keys() {
    let at = marks(9);
    let mut locks = WriteLocks::default();
    add(&mut locks, "a", at[0]);
    locks.end_statement();
    add(&mut locks, "b", at[1]);
    add(&mut locks, "c", at[1]);
    // The rollback of one row within the statement releases no lock of an earlier row.
    assert!(released(&mut locks, at[3]).is_empty());
    assert_eq!(released(&mut locks, at[1]), [b"b", b"c"]);
    assert!(released(&mut locks, at[0]).is_empty(), "a is forgotten");
}

#[test]
fn a_savepoint_gives_back_the_keys_of_later_statements() {
    let at = marks(9);
    let mut locks = WriteLocks::default();
    add(&mut locks, "a", at[0]);
    locks.end_statement();
    locks.set_savepoint(at[1]);
    add(&mut locks, "b", at[1]);
    locks.end_statement();
    add(&mut locks, "c", at[2]);
    locks.end_statement();
    locks.set_savepoint(at[3]);
    add(&mut locks, "d", at[3]);
    locks.end_statement();
    assert_eq!(locks.groups.len(), 2, "one group for each savepoint");
    assert_eq!(released(&mut locks, at[3]), [b"d"]);
    add(&mut locks, "e", at[3]);
    locks.end_statement();
    assert_eq!(released(&mut locks, at[1]), [b"b", b"c", b"e"]);
    add(&mut locks, "f", at[4]);
    locks.end_statement();
    assert_eq!(released(&mut locks, at[1]), [b"f"], "the savepoint stays");
}

#[test]
fn a_savepoint_within_a_statement_divides_it() {
    let at = marks(9);
    let mut locks = WriteLocks::default();
    add(&mut locks, "a", at[1]);
    locks.set_savepoint(at[2]);
    add(&mut locks, "b", at[1]);
    assert_eq!(released(&mut locks, at[2]), [b"b"]);
    add(&mut locks, "c", at[1]);
    assert_eq!(released(&mut locks, at[1]), [b"a", b"c"]);
}

#[test]
fn many_keys_take_little_memory() {
    let at = marks(3);
    let mut locks = WriteLocks::default();
    locks.set_savepoint(at[0]);
    let key = |n: u64| [&[0, 0, 0, 7][..], &n.to_be_bytes()].concat();
    for n in 0..300_000 {
        locks.add([&key(n)[..]], at[0]);
    }
    locks.end_statement();
    assert!(locks.bytes() < 1 << 20, "{}", locks.bytes());
    let keys = released(&mut locks, at[0]);
    assert_eq!(keys.len(), 300_000);
    assert!((0..300_000).zip(&keys).all(|(n, found)| key(n) == *found));
}
