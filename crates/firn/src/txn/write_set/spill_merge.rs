//! Merges spilled runs, into fewer runs or for the commit.

use super::spill::{finish, heed, overlaps_no_file};
use super::spilled_runs::{SpilledRun, SpilledRunIter, SpilledRuns, positions};
use crate::base::{InternalIterator, Result};
use crate::ingest::{NewFiles, RunFactory, RunWriter};
use crate::iter::MergeIter;
use crate::sst::Density;
use crate::version::{FileHandle, FileMeta, Run};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// This many runs of a tier are merged into one run of the next tier.
pub(super) const FAN_IN: usize = 16;

/// Number of entries after which a merge checks the interrupt flag again.
const PACE: u64 = 1024;

/// The purpose of a merge.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MergePurpose {
    /// The merge makes fewer runs, and the transaction goes on: it keeps all versions of a key with
    /// their positions in the write set, because the transaction may still roll back to a
    /// savepoint.
    Fewer,
    /// The merge is for a commit: it keeps the newest version of each key, without its position in
    /// the write set, since no rollback to a savepoint can follow.
    Commit,
}

/// The files that a merge results in.
struct MergeResult {
    /// Ids of files of the merged runs that are reused unchanged.
    kept: HashSet<u64>,
    /// New files, which replace all other files of the merged runs.
    written: NewFiles,
}

/// A file and the position of its run in the list of merged runs.
struct FileOfRun<'a> {
    run: usize,
    file: &'a Arc<FileHandle>,
}

/// Merges `runs`, which must be ordered from the oldest to the newest. A file that overlaps no
/// other file is reused if [`stays`] allows it.
///
/// Example: the files a–c and m–p of one run and b–d and x–z of another make the groups {a–c, b–d},
/// {m–p} and {x–z}. The first group is rewritten, the files of the others are reused.
fn merge(
    ingest: &Arc<RunFactory>,
    runs: &[SpilledRun],
    dead: &Arc<super::rolled_back::RolledBackPositions>,
    aim: MergePurpose,
    interrupted: &AtomicBool,
) -> Result<MergeResult> {
    let mut placed: Vec<FileOfRun<'_>> = Vec::new();
    for (run, private) in runs.iter().enumerate() {
        let files = private.run.files.iter();
        placed.extend(files.map(|file| FileOfRun { run, file }));
    }
    placed.sort_by(|a, b| a.file.smallest.cmp(&b.file.smallest));
    let expected = placed.iter().map(|p| p.file.size).sum();
    let mut merging = Merging {
        ingest,
        dead,
        aim,
        interrupted,
        expected,
        writer: None,
        written: None,
    };
    let mut kept = HashSet::new();
    let mut rest = &placed[..];
    while let Some(first) = rest.first() {
        let mut largest = &first.file.largest;
        let mut len = 1;
        while let Some(next) = rest.get(len).filter(|p| p.file.smallest <= *largest) {
            largest = largest.max(&next.file.largest);
            len += 1;
        }
        let (group, others) = rest.split_at(len);
        if len == 1 && stays(first.file, dead, aim) {
            // End the current file: with later keys in it, it would overlap the file that is
            // reused.
            merging.end()?;
            kept.insert(first.file.file_id);
        } else {
            merging.group(group, runs.len(), largest)?;
        }
        rest = others;
    }
    merging.end()?;
    Ok(MergeResult {
        kept,
        written: merging.written.unwrap_or_else(|| ingest.no_files()),
    })
}

/// Whether a merge can keep a file that overlaps no other file, without rewriting it. A merge for a
/// commit can if none of the file's entries was replaced by a newer one or rolled back. A merge
/// into fewer runs can if at least one of the entries was not rolled back.
fn stays(
    file: &FileMeta,
    dead: &super::rolled_back::RolledBackPositions,
    aim: MergePurpose,
) -> bool {
    let (first, last) = positions(file);
    match aim {
        MergePurpose::Fewer => !dead.covers(first, last),
        MergePurpose::Commit => file.superseded == 0 && !dead.touches(first, last),
    }
}

/// A merge in progress.
struct Merging<'a> {
    ingest: &'a Arc<RunFactory>,
    dead: &'a Arc<super::rolled_back::RolledBackPositions>,
    aim: MergePurpose,
    interrupted: &'a AtomicBool,
    /// Estimated size of the output, in bytes.
    expected: u64,
    writer: Option<(Density, RunWriter)>,
    written: Option<NewFiles>,
}

