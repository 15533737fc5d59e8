//! Temporary tables: tables of one session, which a crash, a restart or the end of the session
//! removes.
//!
//! They live in an ephemeral database beside the server's, which is opened for the first of them. A
//! table there works as in the server's database, but without log records and syncs, and without an
//! entry in the server's catalog: rows go to a memtable, those of large tables to files, and every
//! kind of index and column is the same.
//!
//! ```text
//! TemporaryTables ── name of the table ──▶ EphemeralDb ── Db without log
//!                                               ▲
//! session ── TemporaryTransactions ── a second transaction, begun at the first use
//! ```
//!
//! - *Found by name.* The server makes up a path for each temporary table, and never uses it again.
//!   A replica passes temporary tables from one thread to another, so no table belongs to a
//!   session; two sessions never use one at the same time.
//! - *No locks, no snapshots.* There is one user, so reads take the newest state, and writes take
//!   no row locks.
//! - *Ids are not reused.* When an ephemeral database has given out many index ids, the next table
//!   goes to a new one, and the old one closes with its last table and transaction.
//!
//! Rejected: tables in memory with a spill of their own (a second implementation of indexes,
//! cursors, savepoints and blobs); entries in the server's database (each would be logged, and a
//! thousand tables a second use up the index ids in weeks).

mod transactions;

pub use transactions::{SessionStatement, TemporarySavepoint, TemporaryTransactions};

use crate::base::event_listener::Severity;
use crate::base::{Error, ErrorKind, Result};
use crate::catalog::{NewTable, TableEntry, TableSchema};
use crate::db::Db;
use crate::table::Table;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Name of the directory of the ephemeral databases, inside the directory of the server's database.
pub const DIRECTORY: &str = "temporary";

/// An ephemeral database that has given out this many index ids takes no new tables; the next table
/// goes to a new ephemeral database. An index id has 32 bits, so this limit is far below the number
/// at which the ids would be used up.
const INDEX_IDS_MAX: u64 = 1 << 24;

/// An ephemeral database. The drop of its last reference closes it and removes its directory.
/// [`TemporaryTables`] has a reference as long as new tables go to this database, and one for each
/// of its tables; each transaction that is open in it has another one.
pub struct EphemeralDb {
    db: Arc<Db>,
    host: Arc<Db>,
    /// Whether new tables go to this database.
    is_current: AtomicBool,
}

impl EphemeralDb {
    /// The database.
    pub fn db(&self) -> &Arc<Db> {
        &self.db
    }

    /// Whether new tables go to this database.
    fn is_current(&self) -> bool {
        self.is_current.load(Ordering::Relaxed)
    }
}

impl Drop for EphemeralDb {
    fn drop(&mut self) {
        let closed = self.db.close();
        let removed = self.host.remove_ephemeral(self.db.dir());
        if let Err(error) = closed.and(removed) {
            // The next start removes what is left.
            warn(&self.host, &error);
        }
    }
}

fn warn(host: &Db, error: &Error) {
    let message = format!("files of temporary tables are left: {error}");
    host.options().listener.log(Severity::Warning, &message);
}

#[derive(Default)]
struct Known {
    current: Option<Arc<EphemeralDb>>,
    /// Number of ephemeral databases opened so far.
    opened: u64,
    tables: HashMap<String, Arc<EphemeralDb>>,
}

/// The temporary tables of a server.
pub struct TemporaryTables {
    host: Arc<Db>,
    directory: PathBuf,
    index_ids_max: u64,
    /// Locked for writing only while a name is entered or removed, and while an ephemeral database
    /// is opened. The thread that holds it takes no other locks than those of that open.
    known: RwLock<Known>,
}

impl TemporaryTables {
    /// Makes an empty list of temporary tables. Removes the ephemeral databases that an earlier
    /// process has left in the directory of `host`.
    pub fn new(host: Arc<Db>) -> Self {
        Self::with_index_ids(host, INDEX_IDS_MAX)
    }

    /// As [`Self::new`], but an ephemeral database takes new tables until it has given out
    /// `index_ids_max` index ids.
    pub fn with_index_ids(host: Arc<Db>, index_ids_max: u64) -> Self {
        let directory = host.dir().join(DIRECTORY);
        if let Err(error) = host.remove_ephemeral_in(&directory) {
            warn(&host, &error);
        }
        Self {
            host,
            directory,
            index_ids_max,
            known: RwLock::default(),
        }
    }

    /// The database of the temporary table called `name`, if there is one.
    pub fn find(&self, name: &str) -> Option<Arc<EphemeralDb>> {
        self.known.read().tables.get(name).cloned()
    }

    /// Creates a table. `autoincrement` is its first AUTO_INCREMENT value. `session` has the
    /// transactions of the session that creates it.
    ///
    /// # Errors
    /// `AlreadyExists`; those of opening a database.
    pub fn create(
        &self,
        name: &str,
        schema: TableSchema,
        autoincrement: u64,
        session: &mut TemporaryTransactions,
    ) -> Result<()> {
        let database = self.take_name(name)?;
        let created = Self::create_in(&database, name, schema, autoincrement);
        match created {
            Ok(()) => session.renew_points(&database),
            Err(_) => self.give_name_back(name),
        }
        created
    }

