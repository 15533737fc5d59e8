//! Counters that are set back: the last setting holds, whatever values log and manifest recorded
//! before and after it.

use super::*;
use crate::prepared::{record, schema};
use crate::schema::open_or_create;
use firn::base::CounterValue;
use firn::catalog::{TableSchema, hidden_row_counter};
use firn::db::{ReadOnlyDb, repair};
use firn::env::FaultEnv;
use firn::env::fault::{CallClass, Errno, Fault};
use firn::table::{RowScratch, Table, WriteFlags};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

const COUNTER: u64 = 4000;

fn known(db: &Db) -> CounterValue {
    db.catalog().counters().cell(COUNTER).read()
}

/// Commits a row and raises the counter to `value`.
fn commit(db: &Db, value: u64) {
    let raised = db.catalog().counters().raise(COUNTER, value);
    let mut txn = begin(db);
    put(&mut txn, &format!("row {value}"), "1");
    txn.raise_counter(COUNTER, raised);
    txn.commit().unwrap();
}

#[test]
fn a_counter_that_was_set_back_stays_there_over_crashes() {
    // Events between the settings: nothing, a flush, a full compaction, a checkpoint (which ends
    // the segment), two flushes (which release the earlier segments).
    let happen = |db: &Db, what: usize, round: usize| match what {
        0 => {}
        1 => db.flush().unwrap(),
        2 => db.compact_all().unwrap(),
        3 => drop(
            db.checkpoint(Path::new(&format!("/backup{round}")), false)
                .unwrap(),
        ),
        _ => {
            db.flush().unwrap();
            let mut txn = begin(db);
            put(&mut txn, "between", "1");
            txn.commit().unwrap();
            db.flush().unwrap();
        }
    };
    for case in 0..125 {
        let env = MemEnv::new();
        let db = open(&env);
        commit(&db, 100);
        happen(&db, case % 5, 1);
        db.catalog().set_counter(COUNTER, 7).unwrap();
        happen(&db, case / 5 % 5, 2);
        assert_eq!(known(&db).value, 7, "case {case}");
        let crashed = env.crash(case as u64);
        let db = open(&crashed);
        assert_eq!(known(&db).value, 7, "case {case}");
        commit(&db, 9);
        happen(&db, case / 25, 3);
        let db = open(&crashed.crash(case as u64));
        assert_eq!(known(&db).value, 9, "case {case}");
        db.catalog().set_counter(COUNTER, 3).unwrap();
        db.catalog().set_counter(COUNTER, 50).unwrap();
        db.close().unwrap();
        assert_eq!(known(&db).value, 50, "case {case}");
    }
}

#[test]
fn checkpoints_and_repairs_have_the_counter_as_it_was_set() {
    let env = MemEnv::new();
    let db = open(&env);
    commit(&db, 100);
    db.flush().unwrap();
    db.catalog().set_counter(COUNTER, 7).unwrap();
    commit(&db, 8);
    db.checkpoint(Path::new("/copy"), false).unwrap();
    db.flush().unwrap();
    commit(&db, 9);
    db.close().unwrap();
    drop(db);
    let shared: Arc<dyn Env> = Arc::new(env.clone());
    let copy = Db::open(Arc::clone(&shared), Path::new("/copy"), options(), None).unwrap();
    assert_eq!(known(&copy).value, 8);
    drop(copy);
    let look = ReadOnlyDb::open(Arc::clone(&shared), Path::new("/db")).unwrap();
    let mut lost = Vec::new();
    repair(&look, Path::new("/new"), &mut |error| lost.push(error)).unwrap();
    assert!(lost.is_empty(), "{lost:?}");
    let repaired = Db::open(shared, Path::new("/new"), options(), None).unwrap();
    assert_eq!(known(&repaired).value, 9);
}

