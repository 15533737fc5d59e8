//! Integration tests: one binary, since linking is the cost.

mod db;
mod fuzz;
mod layers;
