//! A database with cold files, on simulated files and a simulated store.

mod copies;
mod crashes;
mod dead_store;
mod figures;
mod model;
mod moves;
mod tools;
mod world;
