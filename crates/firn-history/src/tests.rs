//! Planted anomalies, which must be found with their name, next to permitted histories, which must
//! have no finding.

mod crashes;
mod optimistic;
mod own;
mod scans;

use crate::history::{
    Element, History, IsolationLevel, Op, Row, Scan, Statement, StatementStatus, TimeSpan, Txn,
    TxnOutcome,
};
use crate::{Verdict, check};

/// Builds a history in the order of its clock: each call takes the next two times.
struct Script {
    history: History,
    clock: u64,
    life: u32,
    level: IsolationLevel,
}

const LIST: u64 = 7;

fn script(level: IsolationLevel) -> Script {
    let mut script = Script {
        history: History::default(),
        clock: 0,
        life: 0,
        level,
    };
    // T1 inserts rows 100 and 102, with elements 1 and 2.
    let t1 = script.begin();
    script.insert(t1, 100, 1);
    script.insert(t1, 102, 2);
    script.commit(t1);
    script
}

/// A row of the list whose id is its position.
fn row(pos: u64, log: &[Element]) -> Row {
    Row {
        id: pos,
        list: LIST,
        pos: pos as i64,
        amount: 0,
        log: log.to_vec(),
    }
}

fn range(from: i64, to: i64, order: i8) -> Scan {
    Scan::Range {
        list: LIST,
        from,
        to,
        order,
        even: false,
    }
}

fn all() -> Scan {
    range(0, 1000, 1)
}

