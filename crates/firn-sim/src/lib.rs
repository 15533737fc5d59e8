//! Model, crash and fault simulation of the firn core.
//!
//! A [`world::World`] drives a database with random work that follows from a seed alone, next to a
//! model of what the database must show: every read of every open snapshot is compared. Runs end in
//! power cuts, kills and injected faults; [`crash`] and [`faults`] say which. [`bank`] has threads:
//! its runs do not repeat exactly, so it checks sums and ledgers instead of a model. [`concurrent`]
//! has threads, too: what they see is a history, which `firn-history` judges.
//!
//! `docs/internals/sim.md` tells what each run checks.

pub mod bank;
pub mod bit_rot;
pub mod bulk_loads;
pub mod compaction;
pub mod concurrent;
pub mod crash;
pub mod failure;
pub mod faults;
pub mod model;
pub mod point_in_time;
pub mod split_env;
pub mod tiny_options;
pub mod world;

pub use failure::Failure;
