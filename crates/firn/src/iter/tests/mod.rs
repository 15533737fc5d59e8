//! Seeded tests against naive models.

mod concat;
mod merge;
mod mvcc;
mod support;
