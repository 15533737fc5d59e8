//! Super versions, point reads, scans.

mod get;
mod multi_get;
mod rows_in_range;
mod scan;
mod super_version;

pub use get::{changed_since, get, range_changed_since};
pub use multi_get::{MULTI_GET_BATCH, in_batches, multi_get, prefetch_blocks};
pub use rows_in_range::{EXACT_ROWS, estimate_rows};
pub use scan::{RunFiles, ScanRange, ScanSource, push_sources, scan_sources, still_complete};
pub use super_version::{Freshness, ReadPoint, SuperVersion, SuperVersions};
