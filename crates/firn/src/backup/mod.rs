//! Copies of a database in use: checkpoints, and the archive of its log.

mod log_archive;
mod checkpoint;
mod copy_files;

pub use log_archive::{
    ARCHIVE_FILE, Archiver, ArchiverContext, ArchiverStats, ArchiveIdentity, Coverage, RecoveryTarget, NamedFiles,
    BinlogCoordinates, RecoveryPoint, ReachedPoint, archive_of, archive_owner, archived_segments, begin_archiving, coverage,
    find_point, names_in,
};
pub use checkpoint::{CHECKPOINT_FILE, Checkpoint, CheckpointInfo, CheckpointContext, checkpoint};
