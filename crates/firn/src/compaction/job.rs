//! Executes a compaction.
//!
//! The main loop merges the inputs. At each position it first tries to copy a whole stored block
//! (`copy_block`), which is possible if no other input has a key within the block and the drop rule
//! keeps all of its entries. Otherwise it decides on the next entry alone. The splitter ends output
//! files when they are large enough, preferably at boundaries of the next level.
//!
//! At the end, the number of entries read is compared with the number in the manifest. If the job
//! has read fewer entries than its inputs have, it fails instead of losing rows. A failed job
//! removes its outputs. The inputs stay in the tree until the caller applies the edit, so a crash
//! at any point loses nothing.

use super::block_reuse::copy_block;
use super::drop_rule::{DropDecision, DropRule, RetiredIndexes, Snapshots};
use super::input_files::{recipe_offers, source_of};
use super::job_stats::{JobStats, lost};
use super::level_targets::LevelTargets;
use super::output_files::{JobContext, Outputs};
use super::running_jobs::Job;
use super::splitter::Splitter;
use crate::base::{BlockResidence, InternalIterator, InternalKey, Result, Value, check_stopping};
use crate::iter::MergeIter;
use crate::version::{Edit, LAST_LEVEL, Run, Version};
use std::sync::atomic::AtomicBool;

/// Number of entries between two checks of the cancel flag and of the I/O limit.
const PACE: u64 = 1024;

/// Executes `job`, which was picked from `version`. Merges its inputs, writes the entries that the
/// drop rule keeps into synced files of the output level, and returns the edit that replaces the
/// inputs by these files. The caller applies the edit. Jobs that only move or drop files do no I/O.
///
/// The caller must copy `snapshots` and `retired` after it has picked the job. Setting `cancel`
/// makes the job fail early.
///
/// # Errors
/// `Corruption`, which names the damaged file; `Io`, `NoSpace`; `Interrupted` if canceled;
/// `ShutDown` if the number of entries read differs from the manifest's, or from the number written
/// plus the number dropped (a bug); those of [`DropRule::decide`]. A failed job removes its outputs
/// and changes nothing.
pub fn run_job(
    ctx: JobContext<'_>,
    version: &Version,
    job: &Job,
    snapshots: &Snapshots,
    retired: &RetiredIndexes,
    cancel: &AtomicBool,
) -> Result<(Edit, JobStats)> {
    if let Some(edit) = job.edit_without_output() {
        return Ok((edit, JobStats::default()));
    }
    let mut stats = JobStats {
        read_bytes: job.size(),
        ..JobStats::default()
    };
    let into_last = usize::from(job.output_level) == LAST_LEVEL;
    let mut rule = DropRule::new(snapshots, retired, into_last);
    let mut below = LevelsBelow::new(version, job.output_level);
    let boundaries = boundaries(version, job);
    let level_targets = LevelTargets::of(version, ctx.options.base_level_size);
    let file_size = level_targets.file_size(job.output_level, ctx.options.target_file_size);
    let splitter =
        Splitter::new(file_size, boundaries).with_cuts(version.edges(job.output_level).to_vec());
    let expected: u64 = job.files().map(|(_, f)| f.entries).sum();
    let offers = recipe_offers(job)?;
    let mut outputs = Outputs::new(ctx, job.output_level, splitter)
        .with_recipe_offers(offers)
        .with_input(job.size(), if into_last { expected } else { 0 });
    let mut source = MergeIter::new(job.inputs.iter().map(source_of).collect());
    // A job into L0 does not know what the older runs there hold.
    let mut below = |user_key: &[u8]| job.output_level > 0 && below.is_empty(user_key);
    // Bytes charged to the rate limiter so far. While the job runs, each entry is charged its share
    // of `read_bytes` when it is read, and the same again when it is written. When the job ends, it
    // is charged those bytes that it has really read and written beyond these shares.
    let mut taken = 0;
    let pace = |stats: &JobStats| {
        check_stopping(cancel)?;
        let moved = u128::from(stats.entries_in + stats.entries_out);
        let due = (moved * u128::from(stats.read_bytes) / u128::from(expected.max(1))) as u64;
        ctx.limiter.take(due.saturating_sub(taken), cancel)?;
        taken = taken.max(due);
        Ok(())
    };
    let mut paced = Paced::new(pace);
    let mut on = source.seek_to_first()?;
    while on {
        paced.tick(&stats)?;
        outputs.has_read(stats.entries_in);
        let copied = match ctx.options.block_reuse {
            true => copy_block(&mut source, &mut rule, &mut outputs, &mut stats)?,
            false => None,
        };
        on = match copied {
            Some(on) => on,
            None => {
                let keep =
                    |key: InternalKey<'_>, value: Value<'_>, from| outputs.add(key, value, from);
                step(&mut source, &mut rule, &mut below, &mut stats, keep)?
            }
        };
    }
    if stats.entries_in != expected {
        return Err(lost(&format!("{stats:?}, inputs hold {expected}")));
    }
    let (files, written) = outputs.finish(&mut stats)?;
    stats.finish(written, &files)?;
    let moved = stats.read_bytes + stats.written_bytes;
    ctx.limiter.owe(moved.saturating_sub(taken));
    Ok((job.edit(files), stats))
}

