//! Integration tests: one binary, since linking is the cost.

mod blobs;
mod checkpoint;
mod db;
mod distinct;
mod estimates;
mod fixture_v1;
mod full_disk_commit;
mod fuzz;
mod layers;
mod corrupt_loads;
mod memory;
mod full_disk_deletes;
mod prepared;
mod schema;
mod table;
