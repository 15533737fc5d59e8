//! The archive of the log: closed segments, and the files that their records name, in a directory of their own.
//!
//! With a backup it leads to any commit after that backup ([`find_point`], `Db::recover_to`).
//!
//! Steps:
//! 1. Before a record names a file, the file gets a second name in the directory `pending` of the database
//!    ([`crate::store::FileStore::keep`]): compactions may remove the first one long before the segment is closed. A blob file
//!    gets it when it is created. It grows afterwards, under both names; files with two names get no holes.
//! 2. A closed segment whose groups are durable is archived: first everything that is pending, then the segment. So
//!    whatever a segment in the archive names is there, too.
//! 3. Only then the log may release the segment ([`Wal::keep_from`]). While the archive cannot be written, segments stay.
//!
//! Segments go in the order of their ids, and nothing is archived twice: the largest id in the archive says where to go on.
//!
//! Which archive belongs to which database is written in both ([`identity`]): a database that was restored writes other
//! segments under the same names, and must not continue the archive of the one it was restored from.

mod archiver;
mod identity;
mod point;

pub use archiver::{Archiver, ArchiverParts, ArchiverStats};
pub use identity::{
    ARCHIVE_FILE, Archiving, Coverage, archive_of, begin_archiving, coverage,
    owner as archive_owner,
};
pub use point::{Destination, Names, Place, Point, Reached, find_point, names_in};

use crate::base::Result;
use crate::env::Env;
use crate::wal::{SegmentId, parse_segment_name};
use std::path::Path;

/// Ids of the segments in an archive, ascending.
///
/// # Errors
/// Of the file system.
pub fn archived_segments(env: &dyn Env, archive: &Path) -> Result<Vec<SegmentId>> {
    let names = env.list_dir(archive)?;
    let mut ids: Vec<_> = names.iter().filter_map(|n| parse_segment_name(n)).collect();
    ids.sort_unstable();
    Ok(ids)
}
