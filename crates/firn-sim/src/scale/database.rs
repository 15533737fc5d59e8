//! Costs of a database: commits, freezes, statistics, DDL.

use super::invented::Invented;
use super::place::Place;
use super::{Budget, Costs, Measured, ScalePlan, tree};
use firn::base::key::index_prefix;
use firn::base::options::{CommitDurability, MutableOptions, Options};
use firn::base::{IndexId, Value};
use firn::catalog::{
    ColumnSchema, IndexPart, IndexSchema, NewTable, PartSchema, TableLocking, TableSchema,
    autoincrement_counter,
};
use firn::db::Db;
use firn::env::{CountingEnv, Env, IoStats};
use firn::read::{ScanRange, estimate_rows};
use firn::rowcode::{Column, ColumnKind, InstantDefault};
use firn::table::Table;
use firn::txn::Isolation;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A table of three integers with a primary key of all of them and a secondary index. Invented keys
/// hold the first two.
fn schema() -> TableSchema {
    let column = |id: u32| ColumnSchema {
        name: format!("c{id}"),
        type_code: 3,
        chars: 0,
        interpretation: 0,
        column: Column {
            id,
            kind: ColumnKind::Fixed { len: 4 },
            offset: 1 + 4 * id,
            null: None,
            stored: true,
            instant_default: InstantDefault::Impossible,
        },
    };
    let part = |column: u32| IndexPart {
        column,
        kind: PartSchema::Int { signed: true },
        desc: false,
        prefix: None,
        image_len: 4,
    };
    let index = |unique, columns: Range<u32>| IndexSchema {
        name: format!("i{}", columns.start),
        unique,
        parts: columns.map(part).collect(),
    };
    TableSchema {
        version: 1,
        older: std::sync::Arc::default(),
        record_len: 13,
        null_bytes: 1,
        columns: (0..3).map(column).collect(),
        indexes: vec![index(true, 0..3), index(false, 1..2)],
        primary: Some(0),
        auto_increment: None,
        locking: TableLocking::Pessimistic,
    }
}

fn create(db: &Db, name: &str) {
    let definition = NewTable {
        schema: schema(),
        frm: b"",
        version: b"",
        created_micros: 1,
    };
    db.catalog().create(name, definition).expect("a new name");
}

fn options(durability: CommitDurability) -> Options {
    let mutable = MutableOptions::default();
    mutable.set_commit_durability(durability);
    mutable.memtable_size.store(2 << 20, Ordering::Relaxed);
    Options {
        mutable: Arc::new(mutable),
        background_jobs: 0,
        ..Options::default()
    }
}

fn key(index: IndexId, number: u64) -> Vec<u8> {
    let mut key = index.to_be_bytes().to_vec();
    key.extend_from_slice(&number.to_be_bytes());
    key
}

/// Measures a database with the tables of `plan`, over invented files.
pub(super) fn measure(plan: ScalePlan, place: &Place, costs: &mut Costs) {
    let (env, dir) = place.empty("database");
    let dir = dir.as_path();
    let fast = options(CommitDurability::Lazy);
    let db = Db::open(Arc::clone(&env), dir, fast, None).expect("a new database");
    for number in 0..plan.tables {
        create(&db, &format!("d/t{number:05}"));
    }
    let tables = db.catalog().list("");
    let indexes = tables.iter().flat_map(|table| table.index_ids()).collect();
    for table in &tables {
        let counter = autoincrement_counter(table.clustered.id);
        db.catalog().counters().raise(counter, 1000);
    }
    db.flush().expect("memory has room");
    db.close().expect("memory has room");
    drop(db);

    let versions = tree::open(&env, dir);
    let invented = Invented::new(plan, indexes);
    let files = invented.tree(0, || versions.new_file_id());
    let ids: Vec<u64> = files.iter().map(|(.., meta)| meta.file_id).collect();
    let strays = (0..plan.files / 10).map(|_| versions.new_file_id());
    for id in ids.into_iter().chain(strays) {
        let store = versions.source().store();
        store.create(id).expect("there is room for empty files");
    }
    tree::add(&versions, files);
    drop(versions);

    let counting = Arc::new(CountingEnv::new(env));
    let calls = Arc::clone(counting.counters());
    let env: Arc<dyn Env> = counting;
    let db = costs.measure("open the database", None, || {
        let options = options(CommitDurability::Sync);
        Db::open(Arc::clone(&env), dir, options, None).expect("files are opened by reads")
    });
    check_open(&calls);
    first_flush(&db, costs);
    blobs(&db, costs);
    transactions(&db, plan, costs);
    statistics(&db, plan, costs);
    estimates(&db, plan, &calls, costs);
    ddl(&db, plan, costs);
    let removed = calls.removals();
    costs.measure("close the database", Some(Budget::default()), || {
        db.close().expect("there is room")
    });
    let removed = calls.removals() - removed;
    assert!(
        removed <= REMOVALS_MAX,
        "{removed} files removed by a close"
    );
}

