//! Random work on a database with cold files, beside a model.

use crate::world::{MINUTE_US, World};
use firn::base::ErrorKind;
use firn::base::options::Tier;
use firn_objects::SplitMix64;
use firn_objects::mem::Faults;

pub const ROWS: u64 = 1500;

/// How many seeds a test runs: `FIRN_SEEDS`, or the number given.
pub fn seeds(usual: u64) -> u64 {
    let named = std::env::var("FIRN_SEEDS").ok();
    named.and_then(|named| named.parse().ok()).unwrap_or(usual)
}

pub fn random_rows(random: &mut SplitMix64) -> Vec<(u64, Option<u64>)> {
    let (first, count) = (random.below(ROWS), 1 + random.below(400));
    let step = 1 + random.below(4);
    let value = random.below(1000);
    let deletes = random.below(4) == 0;
    let keys = (0..count).map(|at| (first + at * step) % ROWS);
    let mut rows: Vec<_> = keys.map(|n| (n, (!deletes).then_some(value))).collect();
    rows.sort_unstable();
    rows.dedup_by_key(|(n, _)| *n);
    rows
}

/// Faults that end in time: with all requests lost, an upload in this thread would never end.
fn faults(random: &mut SplitMix64) -> Faults {
    match random.below(3) {
        0 => Faults::default(),
        // Damaged answers have a test of their own.
        _ => Faults {
            flip_read: 0,
            ..Faults::all(1 + random.below(60) as u32)
        },
    }
}

fn step(world: &mut World, random: &mut SplitMix64) {
    match random.below(16) {
        0..=2 => {
            let rows = random_rows(random);
            world.try_write(&rows).unwrap();
        }
        3 => world.db().flush().unwrap(),
        4 => {
            let _ = passing(world.db().compact_all());
        }
        5 => {
            let _ = passing(world.db().compact_once());
        }
        6..=9 => {
            for _ in 0..=random.below(12) {
                let _ = passing(world.db().tier_step());
            }
        }
        10 => world.set_tier(match random.below(2) {
            0 => Tier::Local,
            _ => Tier::Cold,
        }),
        11 => world.pass(random.below(70) * MINUTE_US),
        12 => world.objects.set_faults(faults(random)),
        13 => world.cold().set_cache_bytes(random.below(3) << 20),
        14 => {
            world.close();
            world.open();
        }
        _ => {
            for _ in 0..20 {
                let n = random.below(ROWS);
                if let Some(found) = passing(world.read(n)) {
                    assert_eq!(found, world.rows.get(&n).copied(), "row {n}");
                }
            }
        }
    }
}

/// A failure of the store passes; there is no other.
pub fn passing<T>(done: firn::base::Result<T>) -> Option<T> {
    match done {
        Ok(done) => Some(done),
        Err(error) => {
            assert_eq!(*error.kind(), ErrorKind::Unreachable, "{error}");
            None
        }
    }
}

#[test]
fn a_database_with_cold_files_is_as_its_model() {
    for seed in 0..seeds(30) {
        println!("seed {seed}");
        let random = &mut SplitMix64::new(seed);
        let mut world = World::new(seed);
        world.open();
        for _ in 0..120 {
            step(&mut world, random);
            world.check_places();
        }
        world.objects.set_faults(Faults::default());
        world.check_rows(ROWS);
        world.db().compact_all().unwrap();
        world.check_rows(ROWS);
        world.set_tier(Tier::Local);
        world.pass(61 * MINUTE_US);
        world.move_all();
        world.check_places();
        world.check_rows(ROWS);
        assert_eq!(world.places().1, 0);
        world.check_nothing_left();
    }
}
