//! Rows with values out of line.

mod faults;
mod garbage;
mod model;
mod rows;
mod world;
mod writing;
