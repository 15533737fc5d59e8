//! Results of lines.

use serde::{Deserialize, Serialize};

/// Result of a line on one engine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    pub line: String,
    pub engine: String,
    /// Operations counted.
    pub ops: u64,
    /// How long they took, or the compaction.
    pub seconds: f64,
    pub per_second: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub max_us: f64,
    /// User and system time of all threads while the line ran.
    pub processor_seconds: f64,
    /// How long background work went on when the line had ended.
    pub paid_seconds: f64,
    /// Written to the device by the line and what it made due.
    pub device_bytes: u64,
    /// Files but for the log, afterwards.
    pub disk_bytes: u64,
    /// Resident memory at the end of the line.
    pub resident_bytes: u64,
    pub peak_resident_bytes: u64,
    /// Memory of the engine: cache and four memtables.
    pub memory_bytes: u64,
    pub reads_directly: bool,
    /// The writer beside the readers.
    pub beside: Option<Side>,
    pub state: String,
}

/// Result of a second group of threads.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Side {
    pub per_second: f64,
    pub p99_us: f64,
}

/// How many times faster than `other`.
pub fn relative(outcome: &Outcome, other: &Outcome) -> f64 {
    match outcome.ops {
        0 => other.seconds / outcome.seconds,
        _ => outcome.per_second / other.per_second,
    }
}
