//! A checkpoint: a directory that opens as the database would after a crash at one instant.
//!
//! SSTs are written once, so a second link is as good as a copy. A checkpoint takes neither room
//! nor time in proportion to the data, until compactions replace the files in the database.
//!
//! Steps, in this order:
//! 1. From here until step 5, no file is deleted and no log segment is recycled. This delays
//!    nobody.
//! 2. The log is cut: all commits so far are in segments up to the cut, later commits go into the
//!    next segment.
//! 3. The manifest's state is copied. Steps 2 and 3 share one critical section, in which no edit is
//!    installed. A bulk load first installs its files and then commits their table. A state from
//!    before that edit with a log from after that commit would have the table without its rows.
//!    Neither step does I/O. Commits wait only for the cut, which swaps two buffers.
//! 4. Every SST of the state, and every segment from the state's log number to the cut, is linked
//!    into `target.tmp`, or copied where the file system has no links. So is every other data file
//!    of the database, because a log record may name it, except for files that wait for their
//!    deletion since before step 1. When the checkpoint is opened, the files that neither the
//!    manifest nor the log names are removed.
//! 5. Nothing is held any more, except for objects of the object store. Files that are there are
//!    copied into `target.tmp`, unless the caller leaves them in the store.
//! 6. The state is written to `target.tmp` as a manifest, then that directory is renamed.
//!
//! Linked files must not change afterwards: linked segments are not recycled ([`crate::wal`]),
//! linked blob files get no holes ([`crate::blob`]). A blob file may still grow.
//!
//! Locks: `installs`, then the mutex of the commit pipeline. The caller has taken the mutex of
//! checkpoints and the blob files' link lock ([`CheckpointHold`]), which are released before step
//! 5: copies from the object store may take hours.
//!
//! Rejected: holding `installs` until the checkpoint is complete (flushes would wait for the links,
//! and writers for the flushes); copying the segments (they are not in the page cache, so reading
//! and writing them takes longer than all other steps).

use super::copy_files::link_or_copy;
use crate::base::{Error, ErrorKind, Result, Seqno};
use crate::blob::LinkHold;
use crate::env::{Env, ReadClass};
use crate::store::{FileKind, file_name, parse_file_name};
use crate::version::{
    FileLocation, FileMeta, ManifestState, PlacedFile, VersionSet, create_manifest,
    parse_manifest_name,
};
use crate::wal::{Wal, parse_segment_name};
use crate::write::{OwnedBinlogPosition, Pipeline};
use parking_lot::{Mutex, MutexGuard};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Name of the file in a checkpoint that describes its contents. The database does not read it.
pub const CHECKPOINT_FILE: &str = "CHECKPOINT";

const FIRST_LINE: &str = "firn checkpoint 1";
const LAST_LINE: &str = "end\n";

/// Extension of the directory of an unfinished checkpoint.
const UNFINISHED: &str = "tmp";

/// The parts of a database that a checkpoint needs.
#[derive(Clone, Copy)]
pub struct CheckpointContext<'a> {
    /// Environment of the database and the checkpoint.
    pub env: &'a dyn Env,
    /// Directory of the database.
    pub dir: &'a Path,
    /// Files and manifest of the database.
    pub versions: &'a VersionSet,
    /// Log of the database.
    pub wal: &'a Wal,
    /// Commit pipeline of the database.
    pub pipeline: &'a Pipeline,
    /// The mutex held around every manifest edit that adds or replaces SSTs.
    pub installs: &'a Mutex<()>,
}

/// Locks that are held until a checkpoint has linked all files.
pub struct CheckpointHold<'a> {
    /// Keeps the blob files of the database unchanged. It must not be taken twice: a second read
    /// lock in the same thread deadlocks if a writer began to wait after the first.
    pub blobs: LinkHold<'a>,
    /// Keeps other checkpoints waiting.
    pub turn: MutexGuard<'a, ()>,
}

