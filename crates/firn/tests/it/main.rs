//! Integration tests: one binary, since linking is the cost.

mod blobs;
mod checkpoint;
mod db;
mod distinct;
mod estimates;
mod fixture;
mod full_disk;
mod fuzz;
mod layers;
mod loaded;
mod memory;
mod out_of_room;
mod prepared;
mod schema;
mod table;
