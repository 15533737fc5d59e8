use super::*;
use crate::base::Value;
use crate::db::Db;
use crate::env::{Env, MemEnv};
use crate::txn::Isolation;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

#[test]
fn runs_in_the_queue_are_no_memtables() {
    let env: Arc<dyn Env> = Arc::new(MemEnv::new());
    let options = Options {
        background_jobs: 0,
        ..Options::default()
    };
    let db = Db::open(env, Path::new("/db"), options.clone(), None).unwrap();
    let commit = |limit: u64| {
        db.options()
            .mutable
            .txn_memory_limit
            .store(limit, Ordering::Relaxed);
        let mut txn = db.new_transaction(db.new_owner(0));
        txn.begin_statement(1, Isolation::RepeatableRead, 0, false);
        for n in 0..3u64 {
            let key = [&1000u32.to_be_bytes()[..], &n.to_be_bytes()].concat();
            txn.put(&key, Value::EMPTY).unwrap();
        }
        txn.commit().unwrap();
    };
    let now = || {
        let super_version = db.cx.super_versions.pin();
        let input = stall_input(&super_version, &options, &SpaceTracker::default(), None);
        (input.frozen_memtables, input.l0_runs)
    };
    assert_eq!(now(), (0, 0));
    commit(1);
    assert_eq!(now(), (0, 1));
    // Commits an ingested run. It lies above the memtable that was active before, so that memtable
    // is frozen.
    commit(u64::MAX);
    commit(1);
    assert_eq!(db.cx.super_versions.pin().frozen.len(), 3);
    assert_eq!(now(), (0, 2), "the memtable is tiny");
    options.mutable.memtable_size.store(1, Ordering::Relaxed);
    assert_eq!(now(), (1, 2));
}
