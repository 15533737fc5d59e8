//! A session's transactions in ephemeral databases.

use super::EphemeralDb;
use crate::base::{IndexId, Result};
use crate::txn::{Isolation, LockOwner, Savepoint, Transaction};
use std::sync::{Arc, Weak};

/// The running statement of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SessionStatement {
    /// Differs between the statements of a session.
    pub id: u64,
    /// Whether the statement is the whole transaction.
    pub autocommit: bool,
}

/// A session's transaction in one ephemeral database.
struct Participant {
    /// A weak reference, because an idle session must not keep the database open.
    database: Weak<EphemeralDb>,
    /// Keeps the database open as long as the transaction is open.
    held: Option<Arc<EphemeralDb>>,
    transaction: Transaction,
    /// Id of the last statement that used the transaction.
    statement: u64,
    /// Mark of the write set when the transaction began.
    begun: Savepoint,
    /// Retired indexes that the transaction has written to.
    retired: Vec<IndexId>,
}

/// A savepoint: the database of each transaction that was open, with the mark of its write set.
pub struct TemporarySavepoint(Vec<(Weak<EphemeralDb>, Savepoint)>);

/// The transactions of a session in ephemeral databases. They are part of the session's transaction
/// and begin at the first use of a temporary table. A session has at most one for each database in
/// use, and usually none.
///
/// The changes of these transactions need not become durable. So once [`Self::prepare`] has
/// succeeded, a commit needs no I/O and does not fail.
///
/// The transactions run at READ COMMITTED, whatever the isolation level of the session's
/// transaction is. Only the session itself changes its temporary tables, so each statement reads
/// the same as from a snapshot; and tables that are created or emptied in the middle of a
/// transaction can be read.
#[derive(Default)]
pub struct TemporaryTransactions {
    participants: Vec<Participant>,
}

impl TemporaryTransactions {
    /// The transaction in `database`, if one is open.
    pub fn open_transaction(&self, database: &Arc<EphemeralDb>) -> Option<&Transaction> {
        let participant = &self.participants[self.position(database)?];
        participant.held.as_ref().map(|_| &participant.transaction)
    }

    /// The transaction in `database`, for the statement `statement`. Begins the transaction and the
    /// statement if necessary. `owner` owns the session's locks.
    pub fn transaction(
        &mut self,
        database: &Arc<EphemeralDb>,
        statement: SessionStatement,
        owner: &LockOwner,
    ) -> &mut Transaction {
        let at = self.position(database);
        let at = at.unwrap_or_else(|| {
            let owner = database.db().helper_of(owner);
            let transaction = database.db().new_transaction(owner);
            self.participants.push(Participant {
                database: Arc::downgrade(database),
                held: None,
                begun: transaction.savepoint(),
                transaction,
                statement: 0,
                retired: Vec::new(),
            });
            self.participants.len() - 1
        });
        let participant = &mut self.participants[at];
        if participant.held.is_none() || participant.statement != statement.id {
            participant.begin(database, statement);
        }
        &mut participant.transaction
    }

    fn position(&self, database: &Arc<EphemeralDb>) -> Option<usize> {
        let wanted = Arc::as_ptr(database);
        let mut all = self.participants.iter();
        all.position(|one| one.database.as_ptr() == wanted)
    }

    /// Ends the statement `id`, whose changes stay.
    pub fn end_statement(&mut self, id: u64) {
        for one in self.of_statement(id) {
            one.transaction.end_statement();
        }
    }

    /// Rolls back the changes of the statement `id`.
    pub fn rollback_statement(&mut self, id: u64) {
        for one in self.of_statement(id) {
            one.transaction.rollback_statement();
        }
    }

    fn of_statement(&mut self, id: u64) -> impl Iterator<Item = &mut Participant> {
        self.open().filter(move |one| one.statement == id)
    }

    fn open(&mut self) -> impl Iterator<Item = &mut Participant> {
        self.participants
            .iter_mut()
            .filter(|one| one.held.is_some())
    }

    /// Whether one of the transactions is open.
    pub fn is_open(&self) -> bool {
        self.participants.iter().any(|one| one.held.is_some())
    }

    /// Whether there are changes to commit.
    pub fn has_writes(&self) -> bool {
        self.participants.iter().any(Participant::has_writes)
    }

