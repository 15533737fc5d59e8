//! The log archive: a directory with closed segments and the files that their records name.
//!
//! A backup and the archive together restore the database as it was after any later commit
//! ([`find_point`], `Db::recover_to`).
//!
//! Steps:
//! 1. Before a record names a file, the file is linked into the directory `pending` of the database
//!    ([`crate::store::FileStore::keep`]), because compactions may remove its first name long
//!    before the segment is closed. A blob file is linked when it is created; it grows afterwards
//!    under both names. A file with two names gets no holes.
//! 2. When all groups of a closed segment are durable, the files in `pending` are archived, and
//!    then the segment. So every file that an archived segment names is in the archive.
//! 3. Only then may the log release the segment ([`crate::wal::Wal::keep_from`]). While the archive
//!    cannot be written, segments stay.
//!
//! Segments are archived in the order of their ids, and each only once, so archiving continues
//! after the largest id in the archive.
//!
//! The database records which archive it writes, and the archive records its database
//! (`archive_identity`). A restored database writes new segments under names that the archive has
//! already, so it must not continue the archive that it was restored from.

mod archive_identity;
mod archiver;
mod recovery_point;

pub use archive_identity::{
    ARCHIVE_FILE, ArchiveIdentity, Coverage, archive_of, begin_archiving, coverage,
    owner as archive_owner,
};
pub use archiver::{Archiver, ArchiverContext, ArchiverStats};
pub use recovery_point::{
    BinlogCoordinates, NamedFiles, ReachedPoint, RecoveryPoint, RecoveryTarget, find_point,
    names_in,
};

use crate::base::Result;
use crate::env::Env;
use crate::wal::{SegmentId, parse_segment_name};
use std::path::Path;

/// Ids of the segments in an archive, ascending.
///
/// # Errors
/// `NotFound` if there is no such directory; `Io`.
pub fn archived_segments(env: &dyn Env, archive: &Path) -> Result<Vec<SegmentId>> {
    let names = env.list_dir(archive)?;
    let mut ids: Vec<_> = names.iter().filter_map(|n| parse_segment_name(n)).collect();
    ids.sort_unstable();
    Ok(ids)
}
