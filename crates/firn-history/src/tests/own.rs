//! Own writes of a transaction in its later reads.

use super::*;

#[test]
fn own_writes_are_seen() {
    let mut s = script(IsolationLevel::RepeatableRead);
    let t = s.begin();
    s.append(t, all(), 10);
    s.read(t, &[(100, &[1, 10]), (102, &[2])]);
    s.commit(t);
    s.look(&[(100, &[1, 10]), (102, &[2, 10])]);
    assert_eq!(s.names(), ["own write not seen"]);
}

/// The findings of a history in which one transaction writes, scans a range with locks and ends
/// with `outcome`.
fn looks(
    outcome: TxnOutcome,
    write: impl Fn(&mut Script, usize),
    scan: Scan,
    rows: &[(u64, &[Element])],
) -> Vec<String> {
    let mut s = script(IsolationLevel::ReadCommitted);
    let t = s.begin();
    write(&mut s, t);
    s.lock(t, scan, rows);
    s.end(t, outcome);
    s.names()
}

#[test]
fn rows_that_a_transaction_inserted_are_met() {
    for outcome in [TxnOutcome::Ok, TxnOutcome::Failed] {
        let looks = |rows: &[(u64, &[Element])]| {
            let write = |s: &mut Script, t: usize| {
                s.insert(t, 101, 10);
            };
            looks(outcome, write, range(101, 1000, 1), rows)
        };
        assert_eq!(looks(&[(101, &[10]), (102, &[2])]), [""; 0]);
        assert_eq!(looks(&[(102, &[2])]), ["own write not seen"]);
        let twice: &[(u64, &[Element])] = &[(101, &[10]), (101, &[10]), (102, &[2])];
        assert_eq!(looks(twice), ["row twice"]);
    }
}

#[test]
fn rows_that_a_transaction_changed_are_met() {
    let mut s = script(IsolationLevel::RepeatableRead);
    let t = s.begin();
    s.append(t, all(), 10);
    s.read(t, &[(100, &[1, 10])]);
    s.append(t, range(100, 100, 1), 11);
    s.commit(t);
    s.look(&[(100, &[1, 10, 11]), (102, &[2, 10])]);
    assert_eq!(s.names(), ["own write not seen"]);
}

#[test]
fn an_update_meets_rows_of_its_own_transaction() {
    let updated = |element: &[Element]| {
        let mut s = script(IsolationLevel::ReadCommitted);
        let t = s.begin();
        s.insert(t, 101, 10);
        s.append(t, range(101, 1000, 1), 11);
        s.commit(t);
        s.look(&[(100, &[1]), (101, element), (102, &[2, 11])]);
        s.names()
    };
    assert_eq!(updated(&[10, 11]), [""; 0]);
    assert_eq!(updated(&[10]), ["own write not seen"]);
}

#[test]
fn rows_that_a_transaction_deleted_or_moved_are_not_met() {
    for outcome in [TxnOutcome::Ok, TxnOutcome::Failed] {
        let delete = |s: &mut Script, t: usize| {
            s.delete(t, range(100, 100, 1), &[(100, &[1])]);
        };
        let looks = |rows: &[(u64, &[Element])]| looks(outcome, delete, all(), rows);
        assert_eq!(looks(&[(102, &[2])]), [""; 0]);
        let back = looks(&[(100, &[1]), (102, &[2])]);
        assert_eq!(back, ["own write not seen"]);
    }
    let away = |s: &mut Script, t: usize| {
        let statement = Statement::Append {
            scan: Scan::Point { id: 100 },
            element: 10,
            add: 0,
            to: Some((8, 5)),
            renames: false,
            count: Some(1),
        };
        s.op(t, statement);
    };
    assert_eq!(
        looks(TxnOutcome::Failed, away, all(), &[(102, &[2])]),
        [""; 0]
    );
    let back = looks(
        TxnOutcome::Failed,
        away,
        all(),
        &[(100, &[1, 10]), (102, &[2])],
    );
    assert_eq!(back, ["torn row", "own write not seen"]);
}

/// Transaction `other` moves a row of the snapshot of `t` to another list and commits. An update of
/// that list by `t` meets the row there, and from then on `t` sees the row nowhere else. If `t`
/// fails, no read shows which rows its update has changed.
#[test]
fn an_update_that_fails_may_have_moved_the_transaction_to_a_newer_row() {
    for (updates, found) in [(true, None), (false, Some("lost row"))] {
        let mut s = script(IsolationLevel::RepeatableRead);
        let t = s.begin();
        s.op(t, Statement::Snapshot);
        let other = s.begin();
        let statement = Statement::Append {
            scan: Scan::Point { id: 100 },
            element: 10,
            add: 0,
            to: Some((8, 5)),
            renames: false,
            count: Some(1),
        };
        s.op(other, statement);
        s.commit(other);
        if updates {
            let list = Scan::Range {
                list: 8,
                from: 0,
                to: 1000,
                order: 1,
                even: false,
            };
            s.append(t, list, 11);
        }
        s.read(t, &[(102, &[2])]);
        s.end(t, TxnOutcome::Failed);
        let last = s.begin();
        let moved = Row {
            list: 8,
            pos: 5,
            ..row(100, &[1, 10])
        };
        let statement = Statement::Lock {
            scan: Scan::Point { id: 100 },
            rows: vec![moved],
            partial: false,
        };
        s.op(last, statement);
        s.commit(last);
        assert_eq!(s.names(), Vec::from_iter(found));
    }
}

