//! Checks of single rows and statements.

use super::{Chains, Fate, TxnIndex, rows_read, writes};
use crate::history::{Row, Scan, Statement, StatementStatus, TxnOutcome};
use crate::verdict::Verdict;
use std::collections::HashSet;

impl Chains<'_> {
    /// Checks one row as a statement has read it. Each write appends an element, a unique number,
    /// to the row. No element may occur twice in the row or belong to an aborted transaction, and
    /// the row's columns for amount, list and position must have the values that its elements
    /// determine.
    pub(super) fn check_elements(&self, reader: TxnIndex, row: &Row, verdict: &mut Verdict) {
        let id = self.id(reader);
        let (mut amount, mut place, mut known) = (0, None, true);
        for (i, element) in row.log.iter().enumerate() {
            if row.log[..i].contains(element) {
                let story = format!("T{id} saw row {} with {:?}", row.id, row.log);
                verdict.find("applied twice", &[id], story);
            }
            let Some(origin) = self.origins.get(element) else {
                known = false;
                let story = format!(
                    "T{id} saw element {element} in row {}: nobody wrote it",
                    row.id
                );
                verdict.find("garbage", &[id], story);
                continue;
            };
            amount += origin.add;
            place = origin.place.or(place);
            if origin.txn == reader {
                continue;
            }
            let writer = self.id(origin.txn);
            let both = [id, writer];
            match self.fates[origin.txn] {
                Fate::Committed if !origin.undone => {}
                Fate::Committed | Fate::Aborted => {
                    let story = format!("T{id} saw in row {} what T{writer} took back", row.id);
                    verdict.find("G1a", &both, story);
                }
                Fate::Lost => {
                    let txn = self.txn(reader);
                    if txn.outcome == TxnOutcome::Ok && writes(txn) {
                        let story = format!(
                            "T{id} read row {} of T{writer}, wrote and was acknowledged; a crash took T{writer} alone",
                            row.id
                        );
                        verdict.find("lost before a later commit", &both, story);
                    }
                }
            }
        }
        if known && amount != row.amount {
            let story = format!(
                "T{id} saw row {} with amount {}, its elements {:?} make {amount}",
                row.id, row.amount, row.log
            );
            verdict.find("torn row", &[id], story);
        }
        if known && place.is_some_and(|place| place != (row.list, row.pos)) {
            let story = format!(
                "T{id} saw row {} at {:?}, its elements put it at {place:?}",
                row.id,
                (row.list, row.pos)
            );
            verdict.find("torn row", &[id], story);
        }
    }

    /// Checks each statement that appended its element to rows: the number of rows whose chain
    /// contains the element must be the number of changed rows that the engine reported for the
    /// statement.
    pub(super) fn check_counts(&self, verdict: &mut Verdict) {
        for (t, o, op) in self.ops() {
            let Statement::Append {
                element,
                count: Some(count),
                ..
            } = op.statement
            else {
                continue;
            };
            if op.status != StatementStatus::Done || self.txn(t).outcome != TxnOutcome::Ok {
                continue;
            }
            let carriers = self.carriers(element).len() as u64;
            if carriers != count {
                let id = self.id(t);
                let story = format!(
                    "statement {o} of T{id} changed {count} rows, {carriers} carry its element {element}"
                );
                verdict.find("lost update", &[id], story);
            }
        }
    }

    /// Checks that each read of a row shows the elements that earlier statements of the same
    /// transaction have appended to the row, and that the amounts of all rows of a balanced list
    /// sum up to zero.
    pub(super) fn check_reads(&self, verdict: &mut Verdict) {
        let balanced: HashSet<u64> = self.history.setup.balanced.iter().copied().collect();
        for (t, o, op) in self.ops() {
            for row in rows_read(op) {
                let Some(chain) = self.rows.get(&row.id) else {
                    continue;
                };
                if self.is_under_old_key(t, o, row) {
                    continue;
                }
                let own = chain.versions.iter().filter(|version| version.writer == t);
                let mut earlier = own.filter(|version| self.origins[&version.element].op < o);
                if let Some(missing) = earlier.find(|version| !row.log.contains(&version.element)) {
                    let id = self.id(t);
                    let story = format!(
                        "statement {o} of T{id} saw row {} as {:?}, without its own {}",
                        row.id, row.log, missing.element
                    );
                    verdict.find("own write not seen", &[id], story);
                }
            }
            if let Statement::Read {
                scan: scan @ Scan::Range { list, .. },
                rows,
            } = &op.statement
                && op.status != StatementStatus::Failed
                && balanced.contains(list)
                && !writes(self.txn(t))
                && self
                    .places
                    .range((*list, i64::MIN)..=(*list, i64::MAX))
                    .all(|((list, pos), _)| scan.covers(0, (*list, *pos)))
            {
                let sum: i64 = rows.iter().map(|row| row.amount).sum();
                if sum != 0 {
                    let id = self.id(t);
                    let story = format!("statement {o} of T{id}: list {list} has the sum {sum}");
                    verdict.find("sum", &[id], story);
                }
            }
        }
    }
}
