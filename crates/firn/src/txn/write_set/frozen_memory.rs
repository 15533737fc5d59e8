//! Frozen memory of a write set while it is written as a run.

use super::memory::InMemoryWrites;
use super::spill::{SpillPlan, spill};
use super::spilled_runs::SpilledRuns;
use crate::base::{Error, ErrorKind, Result};
use crate::ingest::{NewFiles, RunFactory};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::Receiver;

/// Writes of a write set that are being written as a run. If a background thread is free, it writes
/// the run while the statement continues, because a spill spends most of its time on compression.
///
/// Reads use the frozen memory until [`Self::finish`] is called, even if the files are complete. A
/// drop waits for the background thread, which must not write to the directory of a database that
/// is closed meanwhile.
pub(super) struct FrozenMemory {
    memory: Arc<InMemoryWrites>,
    writing: Option<Writing>,
}

enum Writing {
    /// A background thread writes the run and sends the result.
    Beside(Receiver<Result<NewFiles>>),
    Done(Result<NewFiles>),
}

impl FrozenMemory {
    /// Begins to write `memory`, which is newer than `runs`. Without a free background thread it
    /// writes all of it before it returns.
    pub(super) fn begin(
        ingest: &Arc<RunFactory>,
        memory: Arc<InMemoryWrites>,
        runs: &SpilledRuns,
    ) -> Self {
        let plan = SpillPlan::new(ingest, &memory, runs);
        let work = {
            let (ingest, memory) = (Arc::clone(ingest), Arc::clone(&memory));
            move || guard(move || spill(&ingest, &memory, plan))
        };
        let writing = match ingest.run_in_background(work) {
            Ok(result) => Writing::Beside(result),
            Err(work) => Writing::Done(work()),
        };
        Self {
            memory,
            writing: Some(writing),
        }
    }

    pub(super) fn memory(&self) -> &Arc<InMemoryWrites> {
        &self.memory
    }

    /// Whether no background thread was free, so that the thread that called [`Self::begin`] has
    /// written the run itself, or has tried to and failed.
    pub(super) fn is_done(&self) -> bool {
        matches!(self.writing, Some(Writing::Done(_)))
    }

    /// Waits for the files and returns them. If they could not be written, returns the memory.
    pub(super) fn finish(mut self) -> Result<NewFiles, (Error, Arc<InMemoryWrites>)> {
        let written = self.wait().unwrap_or_else(|| Err(panicked()));
        written.map_err(|error| (error, Arc::clone(&self.memory)))
    }

    fn wait(&mut self) -> Option<Result<NewFiles>> {
        match self.writing.take()? {
            Writing::Beside(result) => result.recv().ok(),
            Writing::Done(result) => Some(result),
        }
    }
}

impl Drop for FrozenMemory {
    fn drop(&mut self) {
        // Dropping the result removes its files.
        drop(self.wait());
    }
}

/// Turns a panic into an error of the statement.
fn guard(f: impl FnOnce() -> Result<NewFiles>) -> Result<NewFiles> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|_| Err(panicked()))
}

fn panicked() -> Error {
    Error::new(ErrorKind::ShutDown, "bug: a spill panicked".to_owned())
}