/// SKIP LOCKED may leave out even rows that the transaction itself has locked: InnoDB skips a row
/// if another transaction waits for its lock.
#[test]
fn skip_locked_may_leave_own_rows_out() {
    let mut s = script(IsolationLevel::ReadCommitted);
    let t = s.begin();
    s.insert(t, 101, 10);
    let statement = Statement::Lock {
        scan: all(),
        rows: Vec::new(),
        partial: true,
    };
    s.op(t, statement);
    s.commit(t);
    assert_eq!(s.names(), [""; 0]);
}

/// Transaction `other` replaces a row of the snapshot of `t` by a new one with the same primary
/// key. Then `t` changes the new row: in the later snapshot reads of `t` its own write stands for
/// this key, and hides the old row.
#[test]
fn an_own_row_covers_the_one_that_the_snapshot_has_there() {
    for changes in [true, false] {
        let mut s = script(IsolationLevel::RepeatableRead);
        let t = s.begin();
        s.op(t, Statement::Snapshot);
        let other = s.begin();
        s.delete(other, range(100, 100, 1), &[(100, &[1])]);
        let new = |log: &[Element]| Row {
            id: 200,
            pos: 100,
            ..row(200, log)
        };
        s.op(other, Statement::Insert { row: new(&[20]) });
        s.commit(other);
        if changes {
            s.append(t, range(100, 100, 1), 10);
        }
        let rows = vec![new(if changes { &[20, 10] } else { &[20] }), row(102, &[2])];
        s.op(t, Statement::Read { scan: all(), rows });
        s.end(t, TxnOutcome::Failed);
        assert_eq!(s.names().is_empty(), changes, "{:?}", s.names());
    }
}

/// Transaction `other` gives a row a new primary key, and `t` changes the row under the new key.
/// The snapshot of `t` still has the row under the old key, and no write of `t` hides it there.
#[test]
fn a_snapshot_has_a_row_under_its_old_key_too() {
    for renames in [true, false] {
        let mut s = script(IsolationLevel::RepeatableRead);
        let t = s.begin();
        s.op(t, Statement::Snapshot);
        let other = s.begin();
        let statement = Statement::Append {
            scan: range(100, 100, 1),
            element: 20,
            add: 0,
            to: None,
            renames,
            count: Some(1),
        };
        s.op(other, statement);
        s.commit(other);
        s.append(t, range(100, 100, 1), 10);
        s.read(t, &[(100, &[1]), (100, &[1, 20, 10]), (102, &[2])]);
        s.delete(t, range(100, 100, 1), &[(100, &[1, 20, 10])]);
        s.read(t, &[(100, &[1]), (102, &[2])]);
        s.commit(t);
        assert_eq!(s.names().is_empty(), renames, "{:?}", s.names());
    }
}

/// For a single value of a unique key the server reads only the first entry. That may be a row of
/// the snapshot, although the transaction has already changed the row that replaced it.
#[test]
fn a_row_of_the_snapshot_may_hide_an_own_row_with_its_unique_key() {
    for (unique, expected) in [(true, vec![]), (false, vec!["own write not seen"])] {
        let mut s = script(IsolationLevel::RepeatableRead);
        if unique {
            s.history.setup.unique = vec![LIST];
        }
        let new = |log: &[Element]| Row {
            id: 555,
            ..row(100, log)
        };
        let t = s.begin();
        s.read(t, &[(100, &[1]), (102, &[2])]);
        let other = s.begin();
        s.delete(other, range(100, 100, 1), &[(100, &[1])]);
        let inserted = s.op(other, Statement::Insert { row: new(&[10]) });
        s.until_now(inserted);
        s.commit(other);
        s.append(t, range(100, 100, 1), 11);
        let read = Statement::Read {
            scan: range(100, 100, 1),
            rows: vec![row(100, &[1])],
        };
        let read = s.op(t, read);
        s.until_now(read);
        s.commit(t);
        let last = s.begin();
        let read = Statement::Read {
            scan: all(),
            rows: vec![new(&[10, 11]), row(102, &[2])],
        };
        let read = s.op(last, read);
        s.until_now(read);
        s.commit(last);
        assert_eq!(s.names(), expected);
    }
}
