//! Histories of optimistic tables: statements read at one instant and lock nothing; commits
//! validate.

use super::*;

fn optimistic(level: IsolationLevel) -> Script {
    let mut s = script(level);
    s.history.setup.optimistic = vec![LIST];
    s
}

#[test]
fn an_update_of_an_old_version_does_not_commit() {
    for level in BOTH {
        let mut s = optimistic(level);
        let (a, b) = (s.begin(), s.begin());
        s.lock(b, range(100, 100, 1), &[(100, &[1])]);
        s.append(a, range(100, 100, 1), 10);
        s.commit(a);
        s.append(b, range(100, 100, 1), 20);
        s.commit(b);
        s.look(&[(100, &[1, 10, 20]), (102, &[2])]);
        assert_eq!(s.names(), ["lost update"], "{level:?}");
    }
}

#[test]
fn rows_read_for_update_do_not_change_before_the_commit() {
    for level in BOTH {
        for writes in [true, false] {
            let mut s = optimistic(level);
            let (a, b) = (s.begin(), s.begin());
            s.lock(a, range(100, 100, 1), &[(100, &[1])]);
            s.lock(b, range(102, 102, 1), &[(102, &[2])]);
            s.append(b, range(100, 100, 1), 20);
            if writes {
                s.append(a, range(102, 102, 1), 10);
            }
            s.commit(b);
            s.commit(a);
            match writes {
                true => {
                    s.look(&[(100, &[1, 20]), (102, &[2, 10])]);
                    assert_eq!(s.names(), ["G2-item"], "{level:?}");
                }
                false => {
                    s.look(&[(100, &[1, 20]), (102, &[2])]);
                    assert_eq!(s.names(), ["G-single, by the clock"], "{level:?}");
                }
            }
        }
    }
}

#[test]
fn locking_reads_share_the_snapshot() {
    for level in BOTH {
        let mut s = optimistic(level);
        let t = s.begin();
        s.lock(t, all(), &[(100, &[1]), (102, &[2])]);
        let a = s.begin();
        s.append(a, all(), 10);
        s.commit(a);
        // In a table with locks, a locking read after the commit of `a` must not return these old
        // rows. In an optimistic table it reads the snapshot of `t`, which is older than the
        // commit.
        s.lock(t, all(), &[(100, &[1]), (102, &[2])]);
        s.end(t, TxnOutcome::Failed);
        s.look(&[(100, &[1, 10]), (102, &[2, 10])]);
        let names = s.names();
        match level {
            IsolationLevel::ReadCommitted => assert_eq!(names, ["G-single, by the clock"]),
            _ => assert_eq!(names, [""; 0]),
        }
        s.history.setup.optimistic.clear();
        assert!(!s.names().is_empty(), "{level:?}");
    }
}

#[test]
fn a_range_is_not_locked() {
    let mut s = optimistic(IsolationLevel::RepeatableRead);
    s.history.setup.gap_locks = true;
    let (t, a) = (s.begin(), s.begin());
    s.lock(t, all(), &[(100, &[1]), (102, &[2])]);
    s.insert(a, 101, 10);
    s.commit(a);
    s.append(t, range(102, 102, 1), 20);
    s.commit(t);
    s.look(&[(100, &[1]), (101, &[10]), (102, &[2, 20])]);
    assert_eq!(s.names(), [""; 0]);
    s.history.setup.optimistic.clear();
    assert_eq!(s.names().len(), 1);
}

#[test]
fn an_insert_or_a_failed_statement_may_have_taken_the_snapshot() {
    // `t` rolls back to a savepoint that it has set before its first statement. Without locks and
    // writes it gives up its snapshot, so its next statement takes a new one and sees the commit of
    // `a`.
    let mut s = optimistic(IsolationLevel::RepeatableRead);
    let (t, a) = (s.begin(), s.begin());
    for element in [20, 21] {
        let (_, o) = s.append(t, all(), element);
        s.history.txns[t].ops[o].status = StatementStatus::Undone;
    }
    s.append(a, all(), 10);
    s.commit(a);
    s.read(t, &[(100, &[1, 10]), (102, &[2, 10])]);
    s.commit(t);
    assert_eq!(s.names(), [""; 0]);
    for failed in [false, true] {
        let mut s = optimistic(IsolationLevel::RepeatableRead);
        let (t, a) = (s.begin(), s.begin());
        match failed {
            true => {
                let (_, o) = s.lock(t, all(), &[]);
                s.history.txns[t].ops[o].status = StatementStatus::Failed;
            }
            false => {
                s.insert(t, 101, 11);
            }
        }
        s.append(a, all(), 10);
        s.commit(a);
        let own: &[(u64, &[Element])] = match failed {
            true => &[(100, &[1]), (102, &[2])],
            false => &[(100, &[1]), (101, &[11]), (102, &[2])],
        };
        s.read(t, own);
        s.commit(t);
        let mut rows: Vec<(u64, &[Element])> = vec![(100, &[1, 10]), (102, &[2, 10])];
        if !failed {
            rows.push((101, &[11]));
        }
        s.look(&rows);
        assert_eq!(s.names(), [""; 0], "failed: {failed}");
    }
}

/// At READ COMMITTED a transaction writes a row under its old primary key, while another one gives
/// the row a new primary key. Then the first one sees the row under both keys, and its commit
/// fails.
#[test]
fn a_transaction_that_loses_may_have_a_row_under_two_keys() {
    let both: &[(u64, &[Element])] = &[(100, &[1, 10]), (100, &[1, 20]), (102, &[2])];
    for renames in [true, false] {
        for outcome in [TxnOutcome::Failed, TxnOutcome::Ok] {
            for locks in [true, false] {
                let mut s = optimistic(IsolationLevel::ReadCommitted);
                let (t, other) = (s.begin(), s.begin());
                s.append(t, range(100, 100, 1), 10);
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
                match locks {
                    true => s.lock(t, all(), both),
                    false => s.read(t, both),
                };
                s.end(t, outcome);
                s.look(&[(100, &[1, 20]), (102, &[2])]);
                let permitted = renames && outcome == TxnOutcome::Failed;
                let names = s.names();
                assert_eq!(names.is_empty(), permitted, "{names:?}");
                if !renames {
                    assert!(names.contains(&"row twice".to_string()), "{names:?}");
                }
            }
        }
    }
}
