//! The state of background work in numbers, as input of the policy of write stalls.

use crate::base::options::Options;
use crate::compaction::{Backlog, SpaceTracker};
use crate::memtable::Memtable;
use crate::read::SuperVersion;
use crate::version::Flushable;
use crate::write::StallInput;
use std::sync::Arc;

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
    let cut_short = |at: &usize| is_cut_short(frozen, *at, options);
    let cut_short = (0..frozen.len()).filter(cut_short).count();
    StallInput {
        frozen_memtables: frozen.len() - queued - cut_short,
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

/// Whether the flushable at place `at` of `frozen`, newest first, is a memtable with few entries
/// that a run above it has frozen. Such memtables do not press writers: their number is limited by
/// that of the runs, and their flushes, which mostly wait for syncs, do not show how many bytes
/// flushes store in a second.
pub(super) fn is_cut_short(frozen: &[Flushable], at: usize, options: &Options) -> bool {
    let few = options.mutable.freeze_at() / CUT_SHORT;
    let is_small = |memtable: &Arc<Memtable>| memtable.size_bytes() < few;
    let above = at.checked_sub(1).and_then(|above| frozen[above].run());
    above.is_some() && frozen[at].memtable().is_some_and(is_small)
}

/// A memtable has few entries if they take less than this share of a full one.
const CUT_SHORT: u64 = 16;

#[cfg(test)]
mod tests;
