//! Writes, locks, and the ends of transactions.

use super::{StepEnd, World, blob_values};
use crate::ensure;
use crate::model::Event;
use firn::base::ErrorKind;
use firn::base::value::OwnedValue;
use firn::txn::{LockMode, WaitPolicy};
use rand::Rng;
use std::sync::Arc;

impl World {
    /// A random value, mostly small; some are empty, some larger than a block, a memtable or a log
    /// segment.
    fn random_value(&mut self) -> OwnedValue {
        let rng = &mut self.rng;
        let (head, tail) = match rng.random_range(0..100) {
            0..8 => (0, 0),
            8..70 => (rng.random_range(0..20), rng.random_range(0..20)),
            70..96 => (rng.random_range(0..100), rng.random_range(0..300)),
            96..99 => (rng.random_range(0..3000), rng.random_range(0..3000)),
            _ if rng.random_range(0..4) == 0 => (9, rng.random_range(0..60_000)),
            _ => (rng.random_range(0..200), rng.random_range(0..20_000)),
        };
        let seed: [u8; 8] = rng.random();
        let bytes: Vec<u8> = match rng.random() {
            true => (0..head + tail).map(|_| rng.random()).collect(),
            false => (0..head + tail).map(|i| seed[i % 8]).collect(),
        };
        OwnedValue::new(bytes.into(), head)
    }

