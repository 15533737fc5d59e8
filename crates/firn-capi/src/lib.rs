//! The C ABI of the Firn core: opaque handles, status codes, and a guard that lets no panic pass.
//!
//! Names of exported items start with `firn_`. cbindgen generates the header `include/firn.h` from
//! this crate, and `tests/header.rs` fails if the header is out of date. A handle is *live* from
//! the call that returns it to the call that frees it.

#![allow(non_camel_case_types)]

#[cfg(feature = "jemalloc")]
pub mod allocator;
pub mod autoincrement;
pub mod bulk_load;
pub mod cursor;
pub mod cursor_reads;
pub mod database;
pub mod ddl;
pub mod ddl_recovery;
mod ddl_session;
pub mod error;
pub mod foreign_keys;
pub mod host_callbacks;
pub mod index_change;
pub mod memory_pool;
mod new_pool;
pub mod object_store_reports;
mod pointers;
pub mod progress;
pub mod row_writes;
pub mod schema;
pub mod session;
pub mod statistics;
pub mod storage_reports;
pub mod table;
pub mod table_maintenance;
pub mod transaction_reports;
mod write_scratch;
