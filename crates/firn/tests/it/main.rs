//! Integration tests: one binary, since linking is the cost.

mod db;
mod fixture;
mod fuzz;
mod layers;
mod table;
