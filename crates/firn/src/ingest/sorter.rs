//! Sorts the entries of one index, with temporary files if memory is short.

use super::load_output::{LoadFailure, LoadOutput};
use super::merge_lists::{FilesReader, Merge, MergeInput};
use super::sort_buffer::SortBuffer;
use super::temp_run::{BLOCK, TempRun, TempRunWriter};
use super::{NewFiles, RunFactory};
use crate::base::Result;
use crate::base::memory_tracker::MemoryCharge;
use std::sync::Arc;

/// Largest and smallest number of temporary files that a merge reads at once.
const FAN_IN_MAX: usize = 128;
const FAN_IN_MIN: usize = 8;
/// Memory of a temporary file that is being merged, bytes: a block, stored and unpacked, and blocks
/// that are read ahead.
const OPEN_RUN_BYTES: u64 = 5 * BLOCK as u64;

/// Number of temporary files that a merge reads at once, in a load with `memory` bytes: as many as
/// it takes to use that memory in two merges.
fn fan_in(memory: u64) -> usize {
    let files = (memory / (2 * OPEN_RUN_BYTES)) as usize;
    files.clamp(FAN_IN_MIN, FAN_IN_MAX)
}

/// Number of entries between two calls of the caller's [`Pace`].
const PACE: u64 = 1024;

/// The part of the key that must be unique in a sorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Uniqueness {
    /// None: keys of different rows differ anyway.
    None,
    /// The whole key: a clustered index.
    Key,
    /// A prefix of the key, as in a unique secondary index. The caller passes the prefix's length
    /// with each entry.
    Start,
}

/// Called periodically with the stored bytes moved since the last call. May sleep; an error ends
/// the load.
pub(super) type Pace<'a> = &'a mut dyn FnMut(u64) -> Result<()>;

enum SorterState {
    /// All entries so far came in key order, so they go directly into files of the last level.
    Streaming(Box<LoadOutput>),
    /// An entry came out of key order, so each list of entries is sorted and written to a temporary
    /// file, and the files are merged at the end of the load.
    Sorting,
}

/// Sorts the entries of one index.
///
/// Steps: [`Self::take`] for each list of entries, sorted or not; [`Self::take_last`] at most once;
/// [`Self::finish`].
///
/// As long as each list continues where the previous one ended, nothing is sorted: entries stream
/// into the final files and are written once. The first list that is unsorted or begins below the
/// last key ends that: the files so far become one sorted run. From then on each list is sorted and
/// written to a temporary file, and all runs are merged at the end. (A unique secondary index never
/// streams: its files do not record where the unique part of a key ends.)
///
/// Invariant: dropping the sorter removes all files that it made and did not return.
pub(super) struct Sorter {
    number: usize,
    ingest: Arc<RunFactory>,
    uniqueness: Uniqueness,
    state: SorterState,
    /// Temporary files with their tiers. Files of one tier have about the same size; higher tiers
    /// come first.
    runs: Vec<(u32, TempRun)>,
    others: Vec<MergeInput>,
    /// Memory charge of the list that stays in memory.
    charge: MemoryCharge,
    entries: u64,
    packed_bytes: u64,
    /// Number of temporary files of one tier that are merged into one of the next, and that the
    /// last merge reads at most.
    fan_in: usize,
}

impl Sorter {
    /// A sorter of a load with `memory` bytes.
    pub(super) fn new(
        ingest: &Arc<RunFactory>,
        number: usize,
        uniqueness: Uniqueness,
        memory: u64,
    ) -> Self {
        let state = match uniqueness {
            Uniqueness::Start => SorterState::Sorting,
            _ => SorterState::Streaming(Box::new(LoadOutput::new(ingest, number, 0))),
        };
        Self {
            number,
            ingest: Arc::clone(ingest),
            uniqueness,
            state,
            runs: Vec::new(),
            others: Vec::new(),
            charge: MemoryCharge::default(),
            entries: 0,
            packed_bytes: 0,
            fan_in: fan_in(memory),
        }
    }

    /// Number of entries that the end must merge.
    pub(super) fn waiting(&self) -> u64 {
        match self.state {
            SorterState::Streaming(_) => 0,
            SorterState::Sorting => self.entries,
        }
    }

    /// Takes a list and writes all of it to files.
    pub(super) fn take(&mut self, mut list: SortBuffer, pace: Pace<'_>) -> Result<(), LoadFailure> {
        self.count(&list);
        if self.stream(&list, pace)? {
            return Ok(());
        }
        self.stop_streaming()?;
        list.sort();
        let mut writer = self.run_file()?;
        let mut paced = Paced::new(pace, false);
        for entry in list.iter() {
            writer.add(entry)?;
            paced.tick(|| writer.bytes())?;
        }
        self.push_run(0, writer.finish()?, pace)
    }

    /// Takes the last list. If the list must be sorted, it stays in memory until [`Self::finish`]
    /// has merged it, and `charge` counts that memory.
    pub(super) fn take_last(
        &mut self,
        mut list: SortBuffer,
        charge: MemoryCharge,
        pace: Pace<'_>,
    ) -> Result<(), LoadFailure> {
        self.count(&list);
        if !self.stream(&list, pace)? {
            self.stop_streaming()?;
            list.sort();
            self.others.push(MergeInput::Memory(list, 0));
            self.charge = charge;
        }
        Ok(())
    }

