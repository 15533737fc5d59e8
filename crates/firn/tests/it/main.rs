//! Integration tests, in one binary, since linking is the cost.

mod blobs;
mod checkpoint;
mod column_changes;
mod corrupt_loads;
mod db;
mod ddl_recovery;
mod distinct;
mod estimates;
mod fixture_v1;
mod foreign_keys;
mod full_disk_commit;
mod full_disk_deletes;
mod fuzz;
mod large_commit;
mod layers;
mod memory;
mod memory_pool;
mod open_memory;
mod optimistic;
mod optimize;
mod prepared;
mod recipes;
mod schema;
mod table;
mod temporary;
