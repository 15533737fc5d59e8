//! Results of lines.

use serde::{Deserialize, Serialize};

/// Result of a line on one engine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    pub line: String,
    pub engine: String,
    /// Number of operations that were counted.
    pub ops: u64,
    /// Time that the counted operations took, in seconds; in a line that compacts, the time of the
    /// compaction.
    pub seconds: f64,
    pub per_second: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub max_us: f64,
    /// User and system time of all threads while the line ran, seconds.
    pub processor_seconds: f64,
    /// Time for which background work went on after the line, seconds.
    pub paid_seconds: f64,
    /// Bytes that the line, and the background work it made necessary, sent to the device.
    pub device_bytes: u64,
    /// Size of the files after the line without the log, bytes.
    pub disk_bytes: u64,
    /// Resident memory at the end of the line, bytes.
    pub resident_bytes: u64,
    pub peak_resident_bytes: u64,
    /// Memory that the engine was given: its cache and four memtables, bytes.
    pub memory_bytes: u64,
    pub reads_directly: bool,
    /// Result of the writer that worked beside the readers.
    pub second_group: Option<Side>,
    pub state: String,
}

/// Result of a second group of threads.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Side {
    pub per_second: f64,
    pub p99_us: f64,
}

/// How many times faster `outcome` is than `other`.
pub fn relative(outcome: &Outcome, other: &Outcome) -> f64 {
    match outcome.ops {
        0 => other.seconds / outcome.seconds,
        _ => outcome.per_second / other.per_second,
    }
}