    fn create_in(
        database: &EphemeralDb,
        name: &str,
        schema: TableSchema,
        autoincrement: u64,
    ) -> Result<()> {
        let db = &database.db;
        let definition = NewTable {
            schema: schema.clone(),
            frm: &[],
            version: &[],
            created_micros: db.wall_micros(),
        };
        db.catalog().create(name, definition)?;
        if autoincrement <= 1 {
            return Ok(());
        }
        let set = Table::open(db.catalog(), name, schema, &[])
            .and_then(|table| table.set_autoincrement(autoincrement, 0, db.context()));
        // After an error, drop the table here: the caller gives the table's name back, so nobody
        // could drop the table later.
        set.map(|_| ()).inspect_err(|_| {
            let _ = db.catalog().drop_table(name);
        })
    }

    /// Enters the name of a new table, and returns the database in which the caller creates the
    /// table. It opens a new database if the current one has failed or has given out too many index
    /// ids.
    fn take_name(&self, name: &str) -> Result<Arc<EphemeralDb>> {
        // `before` takes the ephemeral database that a new one replaces. Declare it ahead of the
        // guard of `known`, so that it is dropped after the guard on every path. If no table is
        // left in the replaced database, the drop closes that database, which must not happen under
        // the lock.
        let before;
        let mut known = self.known.write();
        if known.tables.contains_key(name) {
            let message = format!("table {name} exists already");
            return Err(Error::new(ErrorKind::AlreadyExists, message));
        }
        let takes_more = |current: &Arc<EphemeralDb>| {
            let db = &current.db;
            db.catalog().last_index_id() < self.index_ids_max
                && !db.context().pipeline.is_poisoned()
        };
        before = match known.current.take() {
            Some(current) if takes_more(&current) => {
                known.current = Some(current);
                None
            }
            before => before,
        };
        if let Some(before) = &before {
            before.is_current.store(false, Ordering::Relaxed);
        }
        let current = match &known.current {
            Some(current) => Arc::clone(current),
            None => {
                let dir = self.directory.join(known.opened.to_string());
                known.opened += 1;
                let db = self.host.open_ephemeral(&dir).inspect_err(|_| {
                    // The next start of the server would remove it, too.
                    let _ = self.host.remove_ephemeral(&dir);
                })?;
                let opened = Arc::new(EphemeralDb {
                    db,
                    host: Arc::clone(&self.host),
                    is_current: AtomicBool::new(true),
                });
                Arc::clone(known.current.insert(opened))
            }
        };
        known.tables.insert(name.to_owned(), Arc::clone(&current));
        Ok(current)
    }

    fn give_name_back(&self, name: &str) {
        let database = self.known.write().tables.remove(name);
        // Drop the reference only after the lock is released: if the table was the last one of its
        // database, this closes the database.
        drop(database);
    }

    /// Drops a table. `session` has the open transactions of the session that drops it, if there
    /// are any: their changes of the table are lost, whether they commit or roll back.
    ///
    /// # Errors
    /// `NotFound`; those of a commit.
    pub fn drop_table(
        &self,
        name: &str,
        session: Option<&mut TemporaryTransactions>,
    ) -> Result<()> {
        let (database, entry) = self.entry(name)?;
        if let Some(session) = session {
            session.will_retire(&database, &entry.index_ids());
        }
        match database.db.catalog().drop_table(name) {
            // A poisoned ephemeral database refuses the drop. Ignore that error: the name is given
            // back below, so no statement can reach the remains of the table in that database.
            Err(error) if !database.db.context().pipeline.is_poisoned() => return Err(error),
            _ => {}
        }
        self.give_name_back(name);
        Ok(())
    }

    /// Empties a table.
    ///
    /// # Errors
    /// As for [`Self::drop_table`].
    pub fn truncate(&self, name: &str, session: &mut TemporaryTransactions) -> Result<()> {
        let (database, entry) = self.entry(name)?;
        session.will_retire(&database, &entry.index_ids());
        database.db.catalog().truncate(name)?;
        session.renew_points(&database);
        Ok(())
    }

    fn entry(&self, name: &str) -> Result<(Arc<EphemeralDb>, Arc<TableEntry>)> {
        let missing = || Error::new(ErrorKind::NotFound, format!("table {name} does not exist"));
        let database = self.find(name).ok_or_else(missing)?;
        let entry = database.db.catalog().get(name)?;
        Ok((database, entry))
    }

    /// Number of temporary tables.
    pub fn len(&self) -> usize {
        self.known.read().tables.len()
    }

    /// Whether there is no temporary table.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets all tables and closes their databases. All sessions must have ended and all tables
    /// must be closed.
    pub fn close(&self) {
        let known = std::mem::take(&mut *self.known.write());
        drop(known);
    }
}
