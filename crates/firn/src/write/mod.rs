//! Write batches, commit pipeline, stall control.

mod batch;
mod changes;
mod pipeline;
mod stall;

pub use batch::{Batch, BatchEntry};
pub use changes::Changes;
pub use pipeline::{
    BegunCut, BinlogPlace, Committed, LogCut, MemtableHost, Pipeline, Prepared, What,
    unknown_outcome,
};
pub use stall::{Pressure, REASONS, Stall, StallStats};
