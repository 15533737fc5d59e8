//! The work that the log writer has. The log's mutex guards it.

use super::super::acknowledgement::Acknowledgement;
use parking_lot::Condvar;
use std::sync::Arc;
use std::thread::JoinHandle;

/// The log writer's thread, and what it has to do.
#[derive(Debug, Default)]
pub(super) struct LogWriterWork {
    /// The thread, which starts with the first commit that nobody waits for.
    pub thread: Option<JoinHandle<()>>,
    /// Whether it must write the open group. A write slot is reserved for it.
    pub leads: bool,
    /// Whether it must sync the log files.
    pub syncs: bool,
    /// Acknowledgements that it must send, and whether their commits are durable.
    pub outbox: Vec<(Acknowledgement, bool)>,
    pub work: Arc<Condvar>,
}

impl LogWriterWork {
    /// Whether the thread has been given something to do.
    pub(super) fn has_work(&self) -> bool {
        self.leads || self.syncs || !self.outbox.is_empty()
    }
}
