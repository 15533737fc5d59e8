//! Write-ahead log: records, groups, segments.
