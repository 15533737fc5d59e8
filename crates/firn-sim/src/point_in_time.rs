//! Runs of point-in-time recovery ([`crate::archive_recovery`]).

use crate::crash::failure_of;
use crate::ensure;
use crate::failure::Failure;
use crate::world::{Stats, World};
use firn::base::options::CommitDurability;

/// Runs random work with an archived log, and with crashes; at times, recovers a backup to a noted
/// state.
///
/// # Errors
/// A [`Failure`] if the recovered database differs from the noted state, if a read differs from the
/// model, or if a call fails.
pub fn point_run(seed: u64) -> std::result::Result<Stats, Failure> {
    let mode = match seed % 4 {
        3 => CommitDurability::Lazy,
        2 => CommitDurability::Write,
        _ => CommitDurability::Sync,
    };
    let mut world = World::new(seed, mode);
    world.archive_log(seed.is_multiple_of(3));
    let run = |world: &mut World| {
        world.recover()?;
        for life in 0..3 {
            for _ in 0..8 {
                world.steps(40)?;
                world.point_step()?;
            }
            world.check_point()?;
            let end = world.random_end();
            world.crash(end, life == 1)?;
        }
        world.check_point()
    };
    let done = run(&mut world).map_err(failure_of);
    done.and_then(|()| {
        ensure!(world.stats().points > 0, "no point was recovered");
        Ok(world.stats())
    })
    .map_err(|failure| failure.within(format_args!("point seed {seed}")))
}