/// An open may remove this many files, and a close, too.
const REMOVALS_MAX: u64 = 200;
/// An open may open this many files, however many the tree has.
const OPENS_MAX: u64 = 32;
/// An open may list directories this many times.
const LISTS_MAX: u64 = 4;

/// Checks the calls of the open of a database with very many files, a part of which nothing names.
fn check_open(calls: &IoStats) {
    let (opens, lists, removed) = (calls.opens(), calls.lists(), calls.removals());
    assert!(opens <= OPENS_MAX, "{opens} files opened");
    assert!(lists <= LISTS_MAX, "{lists} listings");
    assert!(removed <= REMOVALS_MAX, "{removed} files removed");
}

/// Measures the first flush after an open. This flush compares all counters with those of the
/// manifest, which the open has read.
fn first_flush(db: &Db, costs: &mut Costs) {
    let mut txn = db.new_transaction(db.new_owner(0));
    txn.begin_statement(1, Isolation::ReadCommitted, 0, true);
    let value = Value {
        head: b"row",
        tail: &[],
    };
    txn.put(&key(0x0fff_ffff, 1), value).expect("a row");
    txn.commit().expect("memory has room");
    costs.measure("first flush after an open", None, || {
        db.flush().expect("memory has room");
    });
}

/// Measures the search for garbage in blob files, which a background thread repeats five times a
/// second.
fn blobs(db: &Db, costs: &mut Costs) {
    costs.measure("search for garbage in blob files", None, || {
        db.collect_blobs().expect("nothing to do")
    });
    for _ in 0..3 {
        let budget = Some(Budget::default());
        costs.measure("a step of blob collection", budget, || {
            db.collect_blobs().expect("nothing to do")
        });
    }
}

/// Measures commits until memtables freeze, and writes that fill write sets.
fn transactions(db: &Db, plan: ScalePlan, costs: &mut Costs) {
    let super_versions = &db.context().super_versions;
    let value = Value {
        head: &[7; 1000],
        tail: &[],
    };
    let mut txn = db.new_transaction(db.new_owner(0));
    let mut freezes = 0;
    for number in 0..20_000 {
        txn.begin_statement(number, Isolation::ReadCommitted, 0, true);
        // Write to an index that no table has, so that no invented file contains its keys.
        txn.put(&key(0x0fff_ffff, number), value).expect("a row");
        let frozen = super_versions.pin().frozen.len();
        let before = super_versions.pin().active.id();
        let mut scratch = Costs::default();
        scratch.measure("", None, || txn.commit().expect("memory has room"));
        let froze = super_versions.pin().active.id() != before;
        let what = if froze {
            "a commit that freezes"
        } else {
            "a commit"
        };
        costs.record(Measured {
            what: what.to_owned(),
            budget: Some(Budget::default()),
            ..scratch.all.remove(0)
        });
        if frozen > 1 {
            // Two memtables, each one file of one index.
            let budget = Budget {
                files: 16 * plan.log(),
                nodes: 32,
                // Counters that have changed since the last flush.
                tables: 4,
                ..Budget::default()
            };
            costs.measure("flush through the database", Some(budget), || {
                db.flush().expect("memory has room");
            });
            freezes += 1;
        }
        if freezes == 3 {
            break;
        }
    }
    txn.begin_statement(1 << 40, Isolation::ReadCommitted, 0, false);
    for number in 0..1000 {
        costs.measure("a step of a write set", Some(Budget::default()), || {
            txn.put(&key(0x0fff_ffff, number), value).expect("a row");
        });
    }
    txn.rollback().expect("nothing is prepared");
}

