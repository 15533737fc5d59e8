//! From memory to disk: spilling, and merging what was spilled.

use super::memory::InMemoryWrites;
use super::spilled_runs::{SpilledRun, SpilledRunIter, SpilledRuns, positions};
use crate::base::key::index_id_of;
use crate::base::{Error, ErrorKind, IndexId, InternalIterator, Result};
use crate::ingest::{Ingest, NewFiles, RunWriter};
use crate::iter::MergeIter;
use crate::sst::Density;
use crate::version::{FileHandle, FileMeta, Run};
use std::collections::HashSet;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// So many runs of a tier are merged into one of the next.
pub(super) const FAN_IN: usize = 16;

/// Entries between two questions whether to go on.
const PACE: u64 = 1024;

/// A part of a spill is worth the last level's codec from this size on, bytes before compression.
const DENSE_MIN: u64 = 1 << 20;

/// A part of this share of a spill begins a file: it would else hang together with the index before
/// it, and be merged with that.
const OWN_FILE_SHARE: u64 = 16;

/// Of a part in key order, so much may have been written out of order, in percent.
const DISORDER_MAX: u64 = 5;

/// How the memory's entries are to be written.
///
/// Entries that were written in key order, beyond all others that the set has of the index, and in
/// a range where the tree has nothing, are written like files of the last level: the commit
/// installs these files as they are. All other entries are merged later, and get the light codec.
pub(super) struct SpillPlan {
    parts: Vec<IndexSpill>,
}

impl SpillPlan {
    /// For `memory`, which is newer than `runs`.
    pub(super) fn new(ingest: &Ingest, memory: &InMemoryWrites, runs: &SpilledRuns) -> Self {
        Self {
            parts: parts(ingest, memory, runs),
        }
    }
}

/// The entries of one index in memory.
struct IndexSpill {
    index: Option<IndexId>,
    density: Density,
    bytes: u64,
}

/// Writes all of `memory` as a run, which nobody needs after a power cut: it is not synced.
///
/// `plan` is of the same memory.
pub(super) fn spill(
    ingest: &Arc<Ingest>,
    memory: &InMemoryWrites,
    plan: SpillPlan,
) -> Result<NewFiles> {
    let bytes: u64 = plan.parts.iter().map(|part| part.bytes).sum();
    let mut parts = plan.parts.into_iter().peekable();
    let (mut density, mut was_large) = (None, false);
    let mut writer: Option<RunWriter> = None;
    let mut files: Option<NewFiles> = None;
    for (key, versions) in memory.iter() {
        while let Some(part) = parts.next_if(|part| part.index <= index_id_of(key)) {
            let large = part.bytes * OWN_FILE_SHARE >= bytes;
            if density != Some(part.density) || large || was_large {
                end(writer.take(), &mut files)?;
                density = Some(part.density);
                writer = Some(ingest.writer(part.density, memory.bytes()).unsynced());
            }
            was_large = large;
        }
        let writer = writer.get_or_insert_with(|| ingest.writer(Density::Light, 0).unsynced());
        for version in versions.newest_first() {
            let key = crate::base::InternalKey::new(key, version.seqno(), version.kind);
            writer.add_version(key, version.value())?;
        }
    }
    end(writer, &mut files)?;
    Ok(files.unwrap_or_else(|| ingest.no_files()))
}

/// Ends `writer` and adds what it has written to `files`.
fn end(writer: Option<RunWriter>, files: &mut Option<NewFiles>) -> Result<()> {
    if let Some(writer) = writer {
        let written = writer.finish()?;
        match files {
            Some(files) => files.append(written),
            None => *files = Some(written),
        }
    }
    Ok(())
}

