//! Integration tests: one binary, since linking is the cost.

mod layers;
