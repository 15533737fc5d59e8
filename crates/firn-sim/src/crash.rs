//! Runs of a world with crashes, and without.

use crate::ensure;
use crate::failure::Failure;
use crate::world::{Stats, StepEnd, World};
use firn::base::options::CommitDurability;

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
