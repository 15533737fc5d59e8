//! Read views, point reads, scans.

mod batch;
mod estimate;
mod get;
mod scan;
mod view;

pub use batch::{BATCH, announce, in_batches, multi_get};
pub use estimate::{EXACT_ROWS, estimate_rows};
pub use get::{changed_since, get};
pub use scan::{RunFiles, ScanRange, ScanSource, push_sources, scan_sources, still_complete};
pub use view::{Freshness, ReadPoint, SuperVersion, SuperVersions};
