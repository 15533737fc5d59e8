//! From memtables to a new L0 run.

use super::cuts::Cuts;
use super::drop_rule::{DropRule, Retired, Snapshots};
use super::job::{JobStats, filter};
use super::output::{JobContext, Outputs};
use super::shape::Shape;
use super::splitter::Splitter;
use crate::base::{InternalIterator, InternalKey, Result, Value};
use crate::version::FileMeta;

/// Writes everything that `source` (one frozen memtable, or several merged) gives, save what no
/// read can see any more, into synced files of L0: sorted, not overlapping, cut where earlier runs
/// are and at index boundaries, so that disjoint ranges go their own way from here on.
///
/// The caller adds the files to L0 as one run, with a number taken in the order of the memtables.
/// There may be no file at all. Deletions stay: older data may be anywhere below.
///
/// # Errors
/// Those of `source` and of the files. Nothing is left behind then.
pub fn flush(
    ctx: JobContext<'_>,
    source: &mut dyn InternalIterator,
    snapshots: &Snapshots,
    retired: &Retired,
) -> Result<(Vec<FileMeta>, JobStats)> {
    let version = ctx.versions.current();
    let shape = Shape::of(&version, ctx.options.base_level_size);
    let file_size = shape.file_size(0, ctx.options.target_file_size);
    let memtable = ctx.options.live.freeze_at();
    let splitter = match ctx.in_reserve {
        true => Splitter::new(u64::MAX, Vec::new()),
        false => Cuts::of(&version, memtable, file_size).splitter(file_size),
    };
    let mut outputs = Outputs::new(ctx, 0, splitter);
    let mut rule = DropRule::new(snapshots, retired, false);
    let mut stats = JobStats::default();
    let keep = |key: InternalKey<'_>, value: Value<'_>, cached| outputs.add(key, value, cached);
    filter(source, &mut rule, |_| false, |_| Ok(()), &mut stats, keep)?;
    let (files, written) = outputs.finish()?;
    stats.finish(written, &files)?;
    ctx.limiter.owe(written);
    Ok((files, stats))
}

#[cfg(test)]
mod tests;
