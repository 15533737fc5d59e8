//! Read views, point reads, scans.

mod multi_get;
mod estimate;
mod get;
mod scan;
mod super_version;

pub use multi_get::{MULTI_GET_BATCH, prefetch_blocks, in_batches, multi_get};
pub use estimate::{EXACT_ROWS, estimate_rows};
pub use get::{changed_since, get};
pub use scan::{RunFiles, ScanRange, ScanSource, push_sources, scan_sources, still_complete};
pub use super_version::{Freshness, ReadPoint, SuperVersion, SuperVersions};
