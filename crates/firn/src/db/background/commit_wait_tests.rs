//! Commits that announce their wait for the device.

use crate::base::Value;
use crate::base::options::{CommitDurability, Options};
use crate::db::Db;
use crate::env::MemEnv;
use crate::txn::{Isolation, Transaction, WaitObserver};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the announced waits of session 7.
#[derive(Default)]
struct Host {
    begun: AtomicU64,
    ended: AtomicU64,
}

impl WaitObserver for Host {
    fn waits_for(&self, _: u64, _: u64) {}

    fn commit_waits(&self, waiter: u64) {
        assert_eq!(waiter, 7);
        self.begun.fetch_add(1, Ordering::SeqCst);
    }

    fn commit_resumes(&self, waiter: u64) {
        assert_eq!(waiter, 7);
        self.ended.fetch_add(1, Ordering::SeqCst);
    }
}

fn begin(txn: &mut Transaction, statement: u64) {
    txn.begin_statement(statement, Isolation::RepeatableRead, 1000, false);
}

fn put(txn: &mut Transaction, n: u64) {
    let key = [&1000u32.to_be_bytes()[..], &n.to_be_bytes()].concat();
    txn.put(&key, Value::whole(&[7; 100])).unwrap();
}

#[test]
fn a_commit_announces_its_wait_for_the_device() {
    let host = Arc::<Host>::default();
    let observer = Arc::clone(&host) as Arc<dyn WaitObserver>;
    let options = Options {
        background_jobs: 0,
        ..Options::default()
    };
    let mutable = Arc::clone(&options.mutable);
    let env = Arc::new(MemEnv::new());
    let db = Db::open(env, Path::new("/db"), options, Some(observer)).unwrap();
    let mut txn = db.new_transaction(db.new_owner(7));
    let announced = || {
        let begun = host.begun.load(Ordering::SeqCst);
        assert_eq!(begun, host.ended.load(Ordering::SeqCst));
        begun
    };
    // A commit that wrote nothing waits for nothing.
    begin(&mut txn, 1);
    txn.commit().unwrap();
    assert_eq!(announced(), 0);
    begin(&mut txn, 2);
    put(&mut txn, 1);
    txn.commit().unwrap();
    assert_eq!(announced(), 1);
    // In two phases, the prepare waits, and a commit that the binary log has does not.
    begin(&mut txn, 3);
    put(&mut txn, 2);
    txn.prepare(b"x").unwrap();
    assert_eq!(announced(), 2);
    txn.commit_prepared(Some((b"bin.000001", 4))).unwrap();
    txn.commit().unwrap();
    assert_eq!(announced(), 2);
    for mode in [CommitDurability::Write, CommitDurability::Lazy] {
        mutable.set_commit_durability(mode);
        begin(&mut txn, 4);
        put(&mut txn, 3);
        txn.commit().unwrap();
        assert_eq!(announced(), 2, "{mode:?}");
    }
}
