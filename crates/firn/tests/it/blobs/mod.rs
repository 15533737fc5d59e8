//! Rows with values out of line.

mod checkpoints;
mod faults;
mod garbage;
mod model;
mod parts;
mod rows;
mod world;
mod writing;
