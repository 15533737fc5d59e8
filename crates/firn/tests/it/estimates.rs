//! Range estimates beside exact counts, on trees in all states.

use firn::base::Value;
use firn::base::options::Options;
use firn::db::Db;
use firn::env::{Env, MemEnv};
use firn::read::{EXACT_ROWS, ScanRange, estimate_rows};
use firn::txn::{Isolation, LockMode};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

const KEYS: u32 = 4000;

fn key(n: u32) -> Vec<u8> {
    [7u32.to_be_bytes(), n.to_be_bytes()].concat()
}

struct World {
    db: Arc<Db>,
    rng: StdRng,
    rows: BTreeSet<u32>,
    seed: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let env: Arc<dyn Env> = Arc::new(MemEnv::new());
        let options = Options {
            background_jobs: 0,
            block_size: 1 << 10,
            ..Options::default()
        };
        Self {
            db: Db::open(env, Path::new("/db"), options, None).unwrap(),
            rng: StdRng::seed_from_u64(seed),
            rows: BTreeSet::new(),
            seed,
        }
    }

    fn write(&mut self, keys: impl IntoIterator<Item = u32>, delete: bool) {
        let mut txn = self.db.new_transaction(self.db.new_owner(0));
        txn.begin_statement(1, Isolation::RepeatableRead, 1_000_000, false);
        for n in keys {
            let key = key(n);
            txn.lock(&key, LockMode::Exclusive, None).unwrap();
            if delete {
                txn.delete(&key).unwrap();
                self.rows.remove(&n);
            } else {
                txn.put(&key, Value::whole(&[7; 40])).unwrap();
                self.rows.insert(n);
            }
        }
        txn.commit().unwrap();
    }

    fn change(&mut self) {
        let start = self.rng.random_range(0..KEYS);
        let end = (start + self.rng.random_range(1..KEYS / 4)).min(KEYS);
        match self.rng.random_range(0..10) {
            0..5 => self.write(start..end, false),
            5..7 => {
                let step = self.rng.random_range(1..7);
                self.write((start..end).step_by(step), false);
            }
            7 => {
                let step = self.rng.random_range(3..9);
                self.write((start..end).step_by(step), true);
            }
            8 => self.db.flush().unwrap(),
            _ => drop(self.db.compact_once().unwrap()),
        }
    }

    fn check(&mut self, factor: f64) {
        for _ in 0..60 {
            let start = self.rng.random_range(0..KEYS);
            let len = 1 << self.rng.random_range(0..13);
            let end = start + self.rng.random_range(0..len);
            let range = ScanRange {
                lower: key(start),
                upper: Some(key(end)),
            };
            let exact = self.rows.range(start..end).count() as u64;
            let point = self.db.context().views.latest();
            let found = estimate_rows(&point, &range).unwrap();
            let what = format!("seed {}: {found} for {exact}, {start}..{end}", self.seed);
            if exact <= EXACT_ROWS {
                assert_eq!(found, exact, "{what}");
            } else {
                let ratio = found as f64 / exact as f64;
                assert!((1.0 / factor..factor).contains(&ratio), "{what}");
            }
        }
    }
}

#[test]
fn estimates_are_exact_for_few_rows_and_near_for_many() {
    for seed in 0..12 {
        let mut world = World::new(seed);
        for _ in 0..8 {
            for _ in 0..6 {
                world.change();
            }
            // Versions lie in patches here, and four places of a range stand for the rest.
            world.check(4.0);
        }
        world.db.flush().unwrap();
        world.db.compact_all().unwrap();
        world.check(1.5);
    }
}

/// A queue: all its rows but the newest are deleted.
#[test]
fn deletions_in_great_number_are_not_walked_through() {
    let mut world = World::new(1);
    world.write(0..KEYS, false);
    world.db.flush().unwrap();
    world.write(0..KEYS - 10, true);
    let whole = ScanRange {
        lower: key(0),
        upper: Some(key(KEYS)),
    };
    let point = world.db.context().views.latest();
    let found = estimate_rows(&point, &whole).unwrap();
    assert!((1..200).contains(&found), "{found}");
    world.db.flush().unwrap();
    world.db.compact_all().unwrap();
    let point = world.db.context().views.latest();
    assert_eq!(estimate_rows(&point, &whole).unwrap(), 10);
}
