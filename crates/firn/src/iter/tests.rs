//! Seeded tests against naive models.

mod concat;
mod follow;
mod merge;
mod mvcc;
mod support;