impl Script {
    fn begin(&mut self) -> usize {
        let id = self.history.txns.len() as u64 + 1;
        self.history.txns.push(Txn {
            id,
            life: self.life,
            level: self.level,
            outcome: TxnOutcome::Unknown,
            end: None,
            ops: Vec::new(),
        });
        id as usize - 1
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn span(&mut self) -> TimeSpan {
        TimeSpan {
            begin: self.tick(),
            end: Some(self.tick()),
        }
    }

    /// Adds a statement. Returns its position, for [`Self::until_now`].
    fn op(&mut self, t: usize, statement: Statement) -> (usize, usize) {
        let span = self.span();
        let ops = &mut self.history.txns[t].ops;
        ops.push(Op {
            span,
            status: StatementStatus::Done,
            statement,
        });
        (t, ops.len() - 1)
    }

    /// Moves the statement's answer to now.
    fn until_now(&mut self, (t, o): (usize, usize)) {
        let now = self.tick();
        self.history.txns[t].ops[o].span.end = Some(now);
    }

    fn insert(&mut self, t: usize, pos: u64, element: Element) -> (usize, usize) {
        let row = row(pos, &[element]);
        self.op(t, Statement::Insert { row })
    }

    fn append(&mut self, t: usize, scan: Scan, element: Element) -> (usize, usize) {
        let statement = Statement::Append {
            scan,
            element,
            add: 0,
            to: None,
            renames: false,
            count: None,
        };
        self.op(t, statement)
    }

    fn read(&mut self, t: usize, rows: &[(u64, &[Element])]) -> (usize, usize) {
        let rows = rows.iter().map(|(pos, log)| row(*pos, log)).collect();
        self.op(t, Statement::Read { scan: all(), rows })
    }

    fn lock(&mut self, t: usize, scan: Scan, rows: &[(u64, &[Element])]) -> (usize, usize) {
        let rows = rows.iter().map(|(pos, log)| row(*pos, log)).collect();
        let statement = Statement::Lock {
            scan,
            rows,
            partial: false,
        };
        self.op(t, statement)
    }

    fn delete(&mut self, t: usize, scan: Scan, rows: &[(u64, &[Element])]) -> (usize, usize) {
        let rows = rows.iter().map(|(pos, log)| row(*pos, log)).collect();
        self.op(t, Statement::Delete { scan, rows })
    }

    fn end(&mut self, t: usize, outcome: TxnOutcome) {
        let span = self.span();
        let txn = &mut self.history.txns[t];
        txn.outcome = outcome;
        txn.end = Some(span);
    }

    fn commit(&mut self, t: usize) {
        self.end(t, TxnOutcome::Ok);
    }

    /// Adds a committed transaction that reads all rows.
    fn look(&mut self, rows: &[(u64, &[Element])]) {
        let t = self.begin();
        self.read(t, rows);
        self.commit(t);
    }

    fn judge(&self) -> Verdict {
        check(&self.history)
    }

    fn names(&self) -> Vec<String> {
        let verdict = self.judge();
        let mut names: Vec<_> = verdict.findings.into_iter().map(|f| f.name).collect();
        names.dedup();
        names
    }
}

const BOTH: [IsolationLevel; 2] = [
    IsolationLevel::ReadCommitted,
    IsolationLevel::RepeatableRead,
];

#[test]
fn an_orderly_history_has_no_finding() {
    for level in BOTH {
        let mut s = script(level);
        s.look(&[(100, &[1]), (102, &[2])]);
        let t = s.begin();
        s.append(t, all(), 10);
        s.insert(t, 101, 11);
        s.read(t, &[(100, &[1, 10]), (101, &[11]), (102, &[2, 10])]);
        s.commit(t);
        let t = s.begin();
        s.delete(t, range(102, 102, 1), &[(102, &[2, 10])]);
        s.commit(t);
        s.look(&[(100, &[1, 10]), (101, &[11])]);
        let verdict = s.judge();
        assert_eq!(verdict.findings, []);
        assert!(verdict.permitted.is_empty() && verdict.gaps.is_empty());
        assert_eq!(verdict.txns["ok"], 5);
    }
}

#[test]
fn writes_of_two_transactions_do_not_interleave() {
    let mut s = script(IsolationLevel::ReadCommitted);
    let (a, b) = (s.begin(), s.begin());
    s.append(a, all(), 10);
    let late = s.append(b, all(), 20);
    s.commit(a);
    s.until_now(late);
    s.commit(b);
    s.look(&[(100, &[1, 10, 20]), (102, &[2, 20, 10])]);
    assert_eq!(s.names(), ["G0"]);
}

#[test]
fn what_is_taken_back_is_not_seen() {
    let mut s = script(IsolationLevel::ReadCommitted);
    let a = s.begin();
    s.append(a, all(), 10);
    s.look(&[(100, &[1, 10]), (102, &[2])]);
    s.end(a, TxnOutcome::Failed);
    assert_eq!(s.names(), ["G1a"]);

    let mut s = script(IsolationLevel::ReadCommitted);
    let a = s.begin();
    let (_, o) = s.append(a, all(), 10);
    s.history.txns[a].ops[o].status = StatementStatus::Undone;
    s.commit(a);
    s.look(&[(100, &[1, 10]), (102, &[2])]);
    assert_eq!(s.names(), ["G1a"]);
}

#[test]
fn the_middle_of_a_transaction_is_not_seen() {
    let mut s = script(IsolationLevel::ReadCommitted);
    let a = s.begin();
    s.append(a, all(), 10);
    s.append(a, all(), 11);
    let other = s.begin();
    let seen = s.read(other, &[(100, &[1, 10]), (102, &[2, 10])]);
    s.commit(a);
    s.until_now(seen);
    s.commit(other);
    s.look(&[(100, &[1, 10, 11]), (102, &[2, 10, 11])]);
    assert!(s.names().contains(&"G1b".to_string()), "{:?}", s.names());
}

#[test]
fn two_transactions_do_not_read_from_each_other() {
    let mut s = script(IsolationLevel::ReadCommitted);
    let (a, b) = (s.begin(), s.begin());
    s.append(a, range(100, 100, 1), 10);
    s.append(b, range(102, 102, 1), 20);
    let read_a = s.lock(a, range(102, 102, 1), &[(102, &[2, 20])]);
    let read_b = s.lock(b, range(100, 100, 1), &[(100, &[1, 10])]);
    s.until_now(read_a);
    s.until_now(read_b);
    s.commit(a);
    s.commit(b);
    assert_eq!(s.names(), ["G1c"]);
}

#[test]
fn an_uncommitted_read_is_found_by_the_clock() {
    let mut s = script(IsolationLevel::ReadCommitted);
    let a = s.begin();
    s.append(a, all(), 10);
    s.look(&[(100, &[1, 10]), (102, &[2, 10])]);
    s.commit(a);
    assert_eq!(s.names(), ["G1c, by the clock"]);
}

#[test]
fn one_statement_reads_at_one_instant() {
    for level in BOTH {
        let mut s = script(level);
        let (a, b) = (s.begin(), s.begin());
        s.append(a, all(), 10);
        let seen = s.read(b, &[(100, &[1, 10]), (102, &[2])]);
        s.commit(a);
        s.until_now(seen);
        s.commit(b);
        s.look(&[(100, &[1, 10]), (102, &[2, 10])]);
        assert_eq!(s.names(), ["G-single"]);
    }
}

#[test]
fn repeatable_read_has_one_snapshot_and_read_committed_one_for_each_statement() {
    for level in BOTH {
        let mut s = script(level);
        let t = s.begin();
        s.read(t, &[(100, &[1]), (102, &[2])]);
        let a = s.begin();
        s.append(a, all(), 10);
        s.commit(a);
        s.read(t, &[(100, &[1, 10]), (102, &[2, 10])]);
        s.commit(t);
        match level {
            IsolationLevel::ReadCommitted => assert_eq!(s.names(), [""; 0]),
            _ => assert_eq!(s.names(), ["G-single"]),
        }
    }
}

#[test]
fn an_old_state_is_found_by_the_clock() {
    let mut s = script(IsolationLevel::ReadCommitted);
    let a = s.begin();
    s.append(a, all(), 10);
    s.commit(a);
    s.look(&[(100, &[1]), (102, &[2])]);
    s.look(&[(100, &[1, 10]), (102, &[2, 10])]);
    assert_eq!(s.names(), ["G-single, by the clock"]);
}

/// `b` reads the row under its lock and changes it; the change by `a` comes in between.
#[test]
fn a_locked_row_stays_as_it_was_read() {
    for level in BOTH {
        let mut s = script(level);
        let (a, b) = (s.begin(), s.begin());
        s.append(a, range(100, 100, 1), 10);
        let late = s.lock(b, range(100, 100, 1), &[(100, &[1])]);
        s.commit(a);
        s.until_now(late);
        s.append(b, range(100, 100, 1), 20);
        s.commit(b);
        s.look(&[(100, &[1, 10, 20]), (102, &[2])]);
        assert_eq!(s.names(), ["lost update"]);
    }
}

/// A lost update whose lost element is overwritten by a log computed from the old one.
#[test]
fn an_overwritten_element_is_found() {
    let mut s = script(IsolationLevel::ReadCommitted);
    let a = s.begin();
    s.append(a, range(100, 100, 1), 10);
    s.commit(a);
    s.look(&[(100, &[1, 10]), (102, &[2])]);
    let b = s.begin();
    s.append(b, range(100, 100, 1), 20);
    s.commit(b);
    s.look(&[(100, &[1, 20]), (102, &[2])]);
    assert!(s.names().contains(&"incompatible versions".to_string()));
    // No read shows the lost element, but the engine reported the number of changed rows.
    let mut s = script(IsolationLevel::ReadCommitted);
    let a = s.begin();
    let (_, o) = s.append(a, range(100, 100, 1), 10);
    if let Statement::Append { count, .. } = &mut s.history.txns[a].ops[o].statement {
        *count = Some(1);
    }
    s.commit(a);
    s.look(&[(100, &[1]), (102, &[2])]);
    assert!(s.names().contains(&"lost update".to_string()));
}

#[test]
fn what_plain_reads_may_lose_is_listed() {
    // A lost update through a plain SELECT.
    let mut s = script(IsolationLevel::RepeatableRead);
    let (a, b) = (s.begin(), s.begin());
    s.read(a, &[(100, &[1]), (102, &[2])]);
    s.append(b, range(100, 100, 1), 20);
    s.commit(b);
    s.append(a, range(100, 100, 1), 10);
    s.commit(a);
    s.look(&[(100, &[1, 20, 10]), (102, &[2])]);
    let verdict = s.judge();
    assert_eq!(verdict.findings, []);
    assert_eq!(verdict.permitted["G-single"], 1);

    // Write skew.
    let s = write_skew(IsolationLevel::RepeatableRead);
    let verdict = s.judge();
    assert_eq!(verdict.findings, []);
    assert_eq!(verdict.permitted["G2-item"], 1);
}

#[test]
fn a_cycle_of_serializable_transactions_is_found() {
    let s = write_skew(IsolationLevel::Serializable);
    assert_eq!(s.names(), ["not serializable: G2-item"]);
}

fn write_skew(level: IsolationLevel) -> Script {
    let mut s = script(level);
    let (a, b) = (s.begin(), s.begin());
    s.read(a, &[(100, &[1]), (102, &[2])]);
    s.read(b, &[(100, &[1]), (102, &[2])]);
    s.append(a, range(100, 100, 1), 10);
    s.append(b, range(102, 102, 1), 20);
    s.commit(a);
    s.commit(b);
    s.look(&[(100, &[1, 10]), (102, &[2, 20])]);
    s
}

#[test]
fn write_skew_of_locking_reads_is_found() {
    let mut s = script(IsolationLevel::ReadCommitted);
    let (a, b) = (s.begin(), s.begin());
    s.lock(a, all(), &[(100, &[1]), (102, &[2])]);
    s.lock(b, all(), &[(100, &[1]), (102, &[2])]);
    s.append(a, range(100, 100, 1), 10);
    s.append(b, range(102, 102, 1), 20);
    s.commit(a);
    s.commit(b);
    s.look(&[(100, &[1, 10]), (102, &[2, 20])]);
    assert_eq!(s.names(), ["G2-item"]);
}

#[test]
fn amounts_follow_from_elements_and_keep_their_sum() {
    let mut s = script(IsolationLevel::ReadCommitted);
    s.history.setup.balanced = vec![LIST];
    let t = s.begin();
    for (pos, element, add) in [(100, 10, -5), (102, 11, 5)] {
        let scan = Scan::Point { id: pos };
        let statement = Statement::Append {
            scan,
            element,
            add,
            to: None,
            renames: false,
            count: Some(1),
        };
        s.op(t, statement);
    }
    s.commit(t);
    let with = |amount, mut row: Row| {
        row.amount = amount;
        row
    };
    let (mut a, mut b) = (with(-5, row(100, &[1, 10])), with(5, row(102, &[2, 11])));
    let t = s.begin();
    let rows = vec![a.clone(), b.clone()];
    s.op(t, Statement::Read { scan: all(), rows });
    s.commit(t);
    assert_eq!(s.names(), [""; 0]);
    a.amount = -4;
    b.amount = 6;
    let t = s.begin();
    let rows = vec![a, b];
    s.op(t, Statement::Read { scan: all(), rows });
    s.commit(t);
    assert_eq!(s.names(), ["torn row", "sum"]);
}

#[test]
fn a_statement_applies_once() {
    let mut s = script(IsolationLevel::ReadCommitted);
    let t = s.begin();
    s.append(t, all(), 10);
    s.commit(t);
    s.look(&[(100, &[1, 10, 10]), (102, &[2, 10])]);
    assert!(s.names().contains(&"applied twice".to_string()));
}

#[test]
fn histories_go_through_files() {
    let mut s = scans::scan_beside_insert(IsolationLevel::RepeatableRead, 101, 1);
    s.history.setup.engine = "FIRN".into();
    let mut file = Vec::new();
    s.history.write(&mut file).unwrap();
    let again = History::read(&file[..]).unwrap();
    assert_eq!(again.setup.engine, "FIRN");
    assert_eq!(again.txns.len(), s.history.txns.len());
    assert_eq!(check(&again).findings, s.judge().findings);
    assert_eq!(check(&again).findings.len(), 1);
}
