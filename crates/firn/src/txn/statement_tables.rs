//! Tables that a statement reaches by foreign keys.

use crate::base::IndexId;
use std::any::Any;
use std::sync::Arc;

/// The referencing tables that the statement of a transaction has come to, by the ids of their
/// clustered indexes.
///
/// The layer above asks the host once for each table and statement whether the session has locked
/// the table's metadata, and opens the table once. Both answers hold until the statement ends,
/// because the host keeps the metadata lock at least as long.
///
/// A statement meets few tables, so a list is faster than a map. The host bounds their number: it
/// locks the metadata of each of them before the statement begins.
#[derive(Default)]
pub struct StatementTables {
    tables: Vec<StatementTable>,
}

struct StatementTable {
    id: IndexId,
    /// Whether the statement may write the table, too.
    writes: bool,
    opened: Option<Arc<dyn Any + Send + Sync>>,
}

impl StatementTables {
    fn find(&mut self, id: IndexId) -> Option<&mut StatementTable> {
        self.tables.iter_mut().find(|table| table.id == id)
    }

    /// Whether [`Self::allow`] has noted that the statement may read the table, or write it.
    pub fn allows(&mut self, id: IndexId, writes: bool) -> bool {
        self.find(id).is_some_and(|table| table.writes || !writes)
    }

    /// Notes that the statement may read the table; with `writes`, that it may write it, too.
    pub fn allow(&mut self, id: IndexId, writes: bool) {
        match self.find(id) {
            Some(table) => table.writes |= writes,
            None => self.tables.push(StatementTable {
                id,
                writes,
                opened: None,
            }),
        }
    }

    /// The open table, if [`Self::keep`] has noted it.
    pub fn opened<T: Any + Send + Sync>(&mut self, id: IndexId) -> Option<Arc<T>> {
        let opened = self.find(id)?.opened.as_ref()?;
        Arc::clone(opened).downcast().ok()
    }

    /// Notes the open table.
    pub fn keep(&mut self, id: IndexId, opened: Arc<dyn Any + Send + Sync>) {
        match self.find(id) {
            Some(table) => table.opened = Some(opened),
            None => self.tables.push(StatementTable {
                id,
                writes: false,
                opened: Some(opened),
            }),
        }
    }

    /// Forgets all tables, because the statement has ended.
    pub(super) fn clear(&mut self) {
        self.tables.clear();
    }
}