    /// Ends the sorter: merges the runs, unless all entries came in order. Returns the synced files
    /// with all entries, and whether the same entry came twice in an index that is not unique.
    /// Calls `pace` with the bytes moved since its last call, and `merged` with the number of
    /// entries merged so far.
    pub(super) fn finish(
        mut self,
        pace: Pace<'_>,
        merged: &mut dyn FnMut(u64),
    ) -> Result<(NewFiles, bool), LoadFailure> {
        if let SorterState::Streaming(output) = self.state {
            return Ok(output.finish()?);
        }
        while self.runs.len() > self.fan_in {
            // The newest runs are the smallest.
            let surplus = self.runs.len() - self.fan_in + 1;
            self.merge_newest(surplus.min(self.fan_in), pace)?;
        }
        let expected = self.packed_bytes / 2;
        let mut output = LoadOutput::new(&self.ingest, self.number, expected);
        let mut inputs = std::mem::take(&mut self.others);
        inputs.extend(self.open_runs(0)?);
        let mut merge = Merge::new(inputs);
        let mut paced = Paced::new(pace, true);
        while let Some(entry) = merge.entry() {
            output.add(entry)?;
            merge.advance()?;
            if paced.tick(|| output.bytes())? {
                merged(output.entries());
                output.grow()?;
            }
        }
        merged(output.entries());
        // Remove the temporary files before the last sync: the disk may be nearly full.
        drop(merge);
        self.charge.set(0);
        Ok(output.finish()?)
    }

    fn count(&mut self, list: &SortBuffer) {
        self.entries += list.len() as u64;
        self.packed_bytes += list.packed_bytes();
    }

    /// Writes `list` straight to the final files, if all earlier entries were written so, and if
    /// `list` is sorted and begins at or above the last key in those files. Returns whether it was
    /// written.
    fn stream(&mut self, list: &SortBuffer, pace: Pace<'_>) -> Result<bool, LoadFailure> {
        let SorterState::Streaming(output) = &mut self.state else {
            return Ok(false);
        };
        if list.is_empty() {
            return Ok(true);
        }
        if !list.is_sorted() || list.get(0).user_key < output.last_key() {
            return Ok(false);
        }
        let mut paced = Paced::new(pace, false);
        paced.last_bytes = output.bytes();
        for entry in list.iter() {
            output.add(entry)?;
            paced.tick(|| output.bytes())?;
        }
        output.grow()?;
        Ok(true)
    }

    fn stop_streaming(&mut self) -> Result<()> {
        if let SorterState::Streaming(output) =
            std::mem::replace(&mut self.state, SorterState::Sorting)
        {
            let (files, _) = output.finish()?;
            let source = self.ingest.versions.source();
            let unique = self.uniqueness == Uniqueness::Key;
            let reader = FilesReader::new(files, source, unique)?;
            self.others.push(MergeInput::Files(Box::new(reader)));
        }
        Ok(())
    }

    fn run_file(&self) -> Result<TempRunWriter> {
        let versions = &self.ingest.versions;
        TempRunWriter::create(versions.source().store(), versions.new_file_id())
    }

    /// Adds a run. If `fan_in` of the newest runs are of one tier, merges them into one of the next
    /// tier.
    fn push_run(&mut self, mut tier: u32, run: TempRun, pace: Pace<'_>) -> Result<(), LoadFailure> {
        self.runs.push((tier, run));
        let newest = |runs: &[(u32, TempRun)], tier| {
            let same = runs.iter().rev().take_while(|(t, _)| *t == tier);
            same.count()
        };
        while newest(&self.runs, tier) == self.fan_in {
            self.merge_newest(self.fan_in, pace)?;
            tier += 1;
        }
        Ok(())
    }

    /// Merges the newest `count` runs into one, of the tier above that of the oldest of them.
    fn merge_newest(&mut self, count: usize, pace: Pace<'_>) -> Result<(), LoadFailure> {
        let from = self.runs.len() - count;
        let tier = self.runs[from].0 + 1;
        let mut merge = Merge::new(self.open_runs(from)?);
        let mut writer = self.run_file()?;
        let mut paced = Paced::new(pace, true);
        while let Some(entry) = merge.entry() {
            writer.add(entry)?;
            merge.advance()?;
            paced.tick(|| writer.bytes())?;
        }
        self.runs.push((tier, writer.finish()?));
        Ok(())
    }

    /// Takes the runs with the numbers `from` and above out of `runs` and opens each at its first
    /// entry.
    fn open_runs(&mut self, from: usize) -> Result<Vec<MergeInput>> {
        let runs = self.runs.drain(from..);
        runs.map(|(_, run)| Ok(MergeInput::Run(run.read()?)))
            .collect()
    }
}

/// Calls `pace` every [`PACE`] entries.
struct Paced<'a, 'b> {
    pace: &'a mut (dyn FnMut(u64) -> Result<()> + 'b),
    /// Whether the entries come from temporary files. Each byte then counts twice, as read and as
    /// written.
    reads: bool,
    seen: u64,
    last_bytes: u64,
}

impl<'a, 'b> Paced<'a, 'b> {
    fn new(pace: &'a mut (dyn FnMut(u64) -> Result<()> + 'b), reads: bool) -> Self {
        Self {
            pace,
            reads,
            seen: 0,
            last_bytes: 0,
        }
    }

    /// Counts an entry, and calls `pace` at every [`PACE`]th one; `bytes` returns the stored bytes
    /// written so far. Returns whether it called `pace`.
    fn tick(&mut self, bytes: impl FnOnce() -> u64) -> Result<bool> {
        self.seen += 1;
        if !self.seen.is_multiple_of(PACE) {
            return Ok(false);
        }
        let bytes = bytes();
        let moved = bytes.saturating_sub(self.last_bytes);
        (self.pace)(if self.reads { 2 * moved } else { moved })?;
        self.last_bytes = self.last_bytes.max(bytes);
        Ok(true)
    }
}
