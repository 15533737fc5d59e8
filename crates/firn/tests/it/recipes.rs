//! Compression recipes that compactions hand on from file to file.

use firn::base::Value;
use firn::base::options::Options;
use firn::db::{Db, Metrics};
use firn::env::{Env, MemEnv, ReadClass};
use firn::txn::{Isolation, Transaction};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

const INDEX: u32 = 1_000_000;
const ROWS: u64 = 40_000;
/// Rows that a round updates.
const UPDATES: usize = 4000;

fn options() -> Options {
    Options {
        background_jobs: 0,
        ..Options::default()
    }
}

fn key(n: u64) -> Vec<u8> {
    [&INDEX.to_be_bytes()[..], &n.to_be_bytes()].concat()
}

fn begin(db: &Db) -> Transaction {
    let mut txn = db.new_transaction(db.new_owner(0));
    txn.begin_statement(1, Isolation::RepeatableRead, 1_000_000, false);
    txn
}

/// A table whose rows are words of a vocabulary, and a model of it.
struct Table {
    db: Arc<Db>,
    rng: StdRng,
    model: BTreeMap<u64, Vec<u8>>,
}

impl Table {
    fn words(&mut self, vocabulary: u64) -> Vec<u8> {
        let mut row = Vec::new();
        for _ in 0..12 {
            let word = vocabulary * 1000 + self.rng.random_range(0..200);
            let mut letters = StdRng::seed_from_u64(word);
            row.extend((0..12).map(|_| letters.random_range(b'a'..=b'z')));
        }
        row.extend(self.rng.random::<[u8; 16]>());
        row
    }

    fn put(&mut self, rows: impl Iterator<Item = u64>, vocabulary: u64) {
        let rows: Vec<(u64, Vec<u8>)> = rows.map(|n| (n, self.words(vocabulary))).collect();
        for rows in rows.chunks(1000) {
            let mut txn = begin(&self.db);
            for (n, row) in rows {
                txn.put(&key(*n), Value::split(&[1], row)).unwrap();
            }
            txn.commit().unwrap();
        }
        self.model.extend(rows);
    }

    /// Updates random rows, brings them to the last level, and returns how many files compactions
    /// have written with new recipes tried, and how many with an inherited one.
    fn round(&mut self, vocabulary: u64) -> (u64, u64) {
        let before = self.db.counters();
        let rows: Vec<u64> = (0..UPDATES)
            .map(|_| self.rng.random_range(0..ROWS))
            .collect();
        self.put(rows.into_iter(), vocabulary);
        self.db.compact_all().unwrap();
        since(&before, &self.db.counters())
    }

    fn stored(&self) -> u64 {
        self.db.levels().iter().map(|l| l.stored_bytes).sum()
    }
}

fn since(before: &Metrics, now: &Metrics) -> (u64, u64) {
    (
        now.recipes_tried - before.recipes_tried,
        now.recipes_inherited - before.recipes_inherited,
    )
}

fn check(db: &Db, model: &BTreeMap<u64, Vec<u8>>) {
    let mut txn = begin(db);
    let point = txn.read_point();
    for (n, row) in model {
        let read = |_: firn::base::InternalKey<'_>, value: Value<'_>| value.tail == &row[..];
        let same = txn.get(&point, &key(*n), ReadClass::Point, read).unwrap();
        assert_eq!(same, Some(true), "row {n}");
    }
}

#[test]
fn updates_inherit_and_new_kinds_of_rows_do_not() {
    for seed in 0..2 {
        let env: Arc<dyn Env> = Arc::new(MemEnv::new());
        let dir = Path::new("/db");
        let mut table = Table {
            db: Db::open(Arc::clone(&env), dir, options(), None).unwrap(),
            rng: StdRng::seed_from_u64(seed),
            model: BTreeMap::new(),
        };
        table.put(0..ROWS, 1);
        table.db.compact_all().unwrap();
        let (mut tried, mut inherited) = (0, 0);
        for _ in 0..6 {
            let (one, other) = table.round(1);
            tried += one;
            inherited += other;
        }
        assert!(inherited >= 6, "{inherited} files inherited");
        assert!(
            tried * 3 <= inherited,
            "{tried} tried, {inherited} inherited"
        );
        // All rows get other words. The files end about as small as those of a table that never had
        // the old words: a recipe may be worse than a new one by two percent, drift by two more,
        // and each dictionary is about one percent of files as small as these.
        let mut tried = 0;
        for part in 0..8 {
            let rows = part * ROWS / 8..(part + 1) * ROWS / 8;
            table.put(rows, 2);
            tried += table.round(2).0;
        }
        assert!(tried > 0, "new words, no new dictionary");
        let mut fresh = Table {
            db: Db::open(Arc::new(MemEnv::new()), dir, options(), None).unwrap(),
            rng: StdRng::seed_from_u64(seed),
            model: BTreeMap::new(),
        };
        fresh.put(0..ROWS, 2);
        fresh.db.compact_all().unwrap();
        let ratio = table.stored() as f64 / fresh.stored() as f64;
        assert!(ratio < 1.08, "{ratio}");
        check(&table.db, &table.model);

        // A checkpoint and a reopened database read files whose dictionary came from files that are
        // gone.
        let copy = Path::new("/copy");
        table.db.checkpoint(copy, true).unwrap();
        drop(table.db);
        let copied = Db::open(Arc::clone(&env), copy, options(), None).unwrap();
        check(&copied, &table.model);
        let again = Db::open(env, dir, options(), None).unwrap();
        check(&again, &table.model);
    }
}
