//! A thread that transfers money.

use super::books::{ACCOUNTS, account_key, ledger_key, ledger_value, number};
use super::{call_failed, is_end};
use crate::failure::Failure;
use firn::base::{Error, ErrorKind, Result, Value};
use firn::db::Db;
use firn::env::ReadClass;
use firn::txn::{Isolation, LockMode, Transaction};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;

/// Lock timeout, microseconds: so long that it never expires while deadlock detection works.
const LOCK_TIMEOUT_US: u64 = 60_000_000;

/// A thread's record of its own transfers, kept over restarts of the database.
pub(super) struct Teller {
    pub number: u32,
    /// Number of transfers whose commit has succeeded.
    pub acknowledged: u64,
    /// Number of the last transfer begun: `acknowledged`, or one more.
    pub attempted: u64,
    /// The error that ended the thread's work.
    pub ended: Option<Error>,
    rng: StdRng,
}

impl Teller {
    pub(super) fn new(number: u32, seed: u64) -> Self {
        Self {
            number,
            acknowledged: 0,
            attempted: 0,
            ended: None,
            rng: StdRng::seed_from_u64(seed * 100 + u64::from(number)),
        }
    }

    /// Makes transfers until `goal` of them are acknowledged or the environment dies. Returns the
    /// number of deadlocks in which this thread was the victim.
    pub(super) fn work(&mut self, db: &Arc<Db>, goal: u64) -> Result<u64, Failure> {
        let mut txn = db.new_transaction(db.new_owner(0));
        let mut victims = 0;
        while self.acknowledged < goal {
            match self.transfer(&mut txn) {
                Ok(()) => self.acknowledged = self.attempted,
                Err(error) => {
                    let rolled_back = txn.rollback();
                    if *error.kind() == ErrorKind::Deadlock {
                        victims += 1;
                        rolled_back.map_err(call_failed)?;
                        continue;
                    }
                    if !is_end(error.kind()) {
                        return Err(call_failed(error));
                    }
                    self.ended = Some(error);
                    break;
                }
            }
        }
        Ok(victims)
    }

    fn transfer(&mut self, txn: &mut Transaction) -> Result<()> {
        let from = self.rng.random_range(0..ACCOUNTS);
        let to = (from + self.rng.random_range(1..ACCOUNTS)) % ACCOUNTS;
        let amount = self.rng.random_range(1..100);
        txn.begin_statement(1, Isolation::RepeatableRead, LOCK_TIMEOUT_US, false);
        txn.before_write()?;
        for (account, change) in [(from, -amount), (to, amount)] {
            let key = account_key(account);
            txn.lock(&key, LockMode::Exclusive, None)?;
            let latest = txn.latest_point();
            let balance = txn.get(&latest, &key, ReadClass::Point, |_, value| {
                number(value.head)
            })?;
            let balance = balance.ok_or_else(|| Error::invalid("an account is missing"))?;
            let padding = vec![amount as u8; self.rng.random_range(0..120)];
            txn.put(
                &key,
                Value::split(&(balance + change).to_be_bytes(), &padding),
            )?;
        }
        self.attempted = self.acknowledged + 1;
        let row = ledger_value(from, to, amount);
        txn.put(&ledger_key(self.number, self.attempted), Value::whole(&row))?;
        if self.rng.random_range(0..4) == 0 {
            txn.prepare(format!("{} {}", self.number, self.attempted).as_bytes())?;
        }
        txn.commit()
    }
}
