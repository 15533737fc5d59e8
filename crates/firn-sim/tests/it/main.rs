//! Short runs of the simulation, in one binary, since linking is the cost.

mod bank;
mod bit_rot;
mod bulk_loads;
mod concurrent;
mod crash;
mod faults;
mod model;
mod point_in_time;
mod scale;
