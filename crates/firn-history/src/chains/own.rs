//! A transaction sees itself: its own writes are replayed, and each later range must show them.

use super::{Chains, TxnIndex, rows_read};
use crate::history::{Op, Outcome, Scan, Statement, Status};
use crate::verdict::Verdict;
use std::collections::{BTreeMap, HashSet};

/// Where the rows are that a transaction wrote; none: it has deleted the row.
type Own = BTreeMap<u64, Option<(u64, i64)>>;

impl Chains<'_> {
    /// A row that a transaction wrote stays as it is until its end, because nobody else may change it. So each
    /// later range of the transaction meets the row exactly if it was put there, and no result has a row twice.
    pub(super) fn check_own(&self, verdict: &mut Verdict) {
        for (t, txn) in self.history.txns.iter().enumerate() {
            let mut own = Own::new();
            for (o, op) in txn.ops.iter().enumerate() {
                let mut ids = HashSet::new();
                if let Some(row) = rows_read(op).iter().find(|row| !ids.insert(row.id)) {
                    let story = format!("statement {o} of T{} met row {} twice", txn.id, row.id);
                    verdict.find("row twice", &[txn.id], story);
                }
                // What a savepoint took back was followed by no read.
                if op.status == Status::Done {
                    self.check_range(t, o, &own, verdict);
                    self.replay(op, &mut own);
                }
            }
        }
    }

    fn check_range(&self, t: TxnIndex, o: usize, own: &Own, verdict: &mut Verdict) {
        let txn = self.txn(t);
        let op = &txn.ops[o];
        let (scan, met, partial): (_, HashSet<u64>, _) = match &op.statement {
            Statement::Read { scan, rows } | Statement::Delete { scan, rows } => {
                (scan, rows.iter().map(|row| row.id).collect(), false)
            }
            Statement::Lock {
                scan,
                rows,
                partial,
            } => (scan, rows.iter().map(|row| row.id).collect(), *partial),
            // Only of what stays it is known which rows it has changed.
            Statement::Append { scan, element, .. } if txn.outcome == Outcome::Ok => {
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
