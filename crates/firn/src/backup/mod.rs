//! Copies of a database in use: checkpoints, and the archive of its log.

mod archive;
mod checkpoint;
mod files;

pub use archive::{
    ARCHIVE_FILE, Archiver, ArchiverParts, ArchiverStats, Archiving, Coverage, Destination, Names,
    Place, Point, Reached, archive_of, archive_owner, archived_segments, begin_archiving, coverage,
    find_point, names_in,
};
pub use checkpoint::{CHECKPOINT_FILE, Checkpoint, CheckpointInfo, Parts, checkpoint};
