//! Checks that each transaction sees its own writes: its statements are replayed one after the
//! other, and each scan must return the rows that the earlier statements have put into its range.

use super::{Chains, Fate, TxnIndex, rows_read};
use crate::history::{IsolationLevel, Op, Row, Scan, Statement, StatementStatus, TxnOutcome};
use crate::verdict::Verdict;
use std::collections::{BTreeMap, HashSet};

/// The rows that a transaction has written, by row id: the list that the row is in after the write,
/// and its position in that list; `None` if the transaction deleted the row.
type Own = BTreeMap<u64, Option<(u64, i64)>>;

impl Chains<'_> {
    /// Checks two things for each scan: of the rows that the transaction has written, the scan
    /// meets exactly those that are in its range, and no result has a row twice. A written row
    /// stays where it is until the transaction's end, because its lock keeps others from changing
    /// it.
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
                // Pass over statements that have failed or that a rollback to a savepoint has
                // undone. The programs that record histories read nothing between an undone
                // statement and its rollback, so no read has to show its writes.
                if op.status == StatementStatus::Done {
                    self.check_range(t, o, &own, verdict);
                    self.replay(op, &mut own);
                }
            }
        }
    }

    /// Whether transaction `t` may see the row twice in an optimistic table, under two keys: it has
    /// written the row under the old primary key, and another transaction has given the row a new
    /// one and has committed. The next statement of `t` at READ COMMITTED has a newer snapshot, so
    /// it sees both versions. This is no finding, because the commit of `t` fails.
    fn may_be_under_two_keys(&self, t: TxnIndex, o: usize, row: &Row) -> bool {
        self.may_lose(t, row.list)
            && self.has_touched(t, row.id, o)
            && self.is_renamed_by_other(t, row.id)
    }

    /// Whether the commit of transaction `t` may have failed because of a row of this list: the
    /// list is in an optimistic table, the transaction is at READ COMMITTED, and its commit was not
    /// acknowledged. Another transaction may then change a row that `t` has written, and later
    /// statements of `t` may see some index entries of either version.
    fn may_lose(&self, t: TxnIndex, list: u64) -> bool {
        let txn = self.txn(t);
        txn.level == IsolationLevel::ReadCommitted
            && txn.outcome != TxnOutcome::Ok
            && self.history.setup.optimistic.contains(&list)
    }

    /// Lists and positions at which the transaction has written rows up to statement `o`. A plain
    /// read may miss a row that the snapshot has at one of these positions, for example: another
    /// transaction deletes the row and inserts a new one with the same primary key, and this
    /// transaction updates the new row. Its own write now stands for this key, and the snapshot's
    /// row is hidden behind it.
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

    /// The scans of the updates before statement `o`, if the transaction has not committed. The
    /// history does not tell which rows such an update has changed, since nobody reads its element
    /// later. Any row of these scans may therefore be one of them. If the row has moved since the
    /// transaction's snapshot, the transaction sees it at the new position, not at the old one.
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
            // An UPDATE returns no rows. Which rows it has changed is known only from later reads
            // that show its element in a row. Other transactions see the element only if the
            // transaction has committed, so consider only committed transactions.
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
        // The server looks up a single value of a unique key and returns one row, although two may
        // have the value: an old version of some row that only the snapshot still sees, and a row
        // that the transaction itself has written since. If the lookup returns the former, the own
        // row is missing from the result, which is no finding.
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
