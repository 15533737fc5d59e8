//! The write path: batches, the commit pipeline, stall control.

mod batch;
mod changes;
mod pipeline;
mod stall;

pub use batch::{Batch, BatchEntry};
pub use changes::{Changes, RunCharge};
pub use pipeline::{
    BegunCut, CommitRecord, Committed, LogCut, MemtableHost, OwnedBinlogPosition, Pipeline,
    PreparedLogPin, unknown_outcome,
};
pub use stall::admission::{self, GateCharge};
pub use stall::{
    CommitTotals, GateWaiter, Pressure, STALL_ENDS, STALL_REASONS, StallGate, StallInput,
    StallStats,
};
