//! Referenced tables of foreign keys, and the transactions that rely on their indexes.
//!
//! A transaction that writes a referencing row locks the value in an index of the referenced table,
//! and a transaction that deletes this value from the referenced table waits for that lock. DDL
//! that gives the referenced table other indexes would leave such locks behind: the deleter would
//! lock the value in the new index, where nobody holds it. So the DDL closes the table first and
//! waits until no transaction relies on it; meanwhile other transactions wait before they rely on
//! it.

use super::lock_table::LockOwner;
use super::number_hasher::NumberHasher;
use crate::base::{Error, ErrorKind, IndexId, Result};
use crate::env::Env;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::time::Duration;

const SHARDS: usize = 64;

/// Interval at which a waiting session checks whether it was killed.
const KILL_CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// A waiting session searches for a deadlock after this time, then after twice the time, and so on.
/// The pauses grow because each search looks at all transactions.
const BEFORE_SEARCH: Duration = KILL_CHECK_INTERVAL.saturating_mul(5);

/// Referenced tables in use, by the id of their clustered index.
pub struct ReferencedTables {
    shards: Box<[Shard]>,
    /// The clock of waits.
    env: Arc<dyn Env>,
}

#[derive(Default)]
struct Shard {
    tables: Mutex<HashMap<IndexId, TableUse, BuildHasherDefault<NumberHasher>>>,
    changed: Condvar,
}

#[derive(Default)]
struct TableUse {
    /// Transactions that rely on the table's indexes.
    transactions: u32,
    /// Whether DDL changes the table's indexes, or is about to.
    closed: bool,
}

fn timed_out(what: &str) -> Error {
    Error::new(ErrorKind::LockTimeout, what)
}

