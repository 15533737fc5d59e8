//! Runs of a world with crashes, and without.

use crate::ensure;
use crate::failure::Failure;
use crate::world::{Stats, StepEnd, World};
use firn::base::ErrorKind;
use firn::base::options::CommitDurability;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// The commit durability of a seed: mostly `Sync`.
fn mode_of(seed: u64) -> CommitDurability {
    match seed % 5 {
        3 => CommitDurability::Write,
        4 => CommitDurability::Lazy,
        _ => CommitDurability::Sync,
    }
}

/// Turns a stop without a crash into a failure.
pub(crate) fn failure_of(stop: StepEnd) -> Failure {
    match stop {
        StepEnd::Failed(failure) => failure,
        StepEnd::Engine(error) => Failure::new(format!("a call failed: {error}")),
    }
}

/// If the environment of the world died during the work that ended with `stopped`, crashes the
/// world, recovers it, and returns true. If the environment lives, returns false, or the error of
/// the work. A [`Failure`] of the work is returned in both cases. `during` is passed to
/// [`World::crash`].
fn survive(world: &mut World, stopped: Result<(), StepEnd>, during: bool) -> Result<bool, StepEnd> {
    if let Err(StepEnd::Failed(failure)) = stopped {
        return Err(failure.into());
    }
    if !world.env().is_dead() {
        return stopped.map(|()| false);
    }
    let end = world.random_end();
    world.crash(end, during)?;
    Ok(true)
}

/// Runs random work for `steps` steps, with clean restarts and without crashes.
///
/// # Errors
/// A [`Failure`] that describes the difference from the model, or the call that failed.
pub fn model_run(seed: u64, steps: usize) -> Result<Stats, Failure> {
    let mut world = World::new(seed, mode_of(seed));
    let run = |world: &mut World| {
        world.recover()?;
        world.steps(steps)?;
        world.check_latest()?;
        world.reopen()
    };
    let done = run(&mut world).map_err(failure_of);
    done.map(|()| world.stats())
        .map_err(|failure| failure.within(format_args!("model seed {seed}")))
}

/// Runs random work with several crashes, at random syncs or between calls.
///
/// # Errors
/// A [`Failure`] that describes the lost or wrong data, or the call that failed.
pub fn crash_run(seed: u64) -> Result<Stats, Failure> {
    let mut world = World::new(seed, mode_of(seed));
    let run = |world: &mut World| {
        let generations = 2 + seed % 3;
        let mut opened = false;
        for generation in 0..generations {
            world.crash_at_sync(1 + (seed * 31 + generation * 17) % 150);
            let work = match opened {
                false => world.recover().and_then(|()| world.steps(300)),
                true => world.steps(300),
            };
            opened = true;
            if !survive(world, work, true)? {
                let end = world.random_end();
                world.crash(end, true)?;
            }
        }
        world.steps(60)?;
        world.check_latest()?;
        world.reopen()
    };
    let done = run(&mut world).map_err(failure_of);
    done.map(|()| world.stats())
        .map_err(|failure| failure.within(format_args!("crash seed {seed}")))
}

/// Runs random work with several crashes, while files move to and from an object store whose
/// requests are slow, fail, or are executed without an answer, twice or late.
///
/// # Errors
/// A [`Failure`] that describes the lost or wrong data, the lost object or the one left over, or
/// the call that failed.
pub fn cold_files_run(seed: u64) -> Result<Stats, Failure> {
    let mut world = World::with_store(seed, mode_of(seed));
    let run = |world: &mut World| {
        let mut opened = false;
        for generation in 0..2 + seed % 4 {
            world.crash_at_sync(1 + (seed * 29 + generation * 13) % 200);
            let work = match opened {
                false => world.recover().and_then(|()| world.steps(300)),
                true => world.steps(300),
            };
            opened = true;
            if !survive(world, work, true)? {
                let end = world.random_end();
                world.crash(end, true)?;
            }
            world.check_objects()?;
        }
        world.steps(60)?;
        world.check_latest()?;
        world.reopen()?;
        world.check_swept()?;
        world.check_latest()
    };
    let done = run(&mut world).map_err(failure_of);
    done.map(|()| world.stats())
        .map_err(|failure| failure.within(format_args!("cold seed {seed}")))
}

