//! Read views, point reads, scans.
