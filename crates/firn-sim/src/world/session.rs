//! Sessions: one transaction each, with the model's view of it.

use super::{StepEnd, World};
use crate::model::{Moment, Raised, Writes};
use crate::tiny_options::one_of;
use firn::base::value::OwnedValue;
use firn::iter::{MergeIter, MvccIter};
use firn::read::{ReadPoint, ScanSource};
use firn::txn::write_set::Savepoint;
use firn::txn::{Isolation, LockMode, Transaction};
use rand::Rng;
use std::sync::Arc;

/// A scan that stays open between steps.
pub(super) struct OpenScan {
    /// Pins the memtables and files that `entries` reads, as a table cursor does.
    pub point: ReadPoint,
    pub entries: MvccIter<MergeIter<ScanSource>>,
    /// The remaining entries, in scan order.
    pub expected: std::vec::IntoIter<(Vec<u8>, OwnedValue)>,
    pub forward: bool,
}

/// A session: a transaction of the engine, and the model's account of it.
pub(super) struct Session {
    pub txn: Transaction,
    /// Number under which the model holds its locks.
    pub owner: u64,
    /// Set while the transaction is prepared.
    pub xid: Option<Vec<u8>>,
    pub active: bool,
    pub isolation: Isolation,
    pub autocommit: bool,
    pub statement: u64,
    /// The transaction's snapshot, once it has one.
    pub snapshot: Option<Moment>,
    /// The moment of the statement's reads, once it has read.
    pub point: Option<Moment>,
    /// Own writes in order, `None` for a deletion.
    pub own: Vec<(Vec<u8>, Option<OwnedValue>)>,
    /// Length of `own` when the statement began.
    pub statement_mark: usize,
    /// Savepoints, each with the length of `own` when it was set.
    pub savepoints: Vec<(Savepoint, usize)>,
    /// Counters that the transaction raised.
    pub raised: Raised,
    pub scan: Option<OpenScan>,
}

impl Session {
    /// The value of each key that the transaction has written, after its first `upto` writes.
    pub fn own_writes(&self, upto: usize) -> Writes {
        self.own[..upto].iter().cloned().collect()
    }

    /// Forgets the transaction after its end.
    pub fn reset(&mut self) {
        self.xid = None;
        self.active = false;
        self.snapshot = None;
        self.point = None;
        self.own.clear();
        self.statement_mark = 0;
        self.savepoints.clear();
        self.raised.clear();
        self.scan = None;
    }

    /// The oldest moment that the session may still read.
    pub fn oldest_read(&self) -> Option<Moment> {
        self.snapshot.into_iter().chain(self.point).min()
    }
}

impl World {
    pub(super) fn open_sessions(&mut self) {
        self.locks.clear();
        self.detached.clear();
        // Recovered prepared transactions hold their locks again.
        for (xid, writes) in &self.history.side().prepared {
            self.next_owner += 1;
            self.detached.insert(xid.clone(), self.next_owner);
            for key in writes.keys() {
                let holders = self.locks.entry(key.clone()).or_default();
                if holders.is_empty() {
                    holders.insert(self.next_owner, LockMode::Exclusive);
                }
            }
        }
        let count = self.rng.random_range(2..=6);
        self.sessions = (0..count).map(|_| self.new_session()).collect();
    }

    fn new_session(&mut self) -> Session {
        let db = Arc::clone(self.db());
        self.next_owner += 1;
        Session {
            txn: db.new_transaction(db.new_owner(0)),
            owner: self.next_owner,
            xid: None,
            active: false,
            isolation: Isolation::RepeatableRead,
            autocommit: false,
            statement: 0,
            snapshot: None,
            point: None,
            own: Vec::new(),
            statement_mark: 0,
            savepoints: Vec::new(),
            raised: Raised::new(),
            scan: None,
        }
    }

    /// Ends all sessions and replaces them with new ones. Prepared transactions stay in the
    /// database until their outcome is decided.
    pub fn end_sessions(&mut self) {
        for at in 0..self.sessions.len() {
            self.end_session(at);
        }
    }

    fn end_session(&mut self, at: usize) {
        if self.sessions[at].xid.is_some() {
            self.detach(at);
        }
        self.unlock_all(self.sessions[at].owner);
        self.sessions[at] = self.new_session();
    }

    /// Hands the session's prepared transaction, with its locks, over to the database.
    fn detach(&mut self, at: usize) {
        self.next_owner += 1;
        let db = Arc::clone(self.db());
        let session = &mut self.sessions[at];
        session.txn.detach(db.new_owner(0));
        let owner = std::mem::replace(&mut session.owner, self.next_owner);
        if let Some(xid) = session.xid.take() {
            self.detached.insert(xid, owner);
        }
        session.reset();
    }