/// Runs random work on a disk that becomes full. The environment dies at random syncs and changes
/// of names, several times, also during the opens, while the disk stays full or nearly full. At the
/// end there is room again.
///
/// # Errors
/// A [`Failure`] that describes the lost or wrong data, the open that failed, or the call that
/// failed for another reason than want of room.
pub fn full_disk_run(seed: u64) -> Result<Stats, Failure> {
    let mut rng = StdRng::seed_from_u64(seed ^ 0xf111);
    let mut world = World::new(seed, mode_of(seed));
    let mut run = |world: &mut World| {
        world.die_at_names();
        world.may_lack_log();
        world.recover()?;
        world.steps(rng.random_range(0..200))?;
        world.env().fill_at(rng.random_range(1..40));
        for _ in 0..2 + seed % 4 {
            world.expect_strays();
            if rng.random_ratio(1, 4) {
                world.lose_log_reserve()?;
            }
            let after = rng.random_range(1..100);
            match rng.random() {
                true => world.crash_at_sync(after),
                false => world.crash_at_name_change(after),
            }
            let steps = rng.random_range(0..200);
            let work = (0..steps).try_for_each(|_| step_on_full_disk(world));
            if !survive(world, work, true)? {
                let end = world.random_end();
                world.crash(end, true)?;
            }
            match rng.random_range(0..4) {
                0 => world.env().make_room(rng.random_range(0..600) << 10),
                1 => world.env().fill(),
                _ => {}
            }
        }
        world.env().unfill();
        world.db().recheck_full_disk();
        world.check_latest()?;
        ensure!(
            world.accepts_writes()?,
            "writes are refused though there is room"
        );
        world.steps(100)?;
        let end = world.random_end();
        world.crash(end, true)?;
        world.steps(60)?;
        world.check_latest()?;
        world.reopen()
    };
    let done = run(&mut world).map_err(failure_of);
    done.map(|()| world.stats())
        .map_err(|failure| failure.within(format_args!("full disk seed {seed}")))
}

/// Takes one step, which a full disk may refuse.
fn step_on_full_disk(world: &mut World) -> Result<(), StepEnd> {
    match world.steps(1) {
        Err(StepEnd::Engine(error)) if *error.kind() == ErrorKind::NoSpace => {
            ensure!(world.is_open(), "the open needs room: {error}");
            world.end_sessions();
            world.expect_strays();
            Ok(())
        }
        done => done,
    }
}

/// Runs one workload of `steps` steps once for each of its syncs; the environment dies at that
/// sync, by a power cut or a kill.
///
/// # Errors
/// A [`Failure`] that describes the lost or wrong data, or the call that failed, with the number of
/// the sync.
pub fn every_sync_run(seed: u64, steps: usize) -> Result<Stats, Failure> {
    let mut stats = Stats::default();
    let mut dry = World::new(seed, mode_of(seed));
    let done = dry.recover().and_then(|()| dry.steps(steps));
    // When the workload closes and opens the database, the environment stays the same. So this
    // number counts the syncs of the whole workload.
    let syncs = dry.env().sync_points();
    done.map_err(failure_of)
        .map_err(|failure| failure.within(format_args!("seed {seed}, dry run")))?;
    for n in 1..=syncs {
        let mut world = World::new(seed, mode_of(seed));
        let run = |world: &mut World| {
            world.crash_at_sync(n);
            let work = world.recover().and_then(|()| world.steps(steps));
            let crashed = survive(world, work, false)?;
            ensure!(crashed, "the run is not the dry run again");
            world.steps(20)?;
            let end = world.random_end();
            world.crash(end, false)
        };
        run(&mut world)
            .map_err(failure_of)
            .map_err(|failure| failure.within(format_args!("seed {seed}, sync {n} of {syncs}")))?;
        stats.add(&world.stats());
    }
    Ok(stats)
}
