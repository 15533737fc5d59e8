//! A database with cold files, on simulated files and a simulated store.

mod crashes;
mod dead_store;
mod model;
mod moves;
mod world;
