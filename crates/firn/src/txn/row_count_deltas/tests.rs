use super::super::write_set::WriteSet;
use super::*;
use crate::base::Value;

/// Row count changes together with a write set, which provides the marks.
struct Session {
    counts: RowCountDeltas,
    writes: WriteSet,
    statement: Savepoint,
    tables: [Arc<RowCount>; 2],
}

impl Session {
    fn new() -> Self {
        let rows = || {
            let rows = RowCount::default();
            rows.set(0, 0);
            Arc::new(rows)
        };
        let writes = WriteSet::new(u64::MAX, None);
        Self {
            counts: RowCountDeltas::default(),
            statement: writes.mark(),
            writes,
            tables: [rows(), rows()],
        }
    }

    fn insert(&mut self, table: usize, rows: i64) {
        for _ in 0..rows.abs() {
            self.writes.put(b"\0\0\0\x01k", Value::whole(b"v")).unwrap();
            let id = table as IndexId + 1;
            self.counts
                .count(id, &self.tables[table], rows.signum(), false);
        }
    }

    /// A cascade deletes rows before the statement's own row is counted.
    fn cascade(&mut self, table: usize, rows: i64) {
        for _ in 0..rows {
            self.writes.put(b"\0\0\0\x01k", Value::whole(b"v")).unwrap();
            let id = table as IndexId + 1;
            self.counts.count(id, &self.tables[table], -1, true);
        }
    }

    fn end_statement(&mut self) {
        self.counts.end_statement(self.statement);
        self.statement = self.writes.mark();
    }

    fn statement(&mut self, table: usize, rows: i64) {
        self.insert(table, rows);
        self.end_statement();
    }

    fn savepoint(&mut self) -> Savepoint {
        let mark = self.writes.mark();
        self.counts.set_savepoint(mark);
        mark
    }

    fn rollback_to(&mut self, mark: Savepoint) {
        self.writes.rollback_to(mark);
        self.counts.rollback_to(mark, self.statement);
        self.statement = self.statement.min(mark);
    }

    /// Commits; the changes are those that the session has seen before.
    fn commit(&mut self) -> [u64; 2] {
        let before = [0, 1].map(|i| self.tables[i].counted());
        let nets = [1, 2].map(|id| self.counts.net(id));
        self.counts.commit();
        let counted = [0, 1].map(|i| self.tables[i].counted() - before[i]);
        assert_eq!(counted, nets);
        assert_eq!([1, 2].map(|id| self.counts.net(id)), [0, 0]);
        self.counts.clear();
        [0, 1].map(|i| self.tables[i].rows().unwrap())
    }
}

#[test]
fn a_commit_counts_all_statements_and_a_rollback_none() {
    let mut session = Session::new();
    session.statement(0, 5);
    session.statement(1, 3);
    session.statement(0, -2);
    session.insert(1, 1);
    assert_eq!(session.commit(), [3, 4]);
    session.statement(0, 7);
    session.insert(1, 7);
    session.counts.clear();
    assert_eq!(session.commit(), [3, 4]);
    assert_eq!(session.counts.tables.len(), 2);
}

#[test]
fn a_statement_that_is_taken_back_counts_nothing_a_row_only_itself() {
    let mut session = Session::new();
    session.statement(0, 2);
    session.insert(0, 4);
    // The fifth row fails after its first index entry is written, and before the row is counted.
    let row = session.writes.mark();
    session
        .writes
        .put(b"\0\0\0\x01k", Value::whole(b"v"))
        .unwrap();
    session.rollback_to(row);
    session.insert(0, 1);
    session.end_statement();
    session.insert(0, 100);
    session.rollback_to(session.statement);
    session.end_statement();
    assert_eq!(session.commit(), [7, 0]);
}

#[test]
fn a_row_that_is_taken_back_takes_its_cascades_back() {
    let mut session = Session::new();
    session.statement(0, 10);
    session.statement(1, 10);
    // A row with three referencing rows.
    session.cascade(1, 3);
    session.insert(0, -1);
    // Another one, whose cascade fails at its third row.
    let row = session.writes.mark();
    session.cascade(1, 2);
    let third = session.writes.mark();
    session.rollback_to(third);
    session.rollback_to(row);
    session.insert(0, -1);
    // The first row of a statement fails in the same way.
    session.end_statement();
    session.cascade(1, 2);
    session.rollback_to(session.statement);
    session.end_statement();
    assert_eq!(session.commit(), [8, 7]);
}

#[test]
fn savepoints_take_back_what_came_after_them() {
    let mut session = Session::new();
    session.statement(0, 1);
    let first = session.savepoint();
    session.statement(0, 10);
    session.statement(1, 10);
    let second = session.savepoint();
    session.statement(0, 100);
    session.rollback_to(second);
    session.statement(1, 1000);
    session.rollback_to(second);
    session.statement(0, 20);
    assert_eq!(session.counts.earlier.len(), 4);
    session.rollback_to(first);
    session.statement(0, 2);
    assert_eq!(session.counts.net(1), 3);
    session.statement(0, 3);
    assert_eq!(session.commit(), [6, 0]);
}

#[test]
fn statements_between_two_savepoints_are_one_element() {
    let mut session = Session::new();
    for _ in 0..1000 {
        session.statement(0, 1);
        session.statement(1, 1);
    }
    assert_eq!(session.counts.earlier.len(), 2);
    let mark = session.savepoint();
    session.statement(0, 1);
    session.rollback_to(mark);
    for _ in 0..1000 {
        session.statement(0, 1);
    }
    assert_eq!(session.counts.earlier.len(), 3);
    assert_eq!(session.commit(), [2000, 1000]);
}

#[test]
fn a_session_that_has_met_many_tables_forgets_them() {
    let mut session = Session::new();
    let tables: Vec<_> = (0..TABLES_KEPT as u32 + 1)
        .map(|id| (id, Arc::new(RowCount::default())))
        .collect();
    for (id, rows) in &tables {
        session.counts.count(*id, rows, 1, false);
    }
    session.counts.commit();
    session.counts.clear();
    assert!(session.counts.tables.is_empty() && session.counts.by_index.is_empty());
    assert!(tables.iter().all(|(_, rows)| rows.counted() == 1));
}
