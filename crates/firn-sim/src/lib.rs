//! Model, crash and fault simulation of the firn core.
//!
//! A [`world::World`] drives a database with random work that follows from a seed alone, and keeps
//! a model of the committed data next to it: every read at every open snapshot is compared with the
//! model. [`crash`] ends runs with power cuts and kills, [`faults`] injects failing calls. [`bank`]
//! and [`concurrent`] run threads, so their runs do not repeat exactly and no exact model is
//! possible: `bank` checks sums and ledgers, `concurrent` records a history that `firn-history`
//! judges.
//!
//! `docs/internals/sim.md` lists the checks of each run.

pub mod admission;
pub mod archive_recovery;
pub mod bank;
pub mod bit_rot;
pub mod bulk_loads;
pub mod compaction;
pub mod concurrent;
pub mod crash;
pub mod damaged_files;
pub mod failure;
pub mod faults;
pub mod model;
pub mod point_in_time;
pub mod scale;
pub mod split_env;
pub mod tiny_options;
pub mod world;

pub use failure::Failure;
