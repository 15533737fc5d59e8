//! Firn: a transactional, ordered key-value LSM store.
//!
//! New writes go to the memtable, sink through the upper levels, and end, densely compressed, in
//! the last level. The modules form layers; each imports only lower ones, which
//! `tests/it/layers.rs` enforces. `ARCHITECTURE.md` has the map.

pub mod backup;
pub mod base;
pub mod binlog;
pub mod blob;
pub mod cache;
pub mod catalog;
pub mod compaction;
pub mod db;
pub mod env;
pub mod ingest;
pub mod iter;
pub mod keycode;
pub mod memtable;
pub mod read;
pub mod rowcode;
pub mod sst;
pub mod store;
pub mod table;
pub mod temporary;
pub mod txn;
pub mod version;
pub mod wal;
pub mod write;
