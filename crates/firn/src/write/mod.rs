//! Write batches, commit pipeline, stall control.

mod batch;
mod pipeline;
mod stall;

pub use batch::{Batch, BatchEntry};
pub use pipeline::{
    BegunCut, BinlogPlace, Changes, Committed, LogCut, MemtableHost, Pipeline, Prepared, What,
    unknown_outcome,
};
pub use stall::{Pressure, REASONS, Stall, StallStats};
