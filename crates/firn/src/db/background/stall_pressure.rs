//! Computes the pressure for the write stall: how far flushes and compactions lag behind.

use crate::base::options::Options;
use crate::compaction::{Backlog, SpaceTracker};
use crate::read::SuperVersion;
use crate::version::Flushable;
use crate::write::Pressure;

/// The pressure in `super_version`.
pub(super) fn pressure(
    super_version: &SuperVersion,
    options: &Options,
    space_tracker: &SpaceTracker,
) -> Pressure {
    let memory = options.mutable.freeze_at() * options.frozen_memtables_max as u64;
    let backlog = Backlog::of(&super_version.version, options, memory, space_tracker);
    // An ingested run that is not in the tree yet costs reads as much as an L0 run, so it counts as
    // one.
    let queued = super_version
        .frozen
        .iter()
        .filter_map(Flushable::run)
        .count();
    let memtables = super_version.frozen.len() - queued;
    Pressure {
        memtables: 2.0 * memtables as f64 / options.frozen_memtables_max as f64,
        l0: backlog.l0 + 2.0 * queued as f64 / options.l0_stop_runs as f64,
        debt: backlog.debt,
        space: backlog.space,
    }
}

#[cfg(test)]
mod tests;
