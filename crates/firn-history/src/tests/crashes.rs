//! Histories over several lives of a database.

use super::*;

/// An acknowledged commit survives a crash; an unacknowledged one survives completely or not at
/// all.
#[test]
fn crashes_take_only_what_was_not_acknowledged() {
    let crashed = |outcome: TxnOutcome, after: &[(u64, &[Element])]| {
        let mut s = script(IsolationLevel::RepeatableRead);
        let a = s.begin();
        s.append(a, all(), 10);
        s.end(a, outcome);
        if outcome != TxnOutcome::Ok {
            s.history.txns[a].end.as_mut().unwrap().end = None;
        }
        // The commit is visible before it is durable.
        s.look(&[(100, &[1, 10]), (102, &[2, 10])]);
        s.life = 1;
        s.look(after);
        s.names()
    };
    let with: &[(u64, &[Element])] = &[(100, &[1, 10]), (102, &[2, 10])];
    let without: &[(u64, &[Element])] = &[(100, &[1]), (102, &[2])];
    let half: &[(u64, &[Element])] = &[(100, &[1, 10]), (102, &[2])];
    assert_eq!(crashed(TxnOutcome::Ok, with), [""; 0]);
    assert_eq!(crashed(TxnOutcome::Unknown, with), [""; 0]);
    assert_eq!(crashed(TxnOutcome::Unknown, without), [""; 0]);
    assert_eq!(crashed(TxnOutcome::Ok, without), ["G-single, by the clock"]);
    assert_eq!(crashed(TxnOutcome::Unknown, half), ["G-single"]);
}

/// A move or deletion is visible before the crash: a scan misses the row, which is back after the
/// crash.
#[test]
fn a_row_may_be_missed_because_of_a_commit_that_a_crash_took() {
    for moved in [true, false] {
        let mut s = script(IsolationLevel::ReadCommitted);
        let a = s.begin();
        if moved {
            let statement = Statement::Append {
                scan: Scan::Point { id: 100 },
                element: 10,
                add: 0,
                to: Some((8, 5)),
                renames: false,
                count: Some(1),
            };
            s.op(a, statement);
        } else {
            s.delete(a, range(100, 100, 1), &[(100, &[1])]);
        }
        s.end(a, TxnOutcome::Unknown);
        s.look(&[(102, &[2])]);
        s.life = 1;
        s.look(&[(100, &[1]), (102, &[2])]);
        assert_eq!(s.names(), [""; 0]);
        // An acknowledged commit must not be taken back.
        s.history.txns[a].outcome = TxnOutcome::Ok;
        assert!(!s.names().is_empty());
    }
}

/// A scan may miss a row because of a deletion that a crash took back, but only if the scan comes
/// after the deletion was requested.
#[test]
fn a_row_is_not_missed_before_the_commit_that_a_crash_took() {
    let mut s = script(IsolationLevel::ReadCommitted);
    s.look(&[(102, &[2])]);
    let a = s.begin();
    s.delete(a, range(100, 100, 1), &[(100, &[1])]);
    s.end(a, TxnOutcome::Unknown);
    s.life = 1;
    s.look(&[(100, &[1]), (102, &[2])]);
    assert_eq!(s.names(), ["lost row"]);
}

#[test]
fn a_commit_stays_if_a_later_one_that_read_it_does() {
    let mut s = script(IsolationLevel::ReadCommitted);
    let a = s.begin();
    s.append(a, range(100, 100, 1), 10);
    s.end(a, TxnOutcome::Unknown);
    let b = s.begin();
    s.read(b, &[(100, &[1, 10]), (102, &[2])]);
    s.append(b, range(102, 102, 1), 20);
    s.commit(b);
    s.life = 1;
    s.look(&[(100, &[1]), (102, &[2, 20])]);
    assert_eq!(s.names(), ["lost before a later commit"]);
}

/// A session that is killed while idle releases its locks before the client requests the commit,
/// which then gets no answer.
#[test]
fn a_commit_without_an_answer_holds_no_lock_until_it_is_asked_for() {
    let outcomes = [TxnOutcome::Unknown, TxnOutcome::Ok];
    let found = outcomes.map(|outcome| {
        let mut s = script(IsolationLevel::RepeatableRead);
        let idle = s.begin();
        s.lock(idle, range(100, 100, 1), &[(100, &[1])]);
        let other = s.begin();
        s.append(other, range(100, 100, 1), 10);
        s.commit(other);
        s.end(idle, outcome);
        s.look(&[(100, &[1, 10]), (102, &[2])]);
        !s.names().is_empty()
    });
    assert_eq!(found, [false, true]);
}

/// A failed sync hides a commit that others have seen. The crash may bring it back.
#[test]
fn a_commit_that_a_failed_sync_hid_may_come_back() {
    let found = |outcome: TxnOutcome, hides: bool, crashed: bool| {
        let mut s = script(IsolationLevel::ReadCommitted);
        s.history.setup.hides_unsynced = hides;
        let a = s.begin();
        s.append(a, range(100, 100, 1), 10);
        s.insert(a, 104, 11);
        s.end(a, outcome);
        s.look(&[(100, &[1, 10]), (102, &[2]), (104, &[11])]);
        s.look(&[(100, &[1]), (102, &[2])]);
        let b = s.begin();
        s.lock(b, all(), &[(100, &[1]), (102, &[2])]);
        s.commit(b);
        s.life = u32::from(crashed);
        s.look(&[(100, &[1, 10]), (102, &[2]), (104, &[11])]);
        !s.names().is_empty()
    };
    assert!(!found(TxnOutcome::Unknown, true, true));
    assert!(
        found(TxnOutcome::Unknown, false, true),
        "the engine hides nothing"
    );
    assert!(found(TxnOutcome::Unknown, true, false), "nothing was lost");
    assert!(
        found(TxnOutcome::Ok, true, true),
        "the commit was acknowledged"
    );
}