impl ReferencedTables {
    /// No referenced tables. Waits take their time from the clock of `env`.
    pub fn new(env: Arc<dyn Env>) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            env,
        }
    }

    fn shard(&self, table: IndexId) -> &Shard {
        &self.shards[table as usize % SHARDS]
    }

    /// Counts a transaction that relies on `table`, unless `table` is closed. Returns whether it
    /// counted the transaction.
    pub(super) fn enter(&self, table: IndexId) -> bool {
        let mut tables = self.shard(table).tables.lock();
        let entry = tables.entry(table).or_default();
        let open = !entry.closed;
        entry.transactions += u32::from(open);
        open
    }

    /// Ends what [`Self::enter`] has begun.
    pub(super) fn leave(&self, table: IndexId) {
        let shard = self.shard(table);
        let mut tables = shard.tables.lock();
        let Some(entry) = tables.get_mut(&table) else {
            return;
        };
        entry.transactions = entry.transactions.saturating_sub(1);
        if entry.transactions == 0 {
            match entry.closed {
                true => _ = shard.changed.notify_all(),
                // Nobody waits for an open table.
                false => _ = tables.remove(&table),
            }
        }
    }

    /// Number of tables that transactions rely on or that DDL has closed.
    pub fn len(&self) -> usize {
        let tables = self.shards.iter().map(|shard| shard.tables.lock().len());
        tables.sum()
    }

    /// Whether no transaction relies on a table and DDL has closed none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Keeps further transactions from relying on `table`.
    pub fn close(&self, table: IndexId) {
        let mut tables = self.shard(table).tables.lock();
        tables.entry(table).or_default().closed = true;
    }

    /// Ends what [`Self::close`] has begun.
    pub fn open(&self, table: IndexId) {
        let shard = self.shard(table);
        let mut tables = shard.tables.lock();
        if let Some(entry) = tables.get_mut(&table) {
            entry.closed = false;
            if entry.transactions == 0 {
                tables.remove(&table);
            }
        }
        shard.changed.notify_all();
    }

    /// Waits, on the thread of the session of `owner`, until no transaction relies on `table`,
    /// which is closed.
    ///
    /// # Errors
    /// `LockTimeout`, `Interrupted`.
    pub fn await_free(&self, table: IndexId, owner: &LockOwner, timeout_us: u64) -> Result<()> {
        let free = |entry: Option<&TableUse>| entry.is_none_or(|entry| entry.transactions == 0);
        self.wait(table, owner, timeout_us, free, || false)
            .unwrap_or_else(|| {
                Err(timed_out(
                    "transactions have written rows that refer to the table",
                ))
            })
    }

    /// Waits until `table` is open again. `in_deadlock` says whether the DDL that has closed it
    /// waits for `owner`, directly or by way of others. Every deadlock with such DDL has a member
    /// that waits here, so nobody else searches for these deadlocks.
    ///
    /// # Errors
    /// `LockTimeout`, `Interrupted`, `Deadlock`.
    pub(super) fn await_open(
        &self,
        table: IndexId,
        owner: &LockOwner,
        timeout_us: u64,
        in_deadlock: impl Fn() -> bool,
    ) -> Result<()> {
        let open = |entry: Option<&TableUse>| entry.is_none_or(|entry| !entry.closed);
        self.wait(table, owner, timeout_us, open, in_deadlock)
            .unwrap_or_else(|| Err(timed_out("the referenced table is being altered")))
    }

    /// `None` if time ran out.
    fn wait(
        &self,
        table: IndexId,
        owner: &LockOwner,
        timeout_us: u64,
        done: impl Fn(Option<&TableUse>) -> bool,
        in_deadlock: impl Fn() -> bool,
    ) -> Option<Result<()>> {
        let shard = self.shard(table);
        let mut left = Duration::from_micros(timeout_us);
        let (mut passed, mut search_at) = (Duration::ZERO, BEFORE_SEARCH);
        let mut tables = shard.tables.lock();
        loop {
            if done(tables.get(&table)) {
                return Some(Ok(()));
            }
            if owner.is_interrupted() {
                let message = "the session was killed";
                return Some(Err(Error::new(ErrorKind::Interrupted, message)));
            }
            if left.is_zero() {
                return None;
            }
            let interval = KILL_CHECK_INTERVAL.min(left);
            let begun = self.env.monotonic_micros();
            let slept = match shard.changed.wait_for(&mut tables, interval).timed_out() {
                true => interval,
                // Other tables of the shard wake this session, too.
                false => {
                    let micros = self.env.monotonic_micros().saturating_sub(begun);
                    Duration::from_micros(micros).min(interval)
                }
            };
            left -= slept;
            passed += slept;
            if passed >= search_at {
                search_at = search_at.saturating_mul(2);
                // The search takes locks of its own.
                if MutexGuard::unlocked(&mut tables, &in_deadlock) {
                    let message = "waiting for DDL that waits for a transaction behind this one";
                    return Some(Err(Error::new(ErrorKind::Deadlock, message)));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::MemEnv;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::thread;

    const LONG_US: u64 = 60_000_000;

    fn tables() -> ReferencedTables {
        ReferencedTables::new(Arc::new(MemEnv::new()))
    }

    #[test]
    fn ddl_waits_for_transactions_and_keeps_others_out() {
        let tables = Arc::new(tables());
        let owner = LockOwner::new(0, 0);
        assert!(tables.enter(7));
        assert!(tables.enter(7));
        tables.close(7);
        assert!(!tables.enter(7));
        // Closing a table does not close another table of the same shard.
        assert!(tables.enter(7 + SHARDS as u32));
        let error = tables.await_free(7, &owner, 0).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::LockTimeout);
        tables.leave(7);
        assert!(tables.await_free(7, &owner, 0).is_err());
        tables.leave(7);
        tables.await_free(7, &owner, 0).unwrap();
        assert!(tables.await_open(7, &owner, 0, || false).is_err());
        tables.open(7);
        tables.await_open(7, &owner, 0, || false).unwrap();
        assert!(tables.enter(7));
    }

    #[test]
    fn waiters_wake_up() {
        let tables = Arc::new(tables());
        assert!(tables.enter(3));
        tables.close(3);
        let entering = {
            let tables = Arc::clone(&tables);
            thread::spawn(move || tables.await_open(3, &LockOwner::new(0, 0), LONG_US, || false))
        };
        let ddl = {
            let tables = Arc::clone(&tables);
            thread::spawn(move || {
                tables
                    .await_free(3, &LockOwner::new(0, 0), LONG_US)
                    .unwrap();
                tables.open(3);
            })
        };
        tables.leave(3);
        ddl.join().unwrap();
        entering.join().unwrap().unwrap();
    }

    #[test]
    fn a_kill_ends_the_wait() {
        let tables = tables();
        let owner = LockOwner::new(0, 0);
        assert!(tables.enter(1));
        tables.close(1);
        owner.interrupt();
        let error = tables.await_free(1, &owner, LONG_US).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Interrupted);
    }

    /// If each wake-up counted as a whole interval, this number of them would use up the timeout.
    #[test]
    fn wake_ups_for_other_tables_use_up_no_time() {
        const WAKE_UPS: u32 = 2 * (LONG_US / KILL_CHECK_INTERVAL.as_micros() as u64) as u32;
        let tables = tables();
        let owner = LockOwner::new(0, 0);
        tables.close(7);
        let (looked, ended) = (AtomicU32::new(0), AtomicBool::new(false));
        let done = |_: Option<&TableUse>| looked.fetch_add(1, Ordering::Relaxed) >= WAKE_UPS;
        let waited = thread::scope(|scope| {
            scope.spawn(|| {
                let other = 7 + SHARDS as u32;
                while !ended.load(Ordering::Relaxed) {
                    tables.close(other);
                    tables.open(other);
                }
            });
            let waited = tables.wait(7, &owner, LONG_US, done, || false);
            ended.store(true, Ordering::Relaxed);
            waited
        });
        waited.expect("the wait has time left").unwrap();
    }
}
