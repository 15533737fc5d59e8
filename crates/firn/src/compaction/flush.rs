//! Writes frozen memtables as a new L0 run.

use super::drop_rule::{DropRule, RetiredIndexes, Snapshots};
use super::flush_split::FlushSplits;
use super::job::filter;
use super::job_stats::JobStats;
use super::level_targets::LevelTargets;
use super::output_files::{JobContext, Outputs};
use super::splitter::Splitter;
use crate::base::{InternalIterator, InternalKey, Result, Value, check_stopping};
use crate::version::FileMeta;
use std::sync::atomic::AtomicBool;

/// Writes entries of `source` (one frozen memtable, or several merged) into synced files for L0,
/// except for those that no read can see any more. The files are sorted and do not overlap. They
/// begin at the same keys as the files of earlier runs, and at the begin of an index, so that a
/// compaction can take the files of one key range and leave the others ([`FlushSplits`]).
///
/// Setting `cancel` makes the flush fail early: a stop does not wait for it, since the log has all
/// entries.
///
/// The caller adds the files to L0 as one run. It allocates run numbers in the order of the
/// memtables. There may be no file, if no entry stays. Deletions are kept, because older versions
/// of their keys may be anywhere below L0.
///
/// # Errors
/// Those of reading `source`; `Io` and `NoSpace` from writing the files; `Interrupted` if canceled;
/// those of [`DropRule::decide`]. A failed flush removes its files.
pub fn flush(
    ctx: JobContext<'_>,
    source: &mut dyn InternalIterator,
    snapshots: &Snapshots,
    retired: &RetiredIndexes,
    cancel: &AtomicBool,
) -> Result<(Vec<FileMeta>, JobStats)> {
    let version = ctx.versions.current();
    let level_targets = LevelTargets::of(&version, ctx.options.base_level_size);
    let file_size = level_targets.file_size(0, ctx.options.target_file_size);
    let memtable = ctx.options.mutable.freeze_at();
    let splitter = match ctx.in_reserve {
        true => Splitter::new(u64::MAX, Vec::new()),
        false => FlushSplits::of(&version, memtable, file_size).splitter(file_size),
    };
    let mut outputs = Outputs::new(ctx, 0, splitter);
    let mut rule = DropRule::new(snapshots, retired, false);
    let mut stats = JobStats::default();
    let keep = |key: InternalKey<'_>, value: Value<'_>, from| outputs.add(key, value, from);
    let pace = |_: &JobStats| check_stopping(cancel);
    filter(source, &mut rule, |_| false, pace, &mut stats, keep)?;
    let (files, written) = outputs.finish(&mut stats)?;
    stats.finish(written, &files)?;
    ctx.limiter.owe(written);
    Ok((files, stats))
}

#[cfg(test)]
mod tests;
