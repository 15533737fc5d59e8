//! Rows with out-of-line values.

mod checkpoints;
mod faults;
mod garbage;
mod model;
mod parts;
mod read_classes;
mod rows;
mod world;
mod writing;
