//! Scans: rows that they must meet, and rows that they may miss.

use super::*;

/// `other` locks position 100 and inserts a row at position `at`; the scan of `t` in `order` waits
/// for position 100 and misses the new row.
pub(super) fn scan_beside_insert(level: IsolationLevel, at: u64, order: i8) -> Script {
    let mut s = script(level);
    let other = s.begin();
    s.append(other, range(100, 100, 1), 20);
    s.insert(other, at, 21);
    let t = s.begin();
    let waits = s.append(t, range(0, 1000, order), 10);
    s.commit(other);
    s.until_now(waits);
    s.commit(t);
    let mut rows: Vec<(u64, &[Element])> = vec![(100, &[1, 20, 10]), (102, &[2, 10]), (at, &[21])];
    rows.sort_unstable();
    s.look(&rows);
    s
}

#[test]
fn a_scan_that_waited_must_see_what_was_inserted_ahead_of_it() {
    for level in BOTH {
        let s = scan_beside_insert(level, 101, 1);
        assert_eq!(s.names(), ["phantom (G-single)"]);
        assert_eq!(
            scan_beside_insert(level, 99, -1).names(),
            ["phantom (G-single)"]
        );
    }
}

#[test]
fn a_scan_may_miss_what_was_inserted_behind_it_unless_gaps_are_locked() {
    for (level, at, order) in [
        (IsolationLevel::ReadCommitted, 99, 1),
        (IsolationLevel::RepeatableRead, 101, -1),
    ] {
        let mut s = scan_beside_insert(level, at, order);
        let verdict = s.judge();
        assert_eq!(verdict.findings, []);
        assert_eq!(
            verdict.gaps.len(),
            usize::from(level == IsolationLevel::RepeatableRead)
        );
        s.history.setup.gap_locks = true;
        assert_eq!(
            s.names().len(),
            usize::from(level == IsolationLevel::RepeatableRead)
        );
    }
    // With an unknown scan order, nothing is proved.
    assert_eq!(
        scan_beside_insert(IsolationLevel::ReadCommitted, 101, 0).names(),
        [""; 0]
    );
}

#[test]
fn a_row_that_was_there_all_the_time_is_met() {
    for level in BOTH {
        let mut s = script(level);
        let t = s.begin();
        s.lock(t, all(), &[(100, &[1])]);
        s.commit(t);
        s.look(&[(100, &[1]), (102, &[2])]);
        assert_eq!(s.names(), ["lost row"]);
    }
}

#[test]
fn a_deleted_row_may_be_missed_and_must_be_afterwards() {
    let mut s = script(IsolationLevel::ReadCommitted);
    let (a, b) = (s.begin(), s.begin());
    s.delete(a, range(100, 100, 1), &[(100, &[1])]);
    let waits = s.lock(b, all(), &[(102, &[2])]);
    s.commit(a);
    s.until_now(waits);
    s.commit(b);
    assert_eq!(s.names(), [""; 0]);
    s.look(&[(100, &[1]), (102, &[2])]);
    assert_eq!(s.names(), ["G-single, by the clock"]);
}

#[test]
fn a_row_that_moves_is_in_one_place() {
    let moved = |log: &[Element]| Row {
        list: 8,
        pos: 5,
        ..row(100, log)
    };
    let mut s = script(IsolationLevel::ReadCommitted);
    let a = s.begin();
    let statement = Statement::Append {
        scan: Scan::Point { id: 100 },
        element: 10,
        add: 0,
        to: Some((8, 5)),
        renames: false,
        count: Some(1),
    };
    s.op(a, statement);
    s.commit(a);
    s.look(&[(102, &[2])]);
    let t = s.begin();
    let scan = Scan::Range {
        list: 8,
        from: 0,
        to: 9,
        order: 1,
        even: false,
    };
    let rows = vec![moved(&[1, 10])];
    s.op(
        t,
        Statement::Lock {
            scan,
            rows,
            partial: false,
        },
    );
    s.commit(t);
    assert_eq!(s.names(), [""; 0]);
    // The row is also found at its old position.
    let t = s.begin();
    s.read(t, &[(100, &[1, 10]), (102, &[2])]);
    s.commit(t);
    assert_eq!(s.names(), ["torn row"]);
}

#[test]
fn a_condition_beyond_the_range_leaves_rows_out() {
    for level in BOTH {
        let updated = |log: &[Element]| {
            let mut s = script(level);
            let t = s.begin();
            s.insert(t, 101, 10);
            let even = Scan::Range {
                list: LIST,
                from: 0,
                to: 1000,
                order: 1,
                even: true,
            };
            s.append(t, even, 11);
            s.commit(t);
            s.look(&[(100, &[1, 11]), (101, &[10]), (102, log)]);
            s.names()
        };
        assert_eq!(updated(&[2, 11]), [""; 0]);
        assert_eq!(updated(&[2]), ["lost row"]);
    }
}