    /// Requests a row lock without waiting and compares the answer with the known holders. Returns
    /// whether it was granted.
    fn lock(&mut self, at: usize, key: &[u8], mode: LockMode) -> Result<bool, StepEnd> {
        let session = &self.sessions[at];
        let owner = session.owner;
        let holders = self.locks.entry(key.to_vec()).or_default();
        let free = holders
            .iter()
            .all(|(other, held)| *other == owner || !mode.conflicts(*held));
        let newly = !holders.contains_key(&owner);
        match session.txn.lock(key, mode, Some(WaitPolicy::NoWait)) {
            Ok(granted) => {
                ensure!(free, "lock on {key:?} granted in spite of {holders:?}");
                ensure!(
                    granted.newly == newly && !granted.waited,
                    "lock on {key:?}: {granted:?}, expected newly = {newly}"
                );
                let held = holders.entry(owner).or_insert(mode);
                *held = mode.max(*held);
                Ok(true)
            }
            Err(error) if *error.kind() == ErrorKind::LockNotAvailable => {
                ensure!(!free, "lock on {key:?} refused: {error}");
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn unlock_all(&mut self, owner: u64) {
        self.locks.retain(|_, holders| {
            holders.remove(&owner);
            !holders.is_empty()
        });
    }

    pub(super) fn put(&mut self, at: usize) -> Result<(), StepEnd> {
        let key = self.random_key();
        let value = self.random_value();
        self.write(at, key, Some(value))
    }

    pub(super) fn delete(&mut self, at: usize) -> Result<(), StepEnd> {
        let key = self.random_key();
        self.write(at, key, None)
    }

    fn write(&mut self, at: usize, key: Vec<u8>, value: Option<OwnedValue>) -> Result<(), StepEnd> {
        let shared_first = self.lucky(10);
        if shared_first && !self.lock(at, &key, LockMode::Shared)? {
            return Ok(());
        }
        if !self.lock(at, &key, LockMode::Exclusive)? {
            return Ok(());
        }
        self.sessions[at].scan = None;
        if value.is_some() && self.lucky(20) {
            match self.keep_blob(at, &key) {
                Ok(Some(kept)) => {
                    self.sessions[at].own.push((key, Some(kept)));
                    return Ok(());
                }
                Ok(None) => {}
                Err(stop) => return Err(stop),
            }
        }
        let session = &mut self.sessions[at];
        let written = match &value {
            Some(value) => blob_values::put(&mut session.txn, &key, value.as_value()),
            None => session.txn.delete(&key),
        };
        match written {
            Ok(()) => session.own.push((key, value)),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    pub(super) fn commit(&mut self, at: usize) -> Result<(), StepEnd> {
        let session = &mut self.sessions[at];
        let result = session.txn.commit();
        let writes = session.own_writes(session.own.len());
        let raised = std::mem::take(&mut session.raised);
        if writes.is_empty() {
            result?;
        } else {
            self.record_if(result, Event::Commit(writes, raised))?;
            self.stats.commits += 1;
        }
        self.end(at);
        Ok(())
    }

    pub(super) fn roll_back(&mut self, at: usize) -> Result<(), StepEnd> {
        let session = &mut self.sessions[at];
        let xid = session.xid.take();
        let result = session.txn.rollback();
        // The session's transaction ends even if the call fails: a prepared one then stays with the
        // database.
        self.end(at);
        match xid {
            None => Ok(result?),
            // The rollback does not wait for a sync: a crash may bring the transaction back.
            Some(xid) => self.record_unacknowledged(result, Event::RollbackPrepared(xid)),
        }
    }

    fn end(&mut self, at: usize) {
        self.sessions[at].reset();
        self.unlock_all(self.sessions[at].owner);
    }

    pub(super) fn prepare(&mut self, at: usize) -> Result<(), StepEnd> {
        if self.sessions[at].own.is_empty() {
            return Ok(());
        }
        let xid = self.new_xid();
        let session = &mut self.sessions[at];
        let result = session.txn.prepare(&xid);
        let writes = session.own_writes(session.own.len());
        let raised = std::mem::take(&mut session.raised);
        session.scan = None;
        let event = Event::Prepare(xid.clone(), writes, raised);
        self.record_if(result, event)?;
        self.sessions[at].xid = Some(xid);
        Ok(())
    }

    /// The second phase of a commit, either in one step, or in two as in the server's group commit:
    /// `commit_prepared` publishes the transaction first. If that call gets a position in the
    /// binary log, the commit does not wait for a sync, since recovery can repeat it from the
    /// binary log.
    pub(super) fn finish_prepared(&mut self, at: usize) -> Result<(), StepEnd> {
        let (in_group, in_binlog) = (self.lucky(60), self.lucky(70));
        let session = &mut self.sessions[at];
        let Some(xid) = session.xid.clone() else {
            return Ok(());
        };
        let event = Event::CommitPrepared(xid);
        let binlog = in_binlog.then_some((&b"binlog.000001"[..], 4));
        let ordered = match in_group {
            true => session.txn.commit_prepared(binlog),
            false => Ok(()),
        };
        let result = ordered.and_then(|()| session.txn.commit());
        if in_group && in_binlog {
            self.record_unacknowledged(result, event)?;
        } else {
            self.record_if(result, event)?;
        }
        self.stats.commits += 1;
        self.end(at);
        Ok(())
    }

    /// Records the decision about a prepared transaction. If the log has no segment, because the
    /// disk is full, the call fails, but the decision counts; it becomes durable later.
    fn record_decision(
        &mut self,
        result: firn::base::Result<bool>,
        xid: &[u8],
        event: Event,
    ) -> Result<bool, StepEnd> {
        let undecided = self.db().prepared_xids().iter().any(|one| one == xid);
        match result {
            Err(error) if *error.kind() == ErrorKind::NoSpace && !undecided => {
                self.history.record(event);
                Ok(true)
            }
            result => self.record_if(result, event),
        }
    }

    /// Commits or rolls back, by xid, a prepared transaction that no session owns.
    pub(super) fn decide_detached(&mut self) -> Result<(), StepEnd> {
        let db = Arc::clone(self.db());
        let owned = |xid: &Vec<u8>| self.sessions.iter().any(|s| s.xid.as_ref() == Some(xid));
        let mut prepared = self.history.side().prepared.keys();
        let xid: Option<Vec<u8>> = prepared.rfind(|xid| !owned(xid)).cloned();
        let Some(xid) = xid else {
            ensure!(
                !db.commit_xid(b"never prepared")?,
                "an unknown xid was committed"
            );
            return Ok(());
        };
        let known = match self.rng.random() {
            true => {
                let result = db.commit_xid(&xid);
                self.record_decision(result, &xid, Event::CommitPrepared(xid.clone()))?
            }
            false => {
                let result = db.rollback_xid(&xid);
                self.record_decision(result, &xid, Event::RollbackPrepared(xid.clone()))?
            }
        };
        ensure!(known, "prepared transaction {xid:?} is not known");
        if let Some(owner) = self.detached.remove(&xid) {
            self.unlock_all(owner);
        }
        Ok(())
    }
}
