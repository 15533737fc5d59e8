//! Read views, point reads, scans.

mod get;
mod scan;
mod view;

pub use get::get;
pub use scan::{ScanRange, Source, push_sources, scan_sources};
pub use view::{ReadPoint, View, Views};
