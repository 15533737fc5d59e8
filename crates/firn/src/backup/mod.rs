//! Copies of a database that is in use: checkpoints.

mod checkpoint;

pub use checkpoint::{CHECKPOINT_FILE, Checkpoint, CheckpointInfo, Parts, checkpoint};
