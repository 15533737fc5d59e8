//! A process that dies, or loses its power, at each sync, each change of a name and each request.

use crate::model::{ROWS as ALL_ROWS, random_rows, seeds};
use crate::world::{Death, MINUTE_US, MortalStore, World};
use firn::base::options::Tier;
use firn_objects::mem::MemObjects;
use firn_objects::{ObjectStore, SplitMix64};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

const ROWS: u64 = 400;

/// Where the process dies.
#[derive(Debug, Clone, Copy)]
enum End {
    Sync(u64),
    Name(u64),
    Before(u64),
    After(u64),
}

/// A database of which half of the files are in the store.
fn prepared(seed: u64) -> World {
    let mut world = World::new(seed);
    world.open();
    world.load(0..ROWS, 1);
    world.set_tier(Tier::Cold);
    let files = world.places().0;
    for _ in 0..files / 2 {
        assert!(world.db().tier_step().unwrap());
    }
    world.close();
    world
}

/// Moves files to and fro, replaces them, deletes objects. Returns whether the process has lived.
fn work(world: &mut World) -> bool {
    let done = catch_unwind(AssertUnwindSafe(|| -> firn::base::Result<()> {
        world.set_tier(Tier::Cold);
        while world.db().tier_step()? {}
        let rows: Vec<_> = (0..100).map(|n| (n, Some(2))).collect();
        world.try_write(&rows)?;
        world.db().compact_all()?;
        world.set_tier(Tier::Local);
        while world.db().tier_step()? {}
        world.pass(11 * MINUTE_US);
        world.db().tier_step()?;
        world.pass(61 * MINUTE_US);
        world.db().tier_step()?;
        world.set_tier(Tier::Cold);
        while world.db().tier_step()? {}
        Ok(())
    }));
    match done {
        Ok(Ok(())) => true,
        Ok(Err(error)) => {
            assert!(world.env.is_dead(), "{error}");
            false
        }
        Err(panic) => {
            assert!(panic.is::<Death>(), "a bug");
            false
        }
    }
}

/// The rows that a commit may have written that was under way when the process died.
fn settle(world: &mut World) {
    for n in 0..100 {
        let found = world.read(n).unwrap();
        let known = world.rows.get(&n).copied();
        assert!(found == known || found == Some(2), "row {n}: {found:?}");
        world.rows.insert(n, found.unwrap());
    }
    let first = world.rows[&0];
    assert!((0..100).all(|n| world.rows[&n] == first), "half a commit");
}

/// Returns whether the process has died.
fn run(seed: u64, end: End) -> bool {
    let mut world = prepared(seed);
    let store: Arc<dyn ObjectStore> = match end {
        End::Before(n) => MortalStore::new(&world.objects, n, false),
        End::After(n) => MortalStore::new(&world.objects, n, true),
        _ => Arc::<MemObjects>::clone(&world.objects),
    };
    world.try_open(store).unwrap();
    match end {
        End::Sync(n) => world.env.crash_at_sync(world.env.sync_points() + n + 1),
        End::Name(n) => world
            .env
            .crash_at_name_change(world.env.name_changes() + n + 1),
        _ => {}
    }
    let lived = work(&mut world);
    world.crash(seed);
    world.open();
    world.check_places();
    settle(&mut world);
    world.check_rows(ROWS);
    // The work that was cut short is done.
    world.set_tier(Tier::Cold);
    world.pass(61 * MINUTE_US);
    world.move_all();
    world.pass(61 * MINUTE_US);
    world.move_all();
    world.check_places();
    world.check_rows(ROWS);
    world.check_nothing_left();
    world.set_tier(Tier::Local);
    world.move_all();
    world.check_places();
    world.check_rows(ROWS);
    world.check_nothing_left();
    !lived
}

fn at_each(end: impl Fn(u64) -> End) -> u64 {
    let step = if seeds(0) > 0 { 1 } else { 3 };
    let mut deaths = 0;
    for n in (0..).step_by(step) {
        println!("{:?}", end(n));
        if !run(n, end(n)) {
            break;
        }
        deaths += 1;
    }
    println!("{deaths} deaths");
    deaths
}

#[test]
fn a_crash_at_a_sync_loses_no_file() {
    assert!(at_each(End::Sync) > 10);
}

#[test]
fn a_crash_at_a_change_of_a_name_loses_no_file() {
    assert!(at_each(End::Name) > 10);
}

#[test]
fn a_death_before_a_request_loses_no_file() {
    assert!(at_each(End::Before) > 10);
}

#[test]
fn a_death_after_a_request_loses_no_file() {
    assert!(at_each(End::After) > 10);
}

/// Crashes at random places of random work.
#[test]
fn random_crashes_lose_nothing() {
    for seed in 0..seeds(20) {
        println!("seed {seed}");
        let random = &mut SplitMix64::new(seed);
        let mut world = World::new(seed);
        world.open();
        for _ in 0..6 {
            let after = 1 + random.below(120);
            world.env.crash_at_sync(world.env.sync_points() + after);
            // The commit that the crash has cut short, which may be there or not.
            let mut cut_short = Vec::new();
            for _ in 0..40 {
                let rows = random_rows(random);
                let done = match random.below(6) {
                    0..=1 => world.try_write(&rows).inspect_err(|_| cut_short = rows),
                    2 => world.db().compact_all(),
                    3 => {
                        world.set_tier(match random.below(2) {
                            0 => Tier::Local,
                            _ => Tier::Cold,
                        });
                        Ok(())
                    }
                    4 => {
                        world.pass(random.below(70) * MINUTE_US);
                        Ok(())
                    }
                    _ => match world.db().tier_step() {
                        // The owner before has died, and changes wait.
                        Err(error) if error.is_unreachable() => Ok(()),
                        done => done.map(|_| ()),
                    },
                };
                if done.is_err() {
                    assert!(world.env.is_dead());
                    break;
                }
            }
            world.crash(seed);
            world.open();
            world.check_places();
            let found = (0..ALL_ROWS).filter_map(|n| Some((n, world.read(n).unwrap()?)));
            let found: BTreeMap<u64, u64> = found.collect();
            if found != world.rows {
                for (n, value) in cut_short {
                    match value {
                        Some(value) => world.rows.insert(n, value),
                        None => world.rows.remove(&n),
                    };
                }
                assert_eq!(found, world.rows);
            }
        }
        world.set_tier(Tier::Cold);
        world.pass(61 * MINUTE_US);
        world.move_all();
        world.check_rows(ALL_ROWS);
        world.check_nothing_left();
    }
}
