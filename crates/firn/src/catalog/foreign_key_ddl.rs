//! DDL on tables with foreign keys, and on those that foreign keys refer to.

use super::ddl_session::DdlSession;
use super::foreign_key::{ForeignKey, database_of};
use super::table_entry::TableEntry;
use super::tables::Catalog;
use crate::base::pause_points::{self, PausePoint};
use crate::base::{Error, ForeignKeyError, ForeignKeyViolation, IndexId, Result};
use crate::txn::LockOwner;
use std::sync::Arc;

impl Catalog {
    /// The foreign keys that refer to `parent`, in the order of their ids, each with the
    /// referencing table.
    pub fn referencing(&self, parent: &str) -> Vec<(Arc<TableEntry>, ForeignKey)> {
        self.entries().read().referencing(parent)
    }

    /// Returns the table called `name`, and whether a copying ALTER is replacing it; if so, the
    /// table is the old one.
    pub fn table_or_swapped(&self, name: &str) -> Option<(Arc<TableEntry>, bool)> {
        let known = self.entries().read();
        let entry = known.table_or_swapped(name)?;
        Some((Arc::clone(entry), known.swapped_out(name).is_some()))
    }

    /// Closes the indexes of the table for foreign key checks of other sessions, and waits until
    /// the transactions end that have used them for such a check. Returns the id of the clustered
    /// index. The caller changes the indexes, and then opens them again under this id in
    /// [`ReferencedTables`](crate::txn::ReferencedTables).
    ///
    /// The caller must do this even if no foreign key refers to the table: another session may add
    /// one at any moment without a lock on the referenced table, and checks then use the table's
    /// indexes.
    pub(super) fn close_indexes(&self, name: &str, session: &DdlSession<'_>) -> Result<IndexId> {
        let id = self.get(name)?.clustered.id;
        let referenced = self.referenced();
        referenced.close(id);
        let free = match session.owner {
            Some(owner) => referenced.await_free(id, owner, session.lock_timeout_us),
            None => referenced.await_free(id, &LockOwner::new(0, 0), 0),
        };
        match free {
            Ok(()) => {
                pause_points::at(PausePoint::IndexesClosed);
                Ok(id)
            }
            Err(error) => {
                referenced.open(id);
                Err(error)
            }
        }
    }

    /// Drops a table. If the session checks foreign keys, fails if a foreign key of another table
    /// refers to the table. `database` says that the whole SQL database is being dropped; then
    /// foreign keys of tables in the same SQL database do not count. While the
    /// host recovers DDL, no foreign key counts.
    ///
    /// # Errors
    /// Those of [`Self::drop_table`]; `ForeignKey`.
    pub fn drop_unreferenced(
        &self,
        name: &str,
        session: &DdlSession<'_>,
        database: bool,
    ) -> Result<()> {
        self.drop_if(name, |known| {
            let mut others = known.referencing(name).into_iter().filter(|(child, _)| {
                let goes_too = database && database_of(&child.name) == database_of(name);
                child.name != name && !goes_too
            });
            match others.next() {
                Some((child, key)) if session.checks && !self.recovery().runs() => {
                    let error = ForeignKeyError {
                        violation: ForeignKeyViolation::TableIsReferenced,
                        table: child.name.clone(),
                        name: key.name,
                    };
                    let text = format!("table {name} is referenced by table {}", child.name);
                    Err(Error::foreign_key(error, text))
                }
                _ => Ok(()),
            }
        })
    }

    /// As [`Self::truncate`], for a table that foreign keys may refer to. Before it truncates, it
    /// waits for the end of all transactions that have used the table's indexes for a foreign key
    /// check.
    ///
    /// # Errors
    /// Those of [`Self::truncate`]; `LockTimeout` and `Interrupted` while it waits.
    pub fn truncate_referenced(
        &self,
        name: &str,
        session: &DdlSession<'_>,
    ) -> Result<Arc<TableEntry>> {
        let closed = self.close_indexes(name, session)?;
        let truncated = self.truncate_now(name);
        self.referenced().open(closed);
        truncated
    }
}
