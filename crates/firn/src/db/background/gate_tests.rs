//! Transactions at the write stall gate.

use crate::base::options::Options;
use crate::base::{ErrorKind, Value};
use crate::db::Db;
use crate::env::{Env, MemEnv, PosixEnv};
use crate::txn::{Isolation, Transaction, WaitObserver};
use crate::write::{CommitTotals, Pressure};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const STOP: Pressure = Pressure {
    memtables: 2.0,
    l0: 0.0,
    debt: 0.0,
    space: 0.0,
    memory: 0.0,
};

/// Counts the sleeps at the gate that the host is told of.
#[derive(Default)]
struct Host {
    begun: AtomicU64,
    ended: AtomicU64,
}

impl WaitObserver for Host {
    fn waits_for(&self, _: u64, _: u64) {}

    fn stalls(&self, waiter: u64) {
        self.begun.fetch_add(waiter, Ordering::SeqCst);
    }

    fn resumes(&self, waiter: u64) {
        self.ended.fetch_add(waiter, Ordering::SeqCst);
    }
}

fn open(dir: &Path, host: &Arc<Host>) -> Arc<Db> {
    open_on(Arc::new(PosixEnv::new()), dir, host)
}

fn open_on(env: Arc<dyn Env>, dir: &Path, host: &Arc<Host>) -> Arc<Db> {
    let options = Options {
        background_jobs: 0,
        ..Options::default()
    };
    let host = Arc::clone(host) as Arc<dyn WaitObserver>;
    Db::open(env, dir, options, Some(host)).unwrap()
}

fn begin(txn: &mut Transaction, statement: u64, lock_timeout_us: u64) {
    txn.begin_statement(statement, Isolation::RepeatableRead, lock_timeout_us, false);
}

fn put(txn: &mut Transaction, n: u64) {
    let key = [&1000u32.to_be_bytes()[..], &n.to_be_bytes()].concat();
    txn.put(&key, Value::whole(&[7; 100])).unwrap();
}

fn await_waiting(db: &Db, writers: u64) {
    while db.work.stall.stats().waiting != writers {
        std::thread::yield_now();
    }
}

#[test]
fn a_kill_wakes_the_session_at_the_gate() {
    let dir = tempfile::tempdir().unwrap();
    let host = Arc::<Host>::default();
    let db = open(dir.path(), &host);
    db.work.stall.set_pressure(STOP);
    let session = db.new_owner(7);
    // Work of the session beside its transaction is killed with it.
    let helper = db.helper_of(&session);
    for owner in [&session, &helper] {
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut txn = db.new_transaction(Arc::clone(owner));
                begin(&mut txn, 1, 0);
                txn.before_write()
            });
            await_waiting(&db, 1);
            // The session tells its host a moment after the gate counts it. A kill in between would
            // end a wait of which the host has not heard.
            while host.begun.load(Ordering::SeqCst) != 7 {
                std::thread::yield_now();
            }
            session.interrupt();
            let killed = writer.join().unwrap().unwrap_err();
            assert_eq!(*killed.kind(), ErrorKind::Interrupted);
        });
        session.clear_interrupt();
    }
    // The helper has no host.
    assert_eq!(host.begun.load(Ordering::SeqCst), 7);
    assert_eq!(host.ended.load(Ordering::SeqCst), 7);
    assert_eq!(db.work.stall.stats().waiting, 0);
}

#[test]
fn the_lock_timeout_ends_a_wait_and_the_transaction_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path(), &Arc::default());
    let mut txn = db.new_transaction(db.new_owner(0));
    begin(&mut txn, 1, 30_000);
    txn.before_write().unwrap();
    put(&mut txn, 1);
    txn.end_statement();
    db.work.stall.set_pressure(STOP);
    for statement in 2..4 {
        begin(&mut txn, statement, 30_000);
        let waited = txn.before_write().unwrap_err();
        assert_eq!(*waited.kind(), ErrorKind::LockTimeout);
        let deleted = txn.before_delete().unwrap_err();
        assert_eq!(*deleted.kind(), ErrorKind::LockTimeout);
        txn.rollback_statement();
    }
    db.work.stall.set_pressure(Pressure::default());
    begin(&mut txn, 4, 30_000);
    txn.before_write().unwrap();
    put(&mut txn, 2);
    txn.commit().unwrap();
    assert_eq!(db.work.stall.stats().waiting, 0);
}

/// A pass is charged 64 KiB, a quarter of a second at the rate. If a transaction commits less, the
/// rest is given back when it ends, in whichever way, so the next one goes at once. The clock of
/// this environment advances by the timers of the gate only.
#[test]
fn each_end_of_a_transaction_settles_its_charge() {
    let db = open_on(Arc::new(MemEnv::new()), Path::new("/db"), &Arc::default());
    let committed = CommitTotals {
        commits: 1,
        bytes: 1 << 20,
    };
    let stall = &db.work.stall;
    stall.flushed(committed, 1 << 20, 4_000_000);
    stall.set_pressure(Pressure {
        memtables: 1.0,
        ..Pressure::default()
    });
    let write = |n: u64| {
        let mut txn = db.new_transaction(db.new_owner(0));
        begin(&mut txn, n, 0);
        txn.before_write().unwrap();
        put(&mut txn, n);
        txn
    };
    write(1).commit().unwrap();
    write(2).rollback().unwrap();
    drop(write(3));
    let mut txn = write(4);
    txn.prepare(b"xid4").unwrap();
    txn.commit_prepared(None).unwrap();
    txn.commit().unwrap();
    let mut txn = write(5);
    txn.prepare_to_stay(b"xid5").unwrap();
    txn.detach(db.new_owner(0));
    let open = write(6);
    let before = stall.stats();
    assert!(before.delay_us < 100_000, "{before:?}");
    // The charge of an open transaction is not given back.
    drop(write(7));
    assert!(stall.stats().delay_us - before.delay_us > 100_000);
    drop(open);
}
