//! How a transaction that has not ended will change the row counts of its tables.

use super::write_set::Savepoint;
use crate::base::IndexId;
use crate::base::row_count::RowCount;
use std::collections::HashMap;
use std::sync::Arc;

/// Number of tables that a session remembers for its next transaction. If a transaction changed
/// more, the session forgets all of them.
const TABLES_KEPT: usize = 64;

/// The net change of one table's row count by one ended statement, or by several consecutive ones
/// between two savepoints. `since` is the position in the write set at which the first of them
/// began.
struct Earlier {
    since: Savepoint,
    /// Position in `RowCountDeltas::tables`.
    table: usize,
    net: i64,
}

/// The row count changes of a session's current transaction.
///
/// The changes of the running statement are kept apart from those of ended statements, so that a
/// statement rollback can undo them. The changes of ended statements are summed per table between
/// savepoints, so that a rollback to a savepoint drops whole entries: with a savepoint at position
/// 5, statements that began at 0 and 3 make one entry with `since` 0, and those that began at 5 and
/// 8 one with `since` 5; a rollback to 5 drops the second.
///
/// The list of tables survives the transaction. So a session that writes to the same tables again
/// and again does not allocate, and does not change the reference count of a [`RowCount`], whose
/// cache line all sessions share.
#[derive(Default)]
pub(super) struct RowCountDeltas {
    tables: Vec<Table>,
    by_index: HashMap<IndexId, usize>,
    /// Position in `tables` of the table that was counted last. The next row is usually of the same
    /// table.
    last: usize,
    /// Ascending by `since`.
    earlier: Vec<Earlier>,
    /// The newest savepoint.
    savepoint: Savepoint,
    /// Whether the running statement has changed a row count.
    counted: bool,
    /// The changes by cascades from the row that the statement is writing, by position in `tables`.
    /// They are in the tables' nets, too.
    cascaded: Vec<(usize, i64)>,
}

struct Table {
    clustered: IndexId,
    rows: Arc<RowCount>,
    /// Net change by the running statement.
    net: i64,
    /// Sum of the table's changes in `RowCountDeltas::earlier`.
    earlier: i64,
}

impl RowCountDeltas {
    /// Counts `net` rows that the running statement has added to a table; negative if it deleted
    /// rows. `cascades` says that a cascade has done so, and that the statement's own row is not
    /// written yet.
    pub(super) fn count(
        &mut self,
        clustered: IndexId,
        rows: &Arc<RowCount>,
        net: i64,
        cascades: bool,
    ) {
        let known = self.tables.get(self.last);
        if known.is_none_or(|table| table.clustered != clustered) {
            self.last = self.position(clustered, rows);
        }
        self.tables[self.last].net += net;
        self.counted = true;
        if !cascades {
            self.cascaded.clear();
            return;
        }
        let mut cascaded = self.cascaded.iter_mut();
        match cascaded.find(|(table, _)| *table == self.last) {
            Some((_, sum)) => *sum += net,
            None => self.cascaded.push((self.last, net)),
        }
    }

    fn position(&mut self, clustered: IndexId, rows: &Arc<RowCount>) -> usize {
        if let Some(&at) = self.by_index.get(&clustered) {
            return at;
        }
        let at = self.tables.len();
        self.tables.push(Table {
            clustered,
            rows: Arc::clone(rows),
            net: 0,
            earlier: 0,
        });
        self.by_index.insert(clustered, at);
        at
    }

    /// The net change of the row count of the table with clustered index `clustered` so far.
    pub(super) fn net(&self, clustered: IndexId) -> i64 {
        if !self.counted && self.earlier.is_empty() {
            return 0;
        }
        let table = self.by_index.get(&clustered).map(|&at| &self.tables[at]);
        table.map_or(0, |table| table.net + table.earlier)
    }

    /// Adds the changes of the running statement, which began at `since`, to those of ended
    /// statements. Called when the statement's changes stay.
    pub(super) fn end_statement(&mut self, since: Savepoint) {
        self.cascaded.clear();
        if !std::mem::take(&mut self.counted) {
            return;
        }
        for (at, table) in self.tables.iter_mut().enumerate() {
            let net = std::mem::take(&mut table.net);
            if net == 0 {
                continue;
            }
            table.earlier += net;
            let known = self.earlier.iter_mut().rev();
            let mut known = known.take_while(|earlier| earlier.since >= self.savepoint);
            match known.find(|earlier| earlier.table == at) {
                Some(earlier) => earlier.net += net,
                None => self.earlier.push(Earlier {
                    since,
                    table: at,
                    net,
                }),
            }
        }
    }

    /// Notes that a savepoint was set at `mark`, between two statements.
    pub(super) fn set_savepoint(&mut self, mark: Savepoint) {
        self.savepoint = mark;
    }

    /// Forgets the changes by writes after `mark`, because these writes were rolled back. The
    /// running statement began at `statement`. If `mark` is later, the rollback removes only the
    /// row that the statement is writing. This row is not counted yet, so of the statement's
    /// changes only those by cascades from the row are forgotten.
    pub(super) fn rollback_to(&mut self, mark: Savepoint, statement: Savepoint) {
        if mark > statement {
            for (table, net) in self.cascaded.drain(..) {
                self.tables[table].net -= net;
            }
        } else if std::mem::take(&mut self.counted) {
            self.tables.iter_mut().for_each(|table| table.net = 0);
        }
        self.cascaded.clear();
        let tables = &mut self.tables;
        self.earlier.retain(|earlier| {
            let stays = earlier.since < mark;
            if !stays {
                tables[earlier.table].earlier -= earlier.net;
            }
            stays
        });
        self.savepoint = self.savepoint.min(mark);
    }

    /// Adds the changes to the row counts of the tables, because the transaction is committed.
    pub(super) fn commit(&mut self) {
        for (rows, net) in self.take() {
            rows.count(net);
        }
    }

    /// Takes the non-zero changes of all tables, to be counted when the transaction commits.
    pub(super) fn take(&mut self) -> impl Iterator<Item = (&Arc<RowCount>, i64)> {
        for earlier in self.earlier.drain(..) {
            let table = &mut self.tables[earlier.table];
            table.net += earlier.net;
            table.earlier -= earlier.net;
        }
        self.counted = false;
        self.cascaded.clear();
        let all = self.tables.iter_mut();
        all.map(|table| (&table.rows, std::mem::take(&mut table.net)))
            .filter(|(_, net)| *net != 0)
    }

    /// Forgets all changes, because the transaction has ended.
    pub(super) fn clear(&mut self) {
        if self.counted || !self.earlier.is_empty() {
            self.take().for_each(drop);
        }
        self.savepoint = Savepoint::default();
        if self.tables.len() > TABLES_KEPT {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests;
