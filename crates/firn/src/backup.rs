//! Copies of a database in use: checkpoints, and the archive of its log.

mod checkpoint;
mod copy_files;
mod log_archive;

pub use checkpoint::{
    CHECKPOINT_FILE, Checkpoint, CheckpointContext, CheckpointHold, CheckpointInfo,
    RemoteInCheckpoint, checkpoint,
};
pub use log_archive::{
    ARCHIVE_FILE, ArchiveIdentity, Archiver, ArchiverContext, ArchiverStats, BinlogCoordinates,
    Coverage, NamedFiles, ReachedPoint, RecoveryPoint, RecoveryTarget, archive_of, archive_owner,
    archived_segments, begin_archiving, coverage, find_point, names_in,
};