/// Calls `keep` for each entry of `source` that `rule` keeps, and counts all entries of `source` in
/// `stats`. The last argument of `keep` says where the block of the entry was kept. `pace` is
/// called every [`PACE`] entries; it may sleep, and its error ends the loop.
pub(super) fn filter(
    source: &mut dyn InternalIterator,
    rule: &mut DropRule<'_>,
    mut nothing_below: impl FnMut(&[u8]) -> bool,
    pace: impl FnMut(&JobStats) -> Result<()>,
    stats: &mut JobStats,
    mut keep: impl FnMut(InternalKey<'_>, Value<'_>, BlockResidence) -> Result<()>,
) -> Result<()> {
    let mut paced = Paced::new(pace);
    let mut on = source.seek_to_first()?;
    while on {
        paced.tick(stats)?;
        on = step(source, rule, &mut nothing_below, stats, &mut keep)?;
    }
    Ok(())
}

/// Asks `rule` whether to keep the entry under `source`, calls `keep` for it if so, and moves
/// `source` to the next entry. Returns whether there is one.
fn step<S: InternalIterator + ?Sized>(
    source: &mut S,
    rule: &mut DropRule<'_>,
    nothing_below: impl FnMut(&[u8]) -> bool,
    stats: &mut JobStats,
    mut keep: impl FnMut(InternalKey<'_>, Value<'_>, BlockResidence) -> Result<()>,
) -> Result<bool> {
    let key = source.key();
    let verdict = rule.decide(key, nothing_below)?;
    stats.count(verdict);
    if let DropDecision::Keep(seqno) = verdict {
        let from = source.residence();
        keep(InternalKey { seqno, ..key }, source.value(), from)?;
    }
    source.next()
}

/// Calls the function `pace` at the start and after every [`PACE`] entries.
struct Paced<F> {
    pace: F,
    due: u64,
}

impl<F: FnMut(&JobStats) -> Result<()>> Paced<F> {
    fn new(pace: F) -> Self {
        Self { pace, due: 0 }
    }

    #[inline]
    fn tick(&mut self, stats: &JobStats) -> Result<()> {
        if stats.entries_in >= self.due {
            self.due = stats.entries_in + PACE;
            (self.pace)(stats)?;
        }
        Ok(())
    }
}

/// First keys of files in the level below the output level of `job`: all within the job's key
/// range, and the first one beyond it.
fn boundaries(version: &Version, job: &Job) -> Vec<Vec<u8>> {
    let Some(next) = version.levels.get(usize::from(job.output_level)) else {
        return Vec::new();
    };
    let smallest = job.files().map(|(_, f)| &f.smallest).min();
    let largest = job.files().map(|(_, f)| &f.largest).max();
    let Some((smallest, largest)) = smallest.zip(largest) else {
        return Vec::new();
    };
    let from = next.files.partition_point(|f| f.smallest < *smallest);
    let to = next.files.partition_point(|f| f.smallest <= *largest) + 1;
    let files = next.files.range(from..to.min(next.files.len()));
    files.iter().map(|f| f.smallest.clone()).collect()
}

/// Says whether a file in a level below the output level may hold a user key. The keys that it is
/// asked for must ascend.
pub(super) struct LevelsBelow<'a> {
    /// Each level below the output level, with the position of its first file that ends at or after
    /// the key asked for last.
    levels: Vec<(&'a Run, usize)>,
}

impl<'a> LevelsBelow<'a> {
    pub(super) fn new(version: &'a Version, output_level: u8) -> Self {
        let levels = version.levels.iter().skip(usize::from(output_level));
        Self {
            levels: levels.map(|run| (&**run, 0)).collect(),
        }
    }

    pub(super) fn is_empty(&mut self, user_key: &[u8]) -> bool {
        self.levels.iter_mut().all(|(run, at)| {
            if run
                .files
                .get(*at)
                .is_some_and(|f| f.largest.as_slice() < user_key)
            {
                *at += 1;
                // Try the next file first: as the keys ascend, it mostly is the right one. For the
                // first key, and after a jump over several files, search for it.
                if run
                    .files
                    .get(*at)
                    .is_some_and(|f| f.largest.as_slice() < user_key)
                {
                    *at = run
                        .files
                        .partition_point(|f| f.largest.as_slice() < user_key);
                }
            }
            run.files
                .get(*at)
                .is_none_or(|f| f.smallest.as_slice() > user_key)
        })
    }
}

#[cfg(test)]
mod tests;