    /// The oldest moment that any session may still read.
    pub(super) fn oldest_read(&self) -> Option<Moment> {
        self.sessions.iter().filter_map(Session::oldest_read).min()
    }

    pub(super) fn session_step(&mut self, at: usize) -> Result<(), StepEnd> {
        let session = &self.sessions[at];
        if session.xid.is_some() {
            return match self.rng.random_range(0..40) {
                0..2 => self.finish_prepared(at),
                2 => self.roll_back(at),
                3 => {
                    self.detach(at);
                    Ok(())
                }
                // Mostly stay prepared, so that crashes find prepared transactions and the log
                // segments that they pin grow old.
                _ => Ok(()),
            };
        }
        if !session.active {
            self.begin(at);
            return Ok(());
        }
        // The first session only reads and seldom commits, so it holds snapshots for long.
        let range = if at == 0 { 40..85 } else { 0..100 };
        match self.rng.random_range(range) {
            0..32 => self.put(at),
            32..40 => self.delete(at),
            40..52 => self.get(at),
            52..62 => self.scan(at),
            62..66 => self.continue_scan(at),
            66..72 => self.next_statement(at),
            72..76 => self.savepoint(at),
            76..79 => self.roll_back_to(at),
            79..81 => self.roll_back_statement(at),
            81..83 => {
                self.raise_counter(at);
                Ok(())
            }
            83..96 => self.commit(at),
            96..97 => self.roll_back(at),
            _ => self.prepare(at),
        }
    }

    fn begin(&mut self, at: usize) {
        let isolation = one_of(
            &mut self.rng,
            &[Isolation::RepeatableRead, Isolation::ReadCommitted],
        );
        let autocommit = self.lucky(10);
        let consistent = self.lucky(10);
        let now = self.history.now();
        let session = &mut self.sessions[at];
        session.statement += 1;
        session
            .txn
            .begin_statement(session.statement, isolation, 0, autocommit);
        session.active = true;
        session.isolation = isolation;
        session.autocommit = autocommit;
        if consistent {
            session.txn.fix_snapshot();
            // At READ COMMITTED a transaction has no snapshot of its own.
            session.snapshot = (isolation == Isolation::RepeatableRead).then_some(now);
        }
    }

    fn next_statement(&mut self, at: usize) -> Result<(), StepEnd> {
        let isolation = one_of(
            &mut self.rng,
            &[Isolation::RepeatableRead, Isolation::ReadCommitted],
        );
        let ends = self.lucky(50);
        let session = &mut self.sessions[at];
        if ends {
            session.txn.end_statement();
        }
        session.statement += 1;
        session
            .txn
            .begin_statement(session.statement, isolation, 0, false);
        session.autocommit = false;
        if session.snapshot.is_none() {
            session.isolation = isolation;
        }
        session.point = None;
        session.statement_mark = session.own.len();
        session.scan = None;
        Ok(())
    }

    fn savepoint(&mut self, at: usize) -> Result<(), StepEnd> {
        let session = &mut self.sessions[at];
        let mark = session.txn.set_savepoint();
        session.savepoints.push((mark, session.own.len()));
        Ok(())
    }

    fn roll_back_to(&mut self, at: usize) -> Result<(), StepEnd> {
        let count = self.sessions[at].savepoints.len();
        if count == 0 {
            return Ok(());
        }
        let which = self.rng.random_range(0..count);
        let session = &mut self.sessions[at];
        session.savepoints.truncate(which + 1);
        let (mark, len) = session.savepoints[which];
        session.txn.rollback_to(mark);
        session.own.truncate(len);
        session.statement_mark = session.statement_mark.min(len);
        session.scan = None;
        Ok(())
    }

    fn roll_back_statement(&mut self, at: usize) -> Result<(), StepEnd> {
        let session = &mut self.sessions[at];
        session.txn.rollback_statement();
        let len = session.statement_mark;
        session.own.truncate(len);
        session.savepoints.retain(|(_, at)| *at <= len);
        session.point = None;
        session.scan = None;
        Ok(())
    }

    fn raise_counter(&mut self, at: usize) {
        let counter = 1000 + self.rng.random_range(0..3);
        let cell = self.db().catalog().counters().cell(counter);
        let value = cell.read().value + self.rng.random_range(0..9);
        // As for AUTO_INCREMENT: the value counts as used from now on, and becomes durable with the
        // commit.
        let value = cell.raise(value);
        self.note_counter(counter, value);
        let session = &mut self.sessions[at];
        session.txn.raise_counter(counter, value);
        session.raised.push((counter, value));
    }
}
