//! Recovers a database to a point, from a checkpoint that serves as its backup and from the later
//! segments in the log archive.

use firn::backup::{RecoveryTarget, archived_segments, find_point};
use firn::base::options::Options;
use firn::base::{Error, Result, Seqno};
use firn::db::Db;
use firn::env::{Env, ReadClass};
use firn::store::{FileKind, file_name};
use firn::wal::{SegmentId, parse_segment_name, segment_name};
use std::path::Path;
use std::sync::Arc;

/// Directory of the log archive.
pub const ARCHIVE: &str = "/archive";

/// Number of the last log segment in `backup`; 0 if the backup holds none.
///
/// # Errors
/// Those of listing the directory: `Io`, and `NotFound` if it does not exist.
pub fn last_segment(env: &dyn Env, backup: &Path) -> Result<SegmentId> {
    let names = env.list_dir(backup)?;
    let ids = names.iter().filter_map(|name| parse_segment_name(name));
    Ok(ids.max().unwrap_or(0))
}

/// Copies a file and syncs the copy; does nothing if `from` does not exist.
fn fetch(env: &dyn Env, from: &Path, to: &Path) -> Result<()> {
    if env.exists(from)? {
        let file = env.open(from)?;
        let mut bytes = vec![0; file.size()? as usize];
        file.read_exact_at(ReadClass::Backup, 0, &mut bytes)?;
        let mut copy = env.create(to)?;
        copy.append(&bytes)?;
        copy.sync()?;
    }
    Ok(())
}

/// Restores `backup`, whose last commit is `seqno`, into `dir`, and replays the archive up to
/// `wanted`. Returns the open database and the seqno that it reached.
///
/// # Errors
/// `NotFound` if the archive lacks segments before the point or ends before it; `Corruption` and
/// `Unsupported` if an archived segment or file is damaged or of a newer format; `Io` and `NoSpace`
/// from copying files; and those of opening the database.
pub fn recover(
    env: &Arc<dyn Env>,
    backup: &Path,
    seqno: Seqno,
    wanted: &RecoveryTarget,
    dir: &Path,
    options: &Options,
) -> Result<(Arc<Db>, Seqno)> {
    let archive = Path::new(ARCHIVE);
    let last = last_segment(&**env, backup)?;
    let reached = find_point(&**env, archive, last, seqno, wanted)?;
    env.create_dir_all(dir)?;
    let fetch_from = |from: &Path, name: &str| fetch(&**env, &from.join(name), &dir.join(name));
    for name in env.list_dir(backup)? {
        fetch_from(backup, &name)?;
    }
    for id in reached.names.files.keys() {
        fetch_from(archive, &file_name(FileKind::Sst, *id))?;
    }
    for id in &reached.names.blobs {
        fetch_from(archive, &file_name(FileKind::Blob, *id))?;
    }
    let segments = archived_segments(&**env, archive)?;
    for id in segments
        .into_iter()
        .filter(|id| *id > last && *id <= reached.point.segment)
    {
        fetch_from(archive, &segment_name(id))?;
    }
    env.sync_dir(dir)?;
    let options = Options {
        log_archive_dir: None,
        ..options.clone()
    };
    let db = Db::recover_to(Arc::clone(env), dir, options, reached.point)?;
    let last = db.context().super_versions.latest().seqno;
    if last != reached.seqno {
        let message = format!("recovered to {last}, expected {}", reached.seqno);
        return Err(Error::invalid(message));
    }
    db.retire_unknown_indexes()?;
    Ok((db, reached.seqno))
}