/// How a checkpoint treats files of the object store.
pub enum RemoteInCheckpoint<'a> {
    /// Copies them, so that the checkpoint needs no store. The closure hears of the bytes copied
    /// and of all that are to be copied; an error of it ends the checkpoint.
    Copied(&'a mut dyn FnMut(u64, u64) -> Result<()>),
    /// Leaves them there. As long as the checkpoint exists, the database deletes no object. The
    /// checkpoint does not stand alone: the caller must copy the objects before it removes it.
    Named,
    /// Makes no checkpoint if there are any: commits wait for it, so that it cannot copy them.
    Refused,
}

/// Contents of a checkpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckpointInfo {
    /// Seqno of the last commit in the checkpoint.
    pub seqno: Seqno,
    /// The last binary log position that a commit up to [`Self::seqno`] has reported. Empty if no
    /// commit has reported one since the database was opened.
    pub binlog: OwnedBinlogPosition,
}

impl CheckpointInfo {
    fn encode(&self) -> String {
        let mut text = format!("{FIRST_LINE}\nseqno {}\n", self.seqno);
        if !self.binlog.name.is_empty() {
            let name = String::from_utf8_lossy(&self.binlog.name);
            let _ = writeln!(text, "binlog {} {name}", self.binlog.pos);
        }
        text + LAST_LINE
    }

    /// Reads the file [`CHECKPOINT_FILE`] of the checkpoint in `dir`.
    ///
    /// # Errors
    /// `NotFound` if `dir` is no checkpoint; `Corruption` if the file is damaged or incomplete;
    /// `Io`.
    pub fn read(env: &dyn Env, dir: &Path) -> Result<Self> {
        let file = env.open(&dir.join(CHECKPOINT_FILE))?;
        let mut bytes = vec![0; file.size()?.min(64 << 10) as usize];
        file.read_exact_at(ReadClass::Backup, 0, &mut bytes)?;
        let info = Self::decode(&String::from_utf8_lossy(&bytes));
        info.ok_or_else(|| Error::corruption(CHECKPOINT_FILE, 0, "not as it was written"))
    }

    fn decode(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        if lines.next() != Some(FIRST_LINE) {
            return None;
        }
        let seqno = lines.next()?.strip_prefix("seqno ")?.parse().ok()?;
        let mut info = Self {
            seqno,
            ..Self::default()
        };
        for line in lines.filter(|line| *line != LAST_LINE.trim_end()) {
            let (pos, name) = line.strip_prefix("binlog ")?.split_once(' ')?;
            info.binlog = OwnedBinlogPosition {
                name: name.as_bytes().to_vec(),
                pos: pos.parse().ok()?,
            };
        }
        (info.encode() == text).then_some(info)
    }
}

/// A finished checkpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// Contents of the checkpoint.
    pub info: CheckpointInfo,
    /// Number of SSTs.
    pub files: u64,
    /// Size of the SSTs, bytes.
    pub file_bytes: u64,
    /// Number of the SSTs that are in the object store.
    pub remote_files: u64,
    /// Number of log segments.
    pub segments: u64,
    /// Bytes copied because the target lies in another file system, or the file in the object
    /// store.
    pub copied_bytes: u64,
    /// Time that commits were held up, microseconds.
    pub held_us: u64,
    /// Total time, microseconds.
    pub took_us: u64,
}

