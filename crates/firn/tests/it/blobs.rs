//! Rows with out-of-line values.

mod checkpoints;
mod faults;
mod garbage;
mod model;
mod parts;
mod rows;
mod world;
mod writing;