fn statistics(db: &Db, plan: ScalePlan, costs: &mut Costs) {
    for number in [0, 1, 2] {
        let name = format!("d/t{number:05}");
        let table = Table::open(db.catalog(), &name, schema(), &[]).expect("it exists");
        db.flush().expect("memory has room");
        let super_versions = &db.context().super_versions;
        table.statistics(super_versions);
        let mut txn = db.new_transaction(db.new_owner(0));
        txn.begin_statement(1, Isolation::ReadCommitted, 0, true);
        let value = Value {
            head: b"row",
            tail: &[],
        };
        txn.put(&key(0x0fff_ffff, number), value).expect("a row");
        txn.commit().expect("memory has room");
        // The first statistics in a new version.
        db.flush().expect("memory has room");
        let bisections = Budget {
            files: 8 * plan.log(),
            ..Budget::default()
        };
        costs.measure("statistics of a table", Some(bisections), || {
            table.statistics(super_versions)
        });
    }
}

/// An estimate of rows per key may open this many files: those whose sketches it reads, and one of
/// each run, because a scan begins when none of them can be read.
const ESTIMATE_OPENS_MAX: u64 = 64 + 16;

/// Measures estimates of the index that half of all files belong to.
fn estimates(db: &Db, plan: ScalePlan, calls: &IoStats, costs: &mut Costs) {
    let table = Table::open(db.catalog(), "d/t00000", schema(), &[]).expect("it exists");
    let super_versions = &db.context().super_versions;
    let entry = db.catalog().get("d/t00000").expect("it exists");
    let range = ScanRange {
        lower: index_prefix(entry.clustered.id).to_vec(),
        upper: None,
    };
    let bisections = Budget {
        files: 32 * plan.log(),
        ..Budget::default()
    };
    let opens = calls.opens();
    let rows = costs.measure("estimate of a range", Some(bisections), || {
        estimate_rows(&super_versions.latest(), &range)
    });
    assert!(rows.expect("no end lies in a file") > plan.files * 500);
    assert_eq!(calls.opens(), opens);
    let samples = Budget {
        files: 256 * plan.log(),
        ..Budget::default()
    };
    let found = costs.measure("rows per key", Some(samples), || {
        table.rows_per_key(super_versions, 0)
    });
    assert!(found.is_err(), "the files are empty");
    let opened = calls.opens() - opens;
    assert!(opened <= ESTIMATE_OPENS_MAX, "{opened} files opened");
}

fn ddl(db: &Db, plan: ScalePlan, costs: &mut Costs) {
    for number in 0..5 {
        let name = format!("d/new{number}");
        costs.measure("create a table", Some(Budget::default()), || {
            create(db, &name)
        });
        let entry = db.catalog().get(&name).expect("just created");
        let ids = entry.index_ids();
        costs.measure(
            "find the owner of an index",
            Some(Budget::default()),
            || {
                let found = db.catalog().unique_prefix_extractor(ids[1]);
                found.expect("a known schema")
            },
        );
        let dropped = format!("d/t{:05}", plan.tables - 1 - number);
        costs.measure("drop a table", Some(Budget::default()), || {
            db.catalog().drop_table(&dropped).expect("it exists");
        });
    }
}
