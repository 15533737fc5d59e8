//! The state of background work in numbers, as input of the policy of write stalls.

use crate::base::options::Options;
use crate::compaction::{Backlog, SpaceTracker};
use crate::read::SuperVersion;
use crate::version::Flushable;
use crate::write::StallInput;

/// The numbers on which the delay of writers depends, computed from `super_version`. `frozen_room`
/// is the memory that frozen memtables may take, bytes.
pub(super) fn stall_input(
    super_version: &SuperVersion,
    options: &Options,
    space_tracker: &SpaceTracker,
    frozen_room: Option<u64>,
) -> StallInput {
    let backlog = Backlog::of(&super_version.version, options, space_tracker);
    let frozen = &super_version.frozen;
    // An ingested run that is not in the tree yet costs reads as much as an L0 run, so it counts as
    // one.
    let queued = frozen.iter().filter_map(Flushable::run).count();
    StallInput {
        frozen_memtables: frozen.len() - queued,
        frozen_memtables_max: options.frozen_memtables_max,
        l0_runs: backlog.l0_runs + queued,
        l0_stop_runs: options.l0_stop_runs,
        debt: backlog.debt,
        garbage: backlog.garbage,
        last_level: backlog.last_level,
        memtables_capacity: options.mutable.freeze_at() * options.frozen_memtables_max as u64,
        frozen_bytes: frozen.iter().map(|m| m.memory_bytes()).sum(),
        frozen_room,
    }
}

#[cfg(test)]
mod tests;
