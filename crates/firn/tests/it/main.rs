//! Integration tests: one binary, since linking is the cost.

mod fuzz;
mod layers;
