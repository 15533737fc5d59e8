//! A transaction sees itself: its own writes are replayed, and each later range must show them.

use super::{Chains, TxnIndex, rows_read};
use crate::history::{Op, Scan, Statement, StatementStatus, TxnOutcome};
use crate::verdict::Verdict;
use std::collections::{BTreeMap, HashSet};

/// Where the rows are that a transaction wrote; none: it has deleted the row.
type Own = BTreeMap<u64, Option<(u64, i64)>>;

impl Chains<'_> {
    /// A row that a transaction wrote stays as it is until its end, because nobody else may change
    /// it. So each later range of the transaction meets the row exactly if it was put there, and no
    /// result has a row twice.
    pub(super) fn check_own(&self, verdict: &mut Verdict) {
        for (t, txn) in self.history.txns.iter().enumerate() {
            let mut own = Own::new();
            for (o, op) in txn.ops.iter().enumerate() {
                let mut ids = HashSet::new();
                let mut rows = rows_read(op).iter();
                if let Some(row) =
                    rows.find(|row| !self.is_under_old_key(t, o, row) && !ids.insert(row.id))
                {
                    let story = format!("statement {o} of T{} met row {} twice", txn.id, row.id);
                    verdict.find("row twice", &[txn.id], story);
                }
                // What a savepoint took back was followed by no read.
                if op.status == StatementStatus::Done {
                    self.check_range(t, o, &own, verdict);
                    self.replay(op, &mut own);
                }
            }
        }
    }

    /// Where the transaction has written rows up to statement `o`. What its snapshot has there may
    /// be under the same primary key, and is covered then: another one has put a new row in the
    /// place of the old one, and this one has changed the new row.
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
            // Only of what stays it is known which rows it has changed.
            Statement::Append { scan, element, .. } if txn.outcome == TxnOutcome::Ok => {
                let carriers = self.carriers(*element).iter();
                (scan, carriers.map(|&(row, _)| row).collect(), false)
            }
            _ => return,
        };
        if !matches!(scan, Scan::Range { .. }) {
            return;
        }
        for (&row, &place) in own {
            let there = place.is_some_and(|place| scan.covers(row, place));
            let verb = match (there, met.contains(&row)) {
                (true, false) if !partial => "did not meet",
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
