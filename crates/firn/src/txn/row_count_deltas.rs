//! By how many rows a transaction has changed its tables, until it ends.

use super::write_set::Savepoint;
use crate::base::IndexId;
use crate::base::row_count::RowCount;
use std::collections::HashMap;
use std::sync::Arc;

/// Tables remembered from one transaction to the next.
const TABLES_KEPT: usize = 64;

/// Row counts that ended statements changed since a savepoint of the write set.
struct Earlier {
    since: Savepoint,
    table: usize,
    net: i64,
}

/// The counts of one session's transactions.
///
/// A statement's are apart, so that it can be taken back; those of ended statements are summed
/// between savepoints. The tables stay known, so that a session which writes to the same ones again
/// and again neither allocates nor touches a reference count, which all sessions share.
#[derive(Default)]
pub(super) struct RowCountDeltas {
    tables: Vec<Table>,
    by_index: HashMap<IndexId, usize>,
    last: usize,
    earlier: Vec<Earlier>,
    /// The newest savepoint.
    savepoint: Savepoint,
    /// The running statement has counted.
    counted: bool,
}

struct Table {
    clustered: IndexId,
    rows: Arc<RowCount>,
    /// Of the running statement.
    net: i64,
}

impl RowCountDeltas {
    /// The running statement has changed the rows of a table by `net`.
    pub(super) fn count(&mut self, clustered: IndexId, rows: &Arc<RowCount>, net: i64) {
        let known = self.tables.get(self.last);
        if known.is_none_or(|table| table.clustered != clustered) {
            self.last = self.position(clustered, rows);
        }
        self.tables[self.last].net += net;
        self.counted = true;
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
        });
        self.by_index.insert(clustered, at);
        at
    }

    /// The statement that began at `since` ended well.
    pub(super) fn end_statement(&mut self, since: Savepoint) {
        if !std::mem::take(&mut self.counted) {
            return;
        }
        for (at, table) in self.tables.iter_mut().enumerate() {
            let net = std::mem::take(&mut table.net);
            if net == 0 {
                continue;
            }
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

    /// A savepoint was set between two statements, at `mark`.
    pub(super) fn set_savepoint(&mut self, mark: Savepoint) {
        self.savepoint = mark;
    }

    /// The writes after `mark` were rolled back; the running statement began at `statement`.
    pub(super) fn rollback_to(&mut self, mark: Savepoint, statement: Savepoint) {
        if mark <= statement && std::mem::take(&mut self.counted) {
            self.tables.iter_mut().for_each(|table| table.net = 0);
        }
        self.earlier.retain(|earlier| earlier.since < mark);
        self.savepoint = self.savepoint.min(mark);
    }

    /// The transaction is committed.
    pub(super) fn commit(&mut self) {
        for (rows, net) in self.take() {
            rows.count(net);
        }
    }

    /// Hands over what is to be counted when the transaction commits.
    pub(super) fn take(&mut self) -> impl Iterator<Item = (&Arc<RowCount>, i64)> {
        for earlier in self.earlier.drain(..) {
            self.tables[earlier.table].net += earlier.net;
        }
        self.counted = false;
        let all = self.tables.iter_mut();
        all.map(|table| (&table.rows, std::mem::take(&mut table.net)))
            .filter(|(_, net)| *net != 0)
    }

    /// The transaction is over, however it ended.
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