/// Makes a checkpoint in `target`, which must not exist; its parent must. Durable on return.
/// Concurrent calls must have different targets.
///
/// # Errors
/// `AlreadyExists` if `target` exists, or if `target.tmp` exists and has files that do not belong
/// to a database; `NotFound` if the parent of `target` does not exist; `InvalidArgument` if the
/// path has no last name, or if that name ends in `.tmp`; `Unreachable` if a file of the object
/// store cannot be copied; `Unsupported` if such a file is refused; `NoSpace`, `Io` and `Poisoned`.
/// After an error the unfinished copy is removed. If that fails too, the next call for the same
/// target removes it.
pub fn checkpoint(
    parts: CheckpointContext<'_>,
    held: CheckpointHold<'_>,
    target: &Path,
    remote: RemoteInCheckpoint<'_>,
) -> Result<Checkpoint> {
    let env = parts.env;
    let began = env.monotonic_micros();
    if env.exists(target)? {
        let message = format!("{} exists", target.display());
        return Err(Error::new(ErrorKind::AlreadyExists, message));
    }
    let (Some(parent), Some(name)) = (target.parent(), target.file_name()) else {
        let message = format!("{} is no name for a directory", target.display());
        return Err(Error::invalid(message));
    };
    if target
        .extension()
        .is_some_and(|ending| ending == UNFINISHED)
    {
        let message = format!("{}: such a name is of one under way", target.display());
        return Err(Error::invalid(message));
    }
    let parent = match parent.as_os_str().is_empty() {
        true => Path::new("."),
        false => parent,
    };
    if !env.exists(parent)? {
        let message = format!("{}: no such directory", parent.display());
        return Err(Error::new(ErrorKind::NotFound, message));
    }
    let mut unfinished = name.to_owned();
    unfinished.push(".");
    unfinished.push(UNFINISHED);
    let unfinished = parent.join(unfinished);
    if env.exists(&unfinished)? {
        remove_unfinished(env, &unfinished)?;
    }
    env.create_dir_all(&unfinished)?;
    // The one is renamed to the other, so this is the order to look in.
    let mut holders = vec![unfinished.clone()];
    if let RemoteInCheckpoint::Named = remote {
        holders.push(target.to_owned());
    }
    parts.versions.hold_objects_for(holders);
    let made = fill(parts, held, &unfinished, remote).and_then(|checkpoint| {
        env.rename(&unfinished, target)?;
        env.sync_dir(parent)?;
        Ok(checkpoint)
    });
    match made {
        Ok(checkpoint) => Ok(Checkpoint {
            took_us: env.monotonic_micros().saturating_sub(began),
            ..checkpoint
        }),
        Err(error) => {
            // Return the error that made the checkpoint fail, even if the removal fails too.
            let _ = remove_unfinished(env, &unfinished);
            Err(error)
        }
    }
}

fn fill(
    parts: CheckpointContext<'_>,
    held: CheckpointHold<'_>,
    dir: &Path,
    remote: RemoteInCheckpoint<'_>,
) -> Result<Checkpoint> {
    let (mut made, mut state) = link(parts, held, dir)?;
    match remote {
        RemoteInCheckpoint::Copied(each) => {
            made.copied_bytes += copy_remote(parts, dir, &mut state, each)?;
            made.remote_files = 0;
        }
        RemoteInCheckpoint::Refused if made.remote_files > 0 => {
            return Err(Error::unsupported(format_args!(
                "{} table files are in the object store, and would be copied while commits wait: use `firn backup`, or \
                 make the checkpoint without BACKUP STAGE BLOCK_COMMIT",
                made.remote_files
            )));
        }
        RemoteInCheckpoint::Named | RemoteInCheckpoint::Refused => {}
    }
    let mut info = parts.env.create(&dir.join(CHECKPOINT_FILE))?;
    info.append(made.info.encode().as_bytes())?;
    info.sync()?;
    // The objects are the database's to delete, not the checkpoint's.
    state.deferred.clear();
    create_manifest(parts.env, dir, &state)?;
    Ok(made)
}

/// Copies the files of the object store into `dir`: for the checkpoint, they are local ones.
/// Returns their bytes.
fn copy_remote(
    parts: CheckpointContext<'_>,
    dir: &Path,
    state: &mut ManifestState,
    each: &mut dyn FnMut(u64, u64) -> Result<()>,
) -> Result<u64> {
    let is_remote = |meta: &FileMeta| meta.location == FileLocation::ObjectStore;
    let placed = state.files.values_mut();
    let remote: Vec<&mut PlacedFile> = placed.filter(|placed| is_remote(&placed.meta)).collect();
    let total: u64 = remote.iter().map(|placed| placed.meta.size).sum();
    let store = parts.versions.source().store();
    // A copy may take hours: others must leave it its room.
    let room = store.claim_room(dir);
    let mut done: u64 = 0;
    for placed in remote {
        // Others take room during a copy that takes hours.
        let rest = total.saturating_sub(done);
        room.check(rest, "no copy of the files of the object store")?;
        let path = dir.join(file_name(FileKind::Sst, placed.meta.file_id));
        let mut copied = done;
        store.copy_remote(
            &placed.meta.as_remote(),
            ReadClass::Backup,
            || parts.env.create(&path),
            |bytes| {
                let before = copied;
                copied += bytes;
                each(before, total)
            },
        )?;
        done += placed.meta.size;
        Arc::make_mut(&mut placed.meta).location = FileLocation::Local;
    }
    Ok(total)
}

