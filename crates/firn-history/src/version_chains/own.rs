//! Own writes: the writes of each transaction are replayed, and its later scans must show them.

use super::{Chains, Fate, TxnIndex, rows_read};
use crate::history::{IsolationLevel, Op, Row, Scan, Statement, StatementStatus, TxnOutcome};
use crate::verdict::Verdict;
use std::collections::{BTreeMap, HashSet};

/// List and position of each row that a transaction wrote; `None` if it deleted the row.
type Own = BTreeMap<u64, Option<(u64, i64)>>;

impl Chains<'_> {
    /// Checks that each scan of a transaction meets exactly those rows written by the transaction
    /// that it put into the scan's range, and that no result has a row twice. A written row stays
    /// where it is until the transaction's end, because its lock keeps others from changing it.
    pub(super) fn check_own(&self, verdict: &mut Verdict) {
        for (t, txn) in self.history.txns.iter().enumerate() {
            let mut own = Own::new();
            for (o, op) in txn.ops.iter().enumerate() {
                let mut ids = HashSet::new();
                let twice = rows_read(op).iter().find(|row| {
                    !self.is_under_old_key(t, o, row)
                        && !ids.insert(row.id)
                        && !self.may_be_under_two_keys(t, o, row)
                });
                if let Some(row) = twice {
                    let story = format!("statement {o} of T{} met row {} twice", txn.id, row.id);
                    verdict.find("row twice", &[txn.id], story);
                }
                // Statements taken back by a savepoint are neither checked nor replayed: the
                // drivers read nothing between such a write and the rollback.
                if op.status == StatementStatus::Done {
                    self.check_range(t, o, &own, verdict);
                    self.replay(op, &mut own);
                }
            }
        }
    }

    /// Whether the transaction may lose its validation, has written the row under its old primary
    /// key, and another one has given the row a new key meanwhile. A later statement then sees both
    /// the own row and the one under the new key, which it may even write as well.
    fn may_be_under_two_keys(&self, t: TxnIndex, o: usize, row: &Row) -> bool {
        self.may_lose(t, row.list)
            && self.has_touched(t, row.id, o)
            && self.is_renamed_by_other(t, row.id)
    }

    /// Whether the transaction did not commit at READ COMMITTED, and the list is in an optimistic
    /// table. Others may have changed an own row meanwhile: a later statement then sees the row in
    /// part, and the transaction cannot commit.
    fn may_lose(&self, t: TxnIndex, list: u64) -> bool {
        let txn = self.txn(t);
        txn.level == IsolationLevel::ReadCommitted
            && txn.outcome != TxnOutcome::Ok
            && self.history.setup.optimistic.contains(&list)
    }

    /// Lists and positions at which the transaction has written rows up to statement `o`. Another
    /// transaction may have replaced a row of the snapshot by a new one with the same primary key;
    /// once this transaction has changed the new row, its own write covers the old row, which its
    /// snapshot reads then do not show.
    pub(crate) fn own_places(&self, t: TxnIndex, o: usize) -> HashSet<(u64, i64)> {
        let mut places = HashSet::new();
        for op in &self.txn(t).ops[..=o] {
            match &op.statement {
                Statement::Insert { row } => {
                    places.insert((row.list, row.pos));
                }
                Statement::Append { element, .. } => {
                    let carriers = self.carriers(*element).iter();
                    places.extend(carriers.filter_map(|&(row, v)| self.rows[&row].place(v)));
                }
                _ => {}
            }
            let own = rows_read(op)
                .iter()
                .filter(|row| self.has_touched(t, row.id, o + 1));
            places.extend(own.map(|row| (row.list, row.pos)));
        }
        places
    }

    /// The scans of updates before statement `o` of a transaction that has not committed. No later
    /// read tells which rows they changed: such a row may be newer than the snapshot, and the
    /// transaction then sees it at its new position only.
    pub(crate) fn updates_of_unknown_rows(&self, t: TxnIndex, o: usize) -> Vec<&Scan> {
        if self.fates[t] == Fate::Committed {
            return Vec::new();
        }
        let before = self.txn(t).ops[..o].iter();
        before
            .filter_map(|op| match &op.statement {
                Statement::Append { scan, .. } => Some(scan),
                _ => None,
            })
            .collect()
    }

    fn check_range(&self, t: TxnIndex, o: usize, own: &Own, verdict: &mut Verdict) {
        let txn = self.txn(t);
        let op = &txn.ops[o];
        let (scan, met, partial): (_, HashSet<u64>, _) = match &op.statement {
            Statement::Read { scan, rows } => {
                let new = rows.iter().filter(|row| !self.is_under_old_key(t, o, row));
                (scan, new.map(|row| row.id).collect(), false)
            }
            Statement::Delete { scan, rows } => {
                (scan, rows.iter().map(|row| row.id).collect(), false)
            }
            Statement::Lock {
                scan,
                rows,
                partial,
            } => (scan, rows.iter().map(|row| row.id).collect(), *partial),
            // The rows that an update changed are known from later reads of its element, so only if
            // it committed.
            Statement::Append { scan, element, .. } if txn.outcome == TxnOutcome::Ok => {
                let carriers = self.carriers(*element).iter();
                (scan, carriers.map(|&(row, _)| row).collect(), false)
            }
            _ => return,
        };
        let Scan::Range { list, .. } = scan else {
            return;
        };
        if self.may_lose(t, *list) {
            return;
        }
        // One row was met at the only position that was read, where an own row may be, too.
        let first_of_two = match (&op.statement, scan) {
            (Statement::Read { rows, .. }, Scan::Range { list, from, to, .. }) => {
                from == to && rows.len() == 1 && self.history.setup.unique.contains(list)
            }
            _ => false,
        };
        for (&row, &place) in own {
            let there = place.is_some_and(|place| scan.covers(row, place));
            let verb = match (there, met.contains(&row)) {
                (true, false) if !partial && !first_of_two => "did not meet",
                (false, true) => "met",
                _ => continue,
            };
            let id = txn.id;
            let did = match place {
                Some(place) => format!("it put at {place:?} itself"),
                None => "it had deleted itself".into(),
            };
            let story = format!("statement {o} of T{id} {verb} row {row}, which {did}");
            verdict.find("own write not seen", &[id], story);
        }
    }

    fn replay(&self, op: &Op, own: &mut Own) {
        match &op.statement {
            Statement::Insert { row } => {
                own.insert(row.id, Some((row.list, row.pos)));
            }
            Statement::Delete { rows, .. } => {
                own.extend(rows.iter().map(|row| (row.id, None)));
            }
            Statement::Append {
                scan,
                element,
                to,
                count,
                ..
            } => {
                if let (Scan::Point { id }, Some(to), Some(1..)) = (scan, to, count) {
                    own.insert(*id, Some(*to));
                }
                for &(row, version) in self.carriers(*element) {
                    own.insert(row, self.rows[&row].place(version));
                }
            }
            _ => {}
        }
    }
}