/// A transaction that raised the counter before it was set, and commits afterwards, does not raise
/// it again. A setting that fails leaves the counter as it was.
#[test]
fn late_commits_and_failures_neither_raise_nor_lower_it() {
    let env = MemEnv::new();
    let db = open(&env);
    let mut late = begin(&db);
    put(&mut late, "late", "1");
    late.raise_counter(COUNTER, db.catalog().counters().raise(COUNTER, 100));
    db.catalog().set_counter(COUNTER, 7).unwrap();
    late.commit().unwrap();
    let db = open(&env.crash(1));
    assert_eq!(known(&db).value, 7);

    let faults = FaultEnv::new(Arc::new(MemEnv::new()));
    let db = Db::open(Arc::new(faults.clone()), Path::new("/db"), options(), None).unwrap();
    commit(&db, 100);
    faults.inject(Fault {
        class: CallClass::Sync,
        nth: 1,
        sticky: true,
        errno: Errno::Io,
    });
    db.catalog().set_counter(COUNTER, 7).unwrap_err();
    assert_eq!(known(&db).value, 100);
}

/// Random commits, settings, flushes and crashes: the counter always has its last acknowledged
/// value.
#[test]
fn random_settings_and_crashes() {
    for seed in 0..40 {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut env = MemEnv::new();
        let mut db = open(&env);
        let mut expected = CounterValue::default();
        for step in 0..60 {
            match rng.random_range(0..10) {
                0..5 => {
                    let value = known(&db).value + rng.random_range(1..9);
                    commit(&db, value);
                    expected.value = value;
                }
                5 => {
                    let value = rng.random_range(0..known(&db).value + 1);
                    db.catalog().set_counter(COUNTER, value).unwrap();
                    expected.generation += 1;
                    expected.value = value;
                }
                6 => db.flush().unwrap(),
                7 => db.catalog().persist_counters().unwrap(),
                8 => drop(
                    db.checkpoint(Path::new(&format!("/c{step}")), true)
                        .unwrap(),
                ),
                _ => {
                    if rng.random() {
                        db.close().unwrap();
                    }
                    env = env.crash(rng.random());
                    db = open(&env);
                }
            }
            assert_eq!(known(&db), expected, "seed {seed}, step {step}");
        }
    }
}

/// A flush releases the log, so from then on only the manifest says which hidden row ids and
/// AUTO_INCREMENT values were given out.
#[test]
fn ids_that_were_given_out_survive_the_log() {
    let hidden = || TableSchema {
        primary: None,
        indexes: Vec::new(),
        ..schema()
    };
    let insert = |db: &Db, table: &Table| {
        let mut txn = begin(db);
        let mut scratch = RowScratch::default();
        // SAFETY: no column is a blob.
        let done = unsafe {
            table.insert(
                &mut txn,
                &record(1, None),
                WriteFlags::default(),
                &mut scratch,
            )
        };
        done.unwrap();
        txn.commit().unwrap();
    };
    let env = MemEnv::new();
    let db = open(&env);
    let table = open_or_create(&db, "d/hidden", hidden());
    let counter = hidden_row_counter(db.catalog().get("d/hidden").unwrap().clustered.id);
    let given = |db: &Db| db.catalog().counters().cell(counter).read().value;
    for rows in 1..4 {
        insert(&db, &table);
        db.flush().unwrap();
        assert_eq!(given(&db), rows);
    }
    assert_eq!(table.reserve_autoincrement(1, 1, 5), Some(1));
    insert(&db, &table);
    for round in 0..2 {
        db.flush().unwrap();
        let mut txn = begin(&db);
        put(&mut txn, &format!("between {round}"), "1");
        txn.commit().unwrap();
    }
    db.flush().unwrap();
    let db = open(&env.crash(1));
    assert_eq!(given(&db), 4);
    let table = open_or_create(&db, "d/hidden", hidden());
    assert_eq!(table.next_autoincrement(), 6);
    insert(&db, &table);
    assert_eq!(given(&db), 5);
}
