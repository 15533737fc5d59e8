//! Short runs of the simulation: one binary, since linking is the cost.

mod bank;
mod concurrent;
mod crash;
mod faults;
mod loads;
mod model;
mod points;
mod rot;