/// The indexes in memory, ascending, with the density of what is written of them.
fn parts(ingest: &Ingest, memory: &InMemoryWrites, runs: &SpilledRuns) -> Vec<IndexSpill> {
    struct IndexTotals<'a> {
        index: Option<IndexId>,
        smallest: &'a [u8],
        largest: &'a [u8],
        bytes: u64,
        keys: u64,
        disorder: u64,
        position: u64,
    }
    let mut seen: Vec<IndexTotals<'_>> = Vec::new();
    for (key, versions) in memory.iter() {
        let (index, position) = (index_id_of(key), versions.newest.position);
        if seen.last().is_none_or(|part| part.index != index) {
            seen.push(IndexTotals {
                index,
                smallest: key,
                largest: key,
                bytes: 0,
                keys: 0,
                disorder: 0,
                position: 0,
            });
        }
        let part = seen.last_mut().expect("just pushed");
        part.largest = key;
        part.bytes += (key.len() + versions.newest.value().len()) as u64;
        part.keys += 1;
        part.disorder += u64::from(position < part.position);
        part.position = position;
    }
    let density = |part: &IndexTotals<'_>| {
        let ordered = part.disorder * 100 <= part.keys * DISORDER_MAX;
        let beyond = || {
            let mut files = runs.list.iter().flat_map(|run| &run.run.files);
            files.all(|file| {
                let other = index_id_of(&file.largest) != part.index
                    && index_id_of(&file.smallest) != part.index;
                other || file.largest.as_slice() < part.smallest
            })
        };
        let dense = part.bytes >= DENSE_MIN
            && ordered
            && beyond()
            && is_new(ingest, part.smallest, part.largest);
        if dense {
            Density::Dense
        } else {
            Density::Light
        }
    };
    seen.iter()
        .map(|part| IndexSpill {
            index: part.index,
            density: density(part),
            bytes: part.bytes,
        })
        .collect()
}

/// Whether the files of the tree have nothing between these keys.
fn is_new(ingest: &Ingest, smallest: &[u8], largest: &[u8]) -> bool {
    let version = ingest.versions().current();
    let mut found = version.overlapping(smallest, Bound::Included(largest));
    found.next().is_none()
}

/// Purpose of a merge.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MergePurpose {
    /// Fewer runs: all versions stay.
    Fewer,
    /// The commit: the newest version of each key, without its position.
    Commit,
}

/// Result of a merge: files of the runs that stay as they are, and new files in place of the rest.
struct MergeResult {
    kept: HashSet<u64>,
    written: NewFiles,
}

/// A file and the number of its run.
struct FileOfRun<'a> {
    run: usize,
    file: &'a Arc<FileHandle>,
}

/// Merges runs, oldest first. A file that shares no range of keys with another one stays as it is,
/// if nothing in it must go.
fn merge(
    ingest: &Arc<Ingest>,
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
            // The next output file must not span it.
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

/// Whether a file that overlaps no other one is what is wanted.
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

fn heed(interrupted: &AtomicBool) -> Result<()> {
    match interrupted.load(Ordering::Relaxed) {
        true => Err(Error::new(
            ErrorKind::Interrupted,
            "while writing a large transaction",
        )),
        false => Ok(()),
    }
}

struct Merging<'a> {
    ingest: &'a Arc<Ingest>,
    dead: &'a Arc<super::rolled_back::RolledBackPositions>,
    aim: MergePurpose,
    interrupted: &'a AtomicBool,
    expected: u64,
    writer: Option<(Density, RunWriter)>,
    written: Option<NewFiles>,
}

impl Merging<'_> {
    fn end(&mut self) -> Result<()> {
        let writer = self.writer.take();
        end(writer.map(|(_, writer)| writer), &mut self.written)
    }

    /// Merges files that hang together, ascending, up to the key `largest`.
    fn group(&mut self, group: &[FileOfRun<'_>], runs: usize, largest: &[u8]) -> Result<()> {
        let smallest = &group[0].file.smallest;
        let dense = self.aim == MergePurpose::Commit && is_new(self.ingest, smallest, largest);
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
        let cursor = |files| SpilledRunIter::new(&Arc::new(Run::new(0, files)), false, self.dead);
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
    /// Merges the newest runs into one if there are many.
    ///
    /// # Errors
    /// Those of the files; `Interrupted` once the flag is set. The runs are as before then.
    pub(super) fn merge_if_many(
        &mut self,
        ingest: &Arc<Ingest>,
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

    /// Makes the files of a commit: the newest version of each key, in files that share no key,
    /// synced and with durable names. The runs stay as they are, so that it may be tried again.
    ///
    /// # Errors
    /// Those of the files; `Interrupted` once the flag is set.
    pub(super) fn seal(
        &self,
        ingest: &Arc<Ingest>,
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
        // Spilled files that stay are synced only now: most spilled files are merged or rolled back
        // before anything needs them to be durable.
        for file_id in &merged.kept {
            heed(interrupted)?;
            ingest.sync_file(*file_id)?;
        }
        merged.written.sync()?;
        Ok(SealedWriteSet { files, merged })
    }

    /// The log names the files of `sealed`: they are no longer the set's to remove.
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

/// The files that a spilled set commits. The new ones are removed if it is dropped.
pub struct SealedWriteSet {
    /// Ascending, without a common user key.
    files: Vec<FileMeta>,
    merged: MergeResult,
}

impl SealedWriteSet {
    /// The files.
    pub fn files(&self) -> &[FileMeta] {
        &self.files
    }
}
