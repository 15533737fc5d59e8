//! Short runs of the simulation: one binary, since linking is the cost.

mod bank;
mod concurrent;
mod crash;
mod faults;
mod bulk_loads;
mod model;
mod point_in_time;
mod bit_rot;
