//! Memory on its way to disk.

use super::memory::InMemoryWrites;
use super::spill::{SpillPlan, spill};
use super::spilled_runs::SpilledRuns;
use crate::base::{Error, ErrorKind, Result};
use crate::ingest::{Ingest, NewFiles};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::Receiver;

/// The former memory of a write set, immutable while it is written as a run. A background thread
/// writes it beside the statement, where there is one, because compression is most of a spill.
///
/// Until [`Self::finish`] reads go to the memory, whatever is on disk. A drop waits for the writer:
/// nothing may be written to the directory of a database that is closed.
pub(super) struct SpillingMemory {
    memory: Arc<InMemoryWrites>,
    writing: Option<Writing>,
}

enum Writing {
    Beside(Receiver<Result<NewFiles>>),
    Done(Result<NewFiles>),
}

impl SpillingMemory {
    /// Begins to write `memory`, which is newer than `runs`.
    pub(super) fn begin(ingest: &Arc<Ingest>, memory: InMemoryWrites, runs: &SpilledRuns) -> Self {
        let memory = Arc::new(memory);
        let plan = SpillPlan::new(ingest, &memory, runs);
        let work = {
            let (ingest, memory) = (Arc::clone(ingest), Arc::clone(&memory));
            move || guard(move || spill(&ingest, &memory, plan))
        };
        let writing = match ingest.beside(work) {
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

    /// Whether it was written, or failed, at once.
    pub(super) fn is_done(&self) -> bool {
        matches!(self.writing, Some(Writing::Done(_)))
    }

    /// The files, once they are written; the memory again if they could not be.
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

impl Drop for SpillingMemory {
    fn drop(&mut self) {
        // Files that nobody wants go with the result.
        drop(self.wait());
    }
}

/// A panic is an error of the statement.
fn guard(f: impl FnOnce() -> Result<NewFiles>) -> Result<NewFiles> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|_| Err(panicked()))
}

fn panicked() -> Error {
    Error::new(ErrorKind::ShutDown, "bug: a spill panicked".to_owned())
}