    /// Does all parts of a commit that may fail.
    ///
    /// # Errors
    /// As [`Transaction::prepare`]. The caller rolls back.
    pub fn prepare(&mut self) -> Result<()> {
        // The xid does not matter: a prepared transaction in an ephemeral database never leaves its
        // session, so nobody asks for the xid.
        self.open()
            .try_for_each(|one| one.transaction.prepare(b"temporary"))
    }

    /// Commits.
    ///
    /// # Errors
    /// As [`Transaction::commit`]; the caller rolls back.
    pub fn commit(&mut self) -> Result<()> {
        let writers = self.participants.iter().filter(|one| one.has_writes());
        if writers.count() > 1 {
            self.prepare()?;
        }
        self.open().try_for_each(|one| one.transaction.commit())?;
        self.end();
        Ok(())
    }

    /// Rolls back.
    ///
    /// # Errors
    /// As [`Transaction::rollback`].
    pub fn rollback(&mut self) -> Result<()> {
        let mut first = Ok(());
        for one in self.open() {
            let done = one.transaction.rollback();
            first = first.and(done);
        }
        self.end();
        first
    }

    fn end(&mut self) {
        let mut left = false;
        for one in self.open() {
            left |= one.end();
        }
        if left {
            self.participants
                .retain(|one| one.database.upgrade().is_some_and(|db| db.is_current()));
        }
    }

    /// Sets a savepoint. Must be called between statements.
    pub fn set_savepoint(&mut self) -> TemporarySavepoint {
        let marks = self.open().map(|one| {
            let mark = one.transaction.set_savepoint();
            (Weak::clone(&one.database), mark)
        });
        TemporarySavepoint(marks.collect())
    }

    /// Forgets all changes after `savepoint`, which was set in this transaction.
    pub fn rollback_to(&mut self, savepoint: &TemporarySavepoint) {
        for one in self.open() {
            let mut marks = savepoint.0.iter();
            let mark = marks.find(|(database, _)| database.ptr_eq(&one.database));
            let mark = mark.map_or(one.begun, |(_, mark)| *mark);
            one.transaction.rollback_to(mark);
        }
    }

    /// Announces that indexes of `database` are about to be retired. If the transaction has written
    /// to them, they stay known as retired until it has ended: its commit brings entries of these
    /// indexes into the tree, and only an index that is known as retired makes them garbage.
    pub(super) fn will_retire(&mut self, database: &Arc<EphemeralDb>, indexes: &[IndexId]) {
        let Some(at) = self.position(database) else {
            return;
        };
        let one = &mut self.participants[at];
        let transaction = &one.transaction;
        let touched = indexes.iter().copied();
        let touched: Vec<IndexId> = touched
            .filter(|id| one.held.is_some() && transaction.writes_touch(*id))
            .collect();
        database.db().catalog().pin_retired(&touched);
        one.retired.extend(touched);
    }

    /// Lets the running statement read a table that was created after its first read, as in a
    /// stored function.
    pub(super) fn renew_points(&mut self, database: &Arc<EphemeralDb>) {
        if let Some(at) = self.position(database) {
            self.participants[at].transaction.renew_point();
        }
    }
}

impl Participant {
    fn begin(&mut self, database: &Arc<EphemeralDb>, statement: SessionStatement) {
        if self.held.is_none() {
            self.held = Some(Arc::clone(database));
            self.begun = self.transaction.savepoint();
        }
        self.statement = statement.id;
        let SessionStatement { id, autocommit } = statement;
        self.transaction
            .begin_statement(id, Isolation::ReadCommitted, 0, autocommit);
    }

    fn has_writes(&self) -> bool {
        self.held.is_some() && self.transaction.has_writes()
    }

    /// Gives up the reference to the database, because the transaction has ended. Returns whether
    /// new tables go to another database by now, so that the caller forgets this one.
    fn end(&mut self) -> bool {
        let Some(database) = self.held.take() else {
            return false;
        };
        let retired = std::mem::take(&mut self.retired);
        if !retired.is_empty() {
            database.db().catalog().unpin_retired(&retired);
        }
        !database.is_current()
    }
}

impl Drop for TemporaryTransactions {
    fn drop(&mut self) {
        // Roll back before the databases may close.
        let _ = self.rollback();
        self.participants.clear();
    }
}
