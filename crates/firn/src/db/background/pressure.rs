//! How far background work is behind, as the gate before the commit pipeline wants to know it.

use crate::base::options::Options;
use crate::compaction::{Shape, l0_depth};
use crate::read::View;
use crate::version::{LAST_LEVEL, Version};
use crate::write::Pressure;
use std::sync::atomic::Ordering;

/// Bytes above the last level, as a share of it, at which writers get the drain's rate. With garbage
/// of the same size the tree is then a fifth larger than it has to be.
const SPACE_SHARE: f64 = 0.2;

/// Bytes to rewrite that are nothing to worry about; with a sixteenfold the pressure is 2.
const DEBT_MIN: f64 = (2u64 << 30) as f64;
const DEBT_RANGE: f64 = 16.0;

/// Bytes rewritten below for each byte that a level gives away.
const REWRITTEN: f64 = 10.0;

/// The pressure of a view.
pub(super) fn pressure(view: &View, options: &Options) -> Pressure {
    let version = &view.version;
    let memtable_size = options.live.memtable_size.load(Ordering::Relaxed);
    let memory = memtable_size as f64 * (options.frozen_memtables_max + 1) as f64;
    Pressure {
        memtables: 2.0 * view.frozen.len() as f64 / options.frozen_memtables_max as f64,
        l0: 2.0 * l0_depth(version) as f64 / options.l0_stop_runs as f64,
        debt: debt(version, options),
        space: space(version, memory),
    }
}

fn debt(version: &Version, options: &Options) -> f64 {
    let shape = Shape::of(version, options.base_level_size);
    let excess = |level: u8| {
        let target = shape.targets[usize::from(level)];
        version.level_size(level).saturating_sub(target)
    };
    let levels = shape.base..LAST_LEVEL as u8;
    let bytes = levels.map(excess).sum::<u64>() as f64 * REWRITTEN;
    let soft = DEBT_MIN.max(version.level_size(LAST_LEVEL as u8) as f64);
    2.0 * (bytes.max(1.0) / soft).ln().max(0.0) / DEBT_RANGE.ln()
}

/// What fits in the memtables is not counted: a small tree may be all garbage for a moment.
fn space(version: &Version, memory: f64) -> f64 {
    let upper: u64 = (1..LAST_LEVEL as u8).map(|l| version.level_size(l)).sum();
    let last = version.level_size(LAST_LEVEL as u8) as f64;
    (upper as f64 - memory).max(0.0) / (SPACE_SHARE * last.max(memory))
}
