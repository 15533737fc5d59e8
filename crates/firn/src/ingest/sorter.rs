//! Sorting the entries of one index, outside of memory if need be.

use super::entries::Entries;
use super::merge::{FilesReader, Input, Merge};
use super::output::{Failure, Output};
use super::sorted_run::{RunFileWriter, SortedRun};
use super::{Ingest, NewFiles};
use crate::base::Result;
use crate::base::gauge::Charge;
use std::sync::Arc;

/// At most so many temporary files are merged at once; more are first merged among themselves.
const FAN_IN: usize = 128;

/// Entries between two looks at the caller's wishes.
const PACE: u64 = 1024;

/// What must differ between any two entries of a sorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Uniqueness {
    /// Nothing: their keys differ where the rows do.
    None,
    /// Their keys: a clustered index.
    Key,
    /// The start of their keys, whose length comes with each entry: a unique index beside it.
    Start,
}

/// Called now and then with stored bytes moved since the last call. May sleep; an error ends the load.
pub(super) type Pace<'a> = &'a mut dyn FnMut(u64) -> Result<()>;

enum State {
    /// All came in order, and go straight into files of the last level.
    Streaming(Box<Output>),
    /// At least once they did not.
    Sorting,
}

/// Sorts the entries of one index.
///
/// Steps: [`Self::take`] lists of entries, each sorted or not; at most once [`Self::take_last`];
/// [`Self::finish`].
///
/// As long as each list goes on where the one before ended, nothing is sorted: entries stream into the
/// files that stay, so that they are written once. At the first list that does not, the files so far
/// become one sorted run among others, which are written to temporary files, and all are merged at the end.
/// (Of a unique index beside the clustered one, a file does not say where the unique part of a key ends: its
/// entries never stream.)
///
/// Invariant: files that it has made and not handed out are removed when it is dropped.
pub(super) struct Sorter {
    number: usize,
    ingest: Arc<Ingest>,
    uniqueness: Uniqueness,
    state: State,
    /// Temporary files with their tier: files of one tier have about the same size, and those of a
    /// higher one come first.
    runs: Vec<(u32, SortedRun)>,
    others: Vec<Input>,
    /// For the list that stays in memory.
    charge: Charge,
    entries: u64,
    packed_bytes: u64,
}

impl Sorter {
    pub(super) fn new(ingest: &Arc<Ingest>, number: usize, uniqueness: Uniqueness) -> Self {
        let state = match uniqueness {
            Uniqueness::Start => State::Sorting,
            _ => State::Streaming(Box::new(Output::new(ingest, number, 0))),
        };
        Self {
            number,
            ingest: Arc::clone(ingest),
            uniqueness,
            state,
            runs: Vec::new(),
            others: Vec::new(),
            charge: Charge::default(),
            entries: 0,
            packed_bytes: 0,
        }
    }

    /// Entries that are still to be merged at the end.
    pub(super) fn waiting(&self) -> u64 {
        match self.state {
            State::Streaming(_) => 0,
            State::Sorting => self.entries,
        }
    }

    /// Takes a list, and leaves none of it in memory.
    pub(super) fn take(&mut self, mut list: Entries, pace: Pace<'_>) -> Result<(), Failure> {
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
            paced.look(|| writer.bytes())?;
        }
        self.push_run(0, writer.finish()?, pace)
    }

    /// Takes the last list; what must be sorted may stay in memory until the end, and stays charged as long.
    pub(super) fn take_last(
        &mut self,
        mut list: Entries,
        charge: Charge,
        pace: Pace<'_>,
    ) -> Result<(), Failure> {
        self.count(&list);
        if !self.stream(&list, pace)? {
            self.stop_streaming()?;
            list.sort();
            self.others.push(Input::Memory(list, 0));
            self.charge = charge;
        }
        Ok(())
    }

    /// The files with all entries, synced, and whether one without a right to be alone came twice.
    /// `pace` gets stored bytes, `merged` the number of entries merged so far.
    pub(super) fn finish(
        mut self,
        pace: Pace<'_>,
        merged: &mut dyn FnMut(u64),
    ) -> Result<(NewFiles, bool), Failure> {
        if let State::Streaming(output) = self.state {
            return Ok(output.finish()?);
        }
        let expected = self.packed_bytes / 2;
        let mut output = Output::new(&self.ingest, self.number, expected);
        let mut inputs = std::mem::take(&mut self.others);
        inputs.extend(self.open_runs(0)?);
        let mut merge = Merge::new(inputs);
        let mut paced = Paced::new(pace, true);
        while let Some(entry) = merge.entry() {
            output.add(entry)?;
            merge.advance()?;
            if paced.look(|| output.bytes())? {
                merged(output.entries());
                output.grow()?;
            }
        }
        merged(output.entries());
        // Temporary files go before the last sync: the disk may be nearly full.
        drop(merge);
        self.charge.set(0);
        Ok(output.finish()?)
    }

    fn count(&mut self, list: &Entries) {
        self.entries += list.len() as u64;
        self.packed_bytes += list.packed_bytes();
    }

    /// Streams the list if it goes on where the one before ended. Whether it did.
    fn stream(&mut self, list: &Entries, pace: Pace<'_>) -> Result<bool, Failure> {
        let State::Streaming(output) = &mut self.state else {
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
            paced.look(|| output.bytes())?;
        }
        output.grow()?;
        Ok(true)
    }

    fn stop_streaming(&mut self) -> Result<()> {
        if let State::Streaming(output) = std::mem::replace(&mut self.state, State::Sorting) {
            let (files, _) = output.finish()?;
            let source = self.ingest.versions.source();
            let unique = self.uniqueness == Uniqueness::Key;
            let reader = FilesReader::new(files, source, unique)?;
            self.others.push(Input::Files(Box::new(reader)));
        }
        Ok(())
    }

    fn run_file(&self) -> Result<RunFileWriter> {
        let versions = &self.ingest.versions;
        RunFileWriter::create(versions.source().store(), versions.new_file_id())
    }

    /// Adds a run; the newest [`FAN_IN`] ones become one of the next tier when they are of one tier.
    fn push_run(&mut self, mut tier: u32, run: SortedRun, pace: Pace<'_>) -> Result<(), Failure> {
        self.runs.push((tier, run));
        while self
            .runs
            .iter()
            .rev()
            .take_while(|(t, _)| *t == tier)
            .count()
            == FAN_IN
        {
            let mut merge = Merge::new(self.open_runs(self.runs.len() - FAN_IN)?);
            let mut writer = self.run_file()?;
            let mut paced = Paced::new(pace, true);
            while let Some(entry) = merge.entry() {
                writer.add(entry)?;
                merge.advance()?;
                paced.look(|| writer.bytes())?;
            }
            tier += 1;
            self.runs.push((tier, writer.finish()?));
        }
        Ok(())
    }

    /// Takes out the runs from number `from` on, each at its first entry.
    fn open_runs(&mut self, from: usize) -> Result<Vec<Input>> {
        let runs = self.runs.drain(from..);
        runs.map(|(_, run)| Ok(Input::Run(run.read()?))).collect()
    }
}

/// Calls on the caller every so many entries.
struct Paced<'a, 'b> {
    pace: &'a mut (dyn FnMut(u64) -> Result<()> + 'b),
    /// What is written was read before, too.
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

    /// To be called for each entry; `bytes`: stored so far. Whether the caller was called.
    fn look(&mut self, bytes: impl FnOnce() -> u64) -> Result<bool> {
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
