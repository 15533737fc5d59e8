//! Writes the memory of a write set as a run: for a spill, or for a commit.

use super::memory::{InMemoryWrites, OwnVersions};
use super::spilled_runs::SpilledRuns;
use crate::base::key::index_id_of;
use crate::base::{Error, ErrorKind, IndexId, Result};
use crate::ingest::{NewFiles, RunFactory, RunWriter};
use crate::sst::Density;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The entries of one index in a spill are written densely only if they have at least this many
/// bytes before compression.
const DENSE_MIN: u64 = 1 << 20;

/// An index with at least 1/16 of a spill's bytes gets files of its own. If it shared a file with a
/// neighbouring index, that file would overlap the later files of both indexes, and a merge would
/// have to rewrite all of them.
const OWN_FILE_SHARE: u64 = 16;

/// An index counts as written in key order if at most this percentage of its keys was written out
/// of order.
const DISORDER_MAX: u64 = 5;

/// Decides for each index how densely its entries are written when the in-memory part of a write
/// set becomes a run.
///
/// In a spill, an index gets files of the last level's density if its keys were written in key
/// order, are greater than all keys of this index that the set has spilled, and lie where the
/// tree's files have no keys: such files are likely to be installed unchanged. All other files are
/// merged sooner or later, and are compressed lightly. Files of a commit are not merged with later
/// writes of the set, so there the order of the writes does not matter.
pub(super) struct SpillPlan {
    /// By index, ascending.
    parts: Vec<IndexSpill>,
}

impl SpillPlan {
    /// The plan for `memory`, which is newer than `runs`.
    pub(super) fn new(ingest: &RunFactory, memory: &InMemoryWrites, runs: &SpilledRuns) -> Self {
        Self {
            parts: parts(ingest, memory, Some(runs)),
        }
    }
}

/// The part of a spill that belongs to one index.
struct IndexSpill {
    index: Option<IndexId>,
    density: Density,
    /// Bytes of the keys and their newest values, before compression.
    bytes: u64,
}

/// Writes all versions in `memory` as a run. The run is not synced, because it is useless after a
/// power cut; [`SpilledRuns::seal`] syncs the files that a commit uses. `plan` must be made for
/// this `memory` ([`SpillPlan::new`]).
pub(super) fn spill(
    ingest: &Arc<RunFactory>,
    memory: &InMemoryWrites,
    plan: SpillPlan,
) -> Result<NewFiles> {
    let writer = |density, expected| ingest.writer(density, expected).unsynced();
    let write = |writer: &mut RunWriter, versions: OwnVersions<'_>| {
        let key = versions.key();
        versions.newest_first().try_for_each(|version| {
            let key = crate::base::InternalKey::new(key, version.seqno(), version.kind);
            writer.add_version(key, version.value)
        })
    };
    write_parts(ingest, memory, plan, writer, write)
}

/// Writes the newest version of each key in `memory` as a run, for a commit. The contents of the
/// files are synced; [`NewFiles::sync`] syncs their names. Ends with `Interrupted` once the flag is
/// set.
pub(super) fn write_newest(
    ingest: &Arc<RunFactory>,
    memory: &InMemoryWrites,
    interrupted: &AtomicBool,
) -> Result<NewFiles> {
    let plan = SpillPlan {
        parts: parts(ingest, memory, None),
    };
    let writer = |density, expected| ingest.writer(density, expected);
    let write = |writer: &mut RunWriter, versions: OwnVersions<'_>| {
        heed(interrupted)?;
        let newest = versions.newest();
        writer.add(newest.key, newest.kind, newest.value)
    };
    write_parts(ingest, memory, plan, writer, write)
}

/// Writes a run with writers that `new_writer` makes; `write` adds the versions of one key.
fn write_parts(
    ingest: &Arc<RunFactory>,
    memory: &InMemoryWrites,
    plan: SpillPlan,
    new_writer: impl Fn(Density, u64) -> RunWriter,
    write: impl Fn(&mut RunWriter, OwnVersions<'_>) -> Result<()>,
) -> Result<NewFiles> {
    let bytes: u64 = plan.parts.iter().map(|part| part.bytes).sum();
    let mut parts = plan.parts.into_iter().peekable();
    let (mut density, mut was_large) = (None, false);
    let mut writer: Option<RunWriter> = None;
    let mut files: Option<NewFiles> = None;
    for versions in memory.iter() {
        let key = versions.key();
        while let Some(part) = parts.next_if(|part| part.index <= index_id_of(key)) {
            let large = part.bytes * OWN_FILE_SHARE >= bytes;
            if density != Some(part.density) || large || was_large {
                finish(writer.take(), &mut files)?;
                density = Some(part.density);
                writer = Some(new_writer(part.density, memory.bytes()));
            }
            was_large = large;
        }
        write(
            writer.get_or_insert_with(|| new_writer(Density::Light, 0)),
            versions,
        )?;
    }
    finish(writer, &mut files)?;
    Ok(files.unwrap_or_else(|| ingest.no_files()))
}

/// Fails with `Interrupted` if the flag is set.
pub(super) fn heed(interrupted: &AtomicBool) -> Result<()> {
    match interrupted.load(Ordering::Relaxed) {
        true => Err(Error::new(
            ErrorKind::Interrupted,
            "while writing a large transaction",
        )),
        false => Ok(()),
    }
}

/// Finishes `writer`, if there is one, and adds its files to `files`.
pub(super) fn finish(writer: Option<RunWriter>, files: &mut Option<NewFiles>) -> Result<()> {
    if let Some(writer) = writer {
        let written = writer.finish()?;
        match files {
            Some(files) => files.append(written),
            None => *files = Some(written),
        }
    }
    Ok(())
}

/// Computes the parts of a [`SpillPlan`]: of a spill beside the earlier `runs`, or of a commit if
/// `runs` is `None`.
fn parts(
    ingest: &RunFactory,
    memory: &InMemoryWrites,
    runs: Option<&SpilledRuns>,
) -> Vec<IndexSpill> {
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
    for versions in memory.iter() {
        let newest = versions.newest();
        let (key, position) = (newest.key, newest.position);
        let index = index_id_of(key);
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
        part.bytes += (key.len() + newest.value.len()) as u64;
        part.keys += 1;
        part.disorder += u64::from(position < part.position);
        part.position = position;
    }
    let density = |part: &IndexTotals<'_>| {
        let ordered = runs.is_none() || part.disorder * 100 <= part.keys * DISORDER_MAX;
        let beyond = || {
            let runs = runs.iter().flat_map(|runs| &runs.list);
            let mut files = runs.flat_map(|run| &run.run.files);
            files.all(|file| {
                let other = index_id_of(&file.largest) != part.index
                    && index_id_of(&file.smallest) != part.index;
                other || file.largest.as_slice() < part.smallest
            })
        };
        let dense = part.bytes >= DENSE_MIN
            && ordered
            && beyond()
            && overlaps_no_file(ingest, part.smallest, part.largest);
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

/// Whether no file of the tree overlaps the range from `smallest` to `largest`.
pub(super) fn overlaps_no_file(ingest: &RunFactory, smallest: &[u8], largest: &[u8]) -> bool {
    let version = ingest.versions().current();
    let mut found = version.overlapping(smallest, Bound::Included(largest));
    found.next().is_none()
}