impl Merging<'_> {
    /// Ends the current output file.
    fn end(&mut self) -> Result<()> {
        let writer = self.writer.take();
        finish(writer.map(|(_, writer)| writer), &mut self.written)
    }

    /// Merges the files in `group`, which belong to several of the merged runs. Their key ranges
    /// overlap in chains and form one range without gaps, which ends at the key `largest`. The
    /// files are ordered by their smallest key.
    fn group(&mut self, group: &[FileOfRun<'_>], runs: usize, largest: &[u8]) -> Result<()> {
        let smallest = &group[0].file.smallest;
        let dense =
            self.aim == MergePurpose::Commit && overlaps_no_file(self.ingest, smallest, largest);
        let density = if dense {
            Density::Dense
        } else {
            Density::Light
        };
        if self.writer.as_ref().is_none_or(|(now, _)| *now != density) {
            self.end()?;
            let mut writer = self.ingest.writer(density, self.expected);
            if self.aim == MergePurpose::Fewer {
                writer = writer.unsynced();
            }
            self.writer = Some((density, writer));
        }
        let mut by_run: Vec<Vec<Arc<FileHandle>>> = vec![Vec::new(); runs];
        for placed in group {
            by_run[placed.run].push(Arc::clone(placed.file));
        }
        let sources = by_run.into_iter().rev().filter(|files| !files.is_empty());
        let cursor = |files| SpilledRunIter::merging(&Arc::new(Run::new(0, files)), self.dead);
        let mut source = MergeIter::new(sources.map(cursor).collect());
        let (_, writer) = self.writer.as_mut().expect("set above");
        let mut last: Option<Vec<u8>> = None;
        let mut entries = 0u64;
        let mut on = source.seek_to_first()?;
        while on {
            if entries.is_multiple_of(PACE) {
                heed(self.interrupted)?;
            }
            entries += 1;
            let (key, value) = (source.key(), source.value());
            match self.aim {
                MergePurpose::Fewer => writer.add_version(key, value)?,
                MergePurpose::Commit if last.as_deref() == Some(key.user_key) => {}
                MergePurpose::Commit => {
                    let last = last.get_or_insert_default();
                    last.clear();
                    last.extend_from_slice(key.user_key);
                    writer.add(key.user_key, key.kind, value)?;
                }
            }
            on = source.next()?;
        }
        Ok(())
    }
}

impl SpilledRuns {
    /// While at least [`FAN_IN`] of the newest runs have the same tier, merges them into one run of
    /// the next tier.
    ///
    /// # Errors
    /// Those of the files: `NoSpace`, `Io`, `Corruption`, `Unsupported`. `Interrupted` once the
    /// flag is set. The runs of the failed merge stay as they were.
    pub(super) fn merge_if_many(
        &mut self,
        ingest: &Arc<RunFactory>,
        interrupted: &AtomicBool,
    ) -> Result<()> {
        loop {
            let Some(tier) = self.list.last().map(|run| run.tier) else {
                return Ok(());
            };
            let same = self.list.iter().rev().take_while(|run| run.tier == tier);
            let count = same.count();
            if count < FAN_IN {
                return Ok(());
            }
            let from = self.list.len() - count;
            let merged = merge(
                ingest,
                &self.list[from..],
                &self.dead,
                MergePurpose::Fewer,
                interrupted,
            )?;
            let mut handles = Vec::new();
            let mut files = merged.written;
            let source = ingest.versions().source();
            for meta in files.files() {
                handles.push(FileHandle::new(Arc::new(meta.clone()), Arc::clone(source)));
            }
            for mut run in self.list.drain(from..) {
                let kept = run.run.files.iter();
                handles.extend(
                    kept.filter(|file| merged.kept.contains(&file.file_id))
                        .cloned(),
                );
                files.append(
                    run.files
                        .split_off(|meta| merged.kept.contains(&meta.file_id)),
                );
            }
            if !handles.is_empty() {
                let run = SpilledRun::of_handles(files, handles, tier + 1);
                self.list.push(run);
            }
        }
    }

    /// Makes the files of a commit: the newest version of each key, in files that do not overlap.
    /// Their contents and names are synced. The runs stay as they are, so that the caller can try
    /// again after an error.
    ///
    /// # Errors
    /// Those of the files: `NoSpace`, `Io`, `Corruption`, `Unsupported`. `Interrupted` once the
    /// flag is set.
    pub(super) fn seal(
        &self,
        ingest: &Arc<RunFactory>,
        interrupted: &AtomicBool,
    ) -> Result<SealedWriteSet> {
        let merged = merge(
            ingest,
            &self.list,
            &self.dead,
            MergePurpose::Commit,
            interrupted,
        )?;
        let all = self.list.iter().flat_map(|run| run.files.files());
        let kept = all.filter(|meta| merged.kept.contains(&meta.file_id));
        let mut files: Vec<FileMeta> = kept.chain(merged.written.files()).cloned().collect();
        files.sort_by(|a, b| a.smallest.cmp(&b.smallest));
        // Spilled files are synced only here, because most of them are merged or removed before the
        // commit.
        for file_id in &merged.kept {
            heed(interrupted)?;
            ingest.sync_file(*file_id)?;
        }
        merged.written.sync()?;
        Ok(SealedWriteSet { files, merged })
    }

    /// Gives up the ownership of the files of `sealed`, because a log record names them.
    pub(super) fn release(&mut self, sealed: SealedWriteSet) {
        for run in &mut self.list {
            let kept = run
                .files
                .split_off(|meta| sealed.merged.kept.contains(&meta.file_id));
            kept.keep();
        }
        sealed.merged.written.keep();
    }
}

/// The files that the commit of a spilled set installs. A drop removes the files that the seal has
/// written, unless [`WriteSet::release`](super::WriteSet::release) was called.
pub struct SealedWriteSet {
    /// Ascending, without overlap.
    files: Vec<FileMeta>,
    merged: MergeResult,
}

impl SealedWriteSet {
    /// The files, ascending, without overlap.
    pub fn files(&self) -> &[FileMeta] {
        &self.files
    }
}