/// Cuts the log, and links all local files.
fn link(
    parts: CheckpointContext<'_>,
    _held: CheckpointHold<'_>,
    dir: &Path,
) -> Result<(Checkpoint, ManifestState)> {
    let files = parts.versions.hold_files();
    let _segments = parts.wal.hold_segments();
    // Make the next segment ready before the cut: filling it with zeros may take long, and commits
    // wait while the log is cut.
    parts.wal.prepare_cut()?;
    let (state, begun) = {
        let _no_install = parts.installs.lock();
        let begun = parts.pipeline.begin_cut(&|| parts.env.monotonic_micros())?;
        (parts.versions.state(), begun)
    };
    let cut = parts.pipeline.finish_cut(begun)?;
    let mut made = Checkpoint {
        info: CheckpointInfo {
            seqno: cut.seqno,
            binlog: cut.binlog,
        },
        held_us: cut.held_us,
        ..Checkpoint::default()
    };
    for (id, placed) in &state.files {
        match placed.meta.location {
            FileLocation::Local => {
                made.copied_bytes += take(parts, dir, &file_name(FileKind::Sst, *id))?;
            }
            FileLocation::ObjectStore => made.remote_files += 1,
        }
        made.files += 1;
        made.file_bytes += placed.meta.size;
    }
    let segments = state.log_number..=cut.segment;
    for name in parts.env.list_dir(parts.dir)? {
        if parse_segment_name(&name).is_some_and(|id| segments.contains(&id)) {
            made.copied_bytes += take(parts, dir, &name)?;
            made.segments += 1;
        } else if parse_file_name(&name).is_some_and(|(kind, id)| match kind {
            FileKind::Sort => false,
            FileKind::Sst => !state.files.contains_key(&id) && !files.was_obsolete(id),
            FileKind::Blob => true,
        }) {
            // Take every data file that the manifest does not name, because a log record may name
            // it. If no log record does (it is the unfinished output of a running job, or has
            // become obsolete since), the open of the checkpoint removes it.
            match take(parts, dir, &name) {
                Err(error) if *error.kind() == ErrorKind::NotFound => {}
                taken => made.copied_bytes += taken?,
            }
        }
    }
    Ok((made, state))
}

/// Links or copies a file of the database into `dir`. Returns the bytes copied.
fn take(parts: CheckpointContext<'_>, dir: &Path, name: &str) -> Result<u64> {
    link_or_copy(parts.env, &parts.dir.join(name), &dir.join(name))
}

/// Removes an unfinished checkpoint, if the directory holds nothing but files of a database.
fn remove_unfinished(env: &dyn Env, dir: &Path) -> Result<()> {
    let names = env.list_dir(dir)?;
    let ours = |name: &String| {
        [CHECKPOINT_FILE, "CURRENT", "CURRENT.tmp"].contains(&name.as_str())
            || parse_manifest_name(name).is_some()
            || parse_segment_name(name).is_some()
            || parse_file_name(name).is_some()
    };
    if let Some(foreign) = names.iter().find(|name| !ours(name)) {
        let foreign: PathBuf = dir.join(foreign);
        let message = format!("{} is in the way", foreign.display());
        return Err(Error::new(ErrorKind::AlreadyExists, message));
    }
    for name in names {
        env.remove(&dir.join(name))?;
    }
    env.remove_dir(dir)
}

#[cfg(test)]
mod tests;
