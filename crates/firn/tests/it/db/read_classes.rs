//! What a database reads is counted by purpose.

use super::*;
use firn::iter::{MergeIter, MvccIter, ReadAt};
use firn::read::{ScanRange, scan_sources};
use std::collections::BTreeMap;

const ROWS: u32 = 5000;

fn name(n: u32) -> String {
    format!("{n:06}")
}

fn totals(db: &Db) -> BTreeMap<&'static str, u64> {
    let all = db.file_reads();
    all.map(|one| (one.class.name(), one.reads)).collect()
}

/// The classes of the reads that `f` makes, with their numbers.
fn reads<T>(db: &Db, f: impl FnOnce() -> T) -> BTreeMap<&'static str, u64> {
    let before = totals(db);
    f();
    let mut after = totals(db);
    after.iter_mut().for_each(|(name, n)| *n -= before[name]);
    after.retain(|_, n| *n > 0);
    after
}

fn write(db: &Db, value: &str) {
    let mut txn = begin(db);
    for n in 0..ROWS {
        // In no order, so that the runs of a transaction that spills overlap.
        put(&mut txn, &name(n * 7919 % ROWS), &value.repeat(20));
    }
    txn.commit().unwrap();
}

fn scan(db: &Db) {
    let point = db.context().super_versions.latest();
    let range = ScanRange {
        lower: 7u32.to_be_bytes().to_vec(),
        upper: Some(8u32.to_be_bytes().to_vec()),
    };
    let sources = scan_sources(&point.super_version, &range, ReadClass::Range, None);
    let mut rows = MvccIter::new(MergeIter::new(sources), ReadAt::snapshot(point.seqno));
    rows.set_bounds(Some(&range.lower), range.upper.as_deref());
    let mut on = rows.first().unwrap();
    let mut count = 0;
    while on {
        count += 1;
        on = rows.next().unwrap();
    }
    assert_eq!(count, ROWS);
}

#[test]
fn each_purpose_has_its_class() {
    let env = MemEnv::new();
    let db = open(&env);
    write(&db, "first");
    db.compact_all().unwrap();
    db.close().unwrap();
    drop(db);

    let db = open(&env);
    let at_start = totals(&db);
    assert!(
        at_start["log"] > 0,
        "the manifest and the log: {at_start:?}"
    );
    assert_eq!(at_start.values().sum::<u64>(), at_start["log"]);

    let point = || get(&mut begin(&db), &name(77)).unwrap();
    let first = reads(&db, point);
    assert_eq!(first["point"], 1);
    assert_eq!(
        first.keys().copied().collect::<Vec<_>>(),
        ["index", "point"]
    );
    assert!(reads(&db, point).is_empty(), "all is cached");

    let batch = reads(&db, || {
        let mut txn = begin(&db);
        let keys: Vec<_> = (0..5).map(|n| key(&name(1000 + 700 * n))).collect();
        let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        let point = txn.read_point();
        assert_eq!(txn.multi_get(&point, &keys, |i, _, _| i).len(), 5);
    });
    assert_eq!(batch.get("range"), Some(&5), "{batch:?}");
    assert!(batch.keys().all(|class| ["index", "range"].contains(class)));

    let scanned = reads(&db, || scan(&db));
    assert!(scanned["scan"] >= 1, "{scanned:?}");
    let queries = ["index", "range", "scan"];
    assert!(scanned.keys().all(|class| queries.contains(class)));
    assert!(reads(&db, || scan(&db)).is_empty(), "all blocks are cached");

    // A large transaction merges what it has spilled.
    let limit = &db.options().mutable.txn_memory_limit;
    limit.store(1 << 16, Ordering::Relaxed);
    let spilled = reads(&db, || write(&db, "other"));
    assert!(
        spilled.get("load").is_some_and(|&reads| reads > 0),
        "{spilled:?}"
    );
    limit.store(1 << 30, Ordering::Relaxed);

    write(&db, "third");
    db.flush().unwrap();
    let compacted = reads(&db, || db.compact_all().unwrap());
    assert!(compacted["compaction"] > 0);
    let readers = ["compaction", "index", "log"];
    assert!(
        compacted.keys().all(|class| readers.contains(class)),
        "{compacted:?}"
    );

    let verified = reads(&db, || {
        let version = Arc::clone(&db.context().super_versions.pin().version);
        for (_, file) in version.files() {
            file.reader().unwrap().verify().unwrap();
        }
    });
    assert!(verified["verify"] > 0);
    assert!(
        verified
            .keys()
            .all(|class| ["index", "verify"].contains(class))
    );

    // The files are copied, since they cannot be linked.
    env.set_apart(Path::new("/elsewhere"));
    env.create_dir_all(Path::new("/elsewhere")).unwrap();
    let target = Path::new("/elsewhere/backup");
    let mut files = 0;
    let copied = reads(&db, || {
        let made = db.checkpoint(target, false).unwrap();
        assert!(made.files > 0);
        files = made.files + made.segments;
    });
    assert!(copied["backup"] >= files, "{files} files: {copied:?}");
    assert!(copied.keys().all(|class| ["backup", "log"].contains(class)));
}
