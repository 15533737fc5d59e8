//! Flush and compaction: picker, jobs, drop rule, splitter.
