//! A checkpoint: a directory that opens as the database would after a crash at one instant.
//!
//! Files are written once, so a second name is as good as a copy: a checkpoint takes no room and no time
//! that grows with the data, until compactions replace the files in the database.
//!
//! Steps, in this order:
//! 1. From here on no file is deleted and no log segment recycled (nobody is held up by that).
//! 2. The state that the manifest describes is copied, and
//! 3. the log is cut: commits so far end with its segment, later ones go into the next. Between the two no edit of the
//!    manifest is installed: loads of rows write files that the log does not know, and then commit the table that
//!    has them; a state from before with a log from after would have the table without its rows. Both take no I/O, and
//!    only the cut holds up commits, for as long as it takes to swap two buffers.
//! 4. Every file of the state, and every segment from where that state needs the log up to the cut, gets
//!    a second name in `target.tmp`; where the file system cannot, it is copied. So does every other data
//!    file there is: records of the log may name it, and what nothing names goes when the copy is opened.
//! 5. The state becomes a manifest there, then the directory gets its name.
//!
//! Whoever shares a file with a checkpoint must not change what is there: log segments with a second name are not
//! recycled ([`crate::wal`]), blob files get no holes ([`crate::blob`]); that one grows does no harm.
//!
//! Rejected: holding up installs for the whole of it (flushes would wait for the links, writers for the
//! flushes); copying the segments (their bytes are on no page of the cache, since they are written past it:
//! reading and writing them takes longer than all the rest).

use super::files::link_or_copy;
use crate::base::{Error, ErrorKind, Result, Seqno};
use crate::blob::LinkHold;
use crate::env::Env;
use crate::store::{FileKind, file_name, parse_file_name};
use crate::version::{VersionSet, create_manifest, parse_manifest_name};
use crate::wal::{Wal, parse_segment_name};
use crate::write::{BinlogPlace, Pipeline};
use parking_lot::Mutex;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Tells what the checkpoint holds, in its directory. The database does not read it.
pub const CHECKPOINT_FILE: &str = "CHECKPOINT";

const FIRST_LINE: &str = "firn checkpoint 1";
const LAST_LINE: &str = "end\n";

/// Ending of a checkpoint under way.
const UNFINISHED: &str = "tmp";

/// The parts of a database that a checkpoint is made of.
#[derive(Clone, Copy)]
pub struct Parts<'a> {
    /// Where the database and the checkpoint lie.
    pub env: &'a dyn Env,
    /// The database's directory.
    pub dir: &'a Path,
    /// Its files.
    pub versions: &'a VersionSet,
    /// Its log.
    pub wal: &'a Wal,
    /// Its commits.
    pub pipeline: &'a Pipeline,
    /// Its blob files stay as they are. Taken by the caller, once: whoever waits to change them keeps a second
    /// reader out.
    pub blobs: &'a LinkHold<'a>,
    /// Held around every edit of the manifest that adds or replaces tables.
    pub installs: &'a Mutex<()>,
}

/// What a checkpoint holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckpointInfo {
    /// The last commit in it.
    pub seqno: Seqno,
    /// That commit's place in the server's binary log, or that of the last one before it that told; none if
    /// none has since the database was opened.
    pub binlog: BinlogPlace,
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
    /// `NotFound` if `dir` is no checkpoint, `Corruption` if the file is not as it was written.
    pub fn read(env: &dyn Env, dir: &Path) -> Result<Self> {
        let file = env.open(&dir.join(CHECKPOINT_FILE))?;
        let mut bytes = vec![0; file.size()?.min(64 << 10) as usize];
        file.read_exact_at(0, &mut bytes)?;
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
            info.binlog = BinlogPlace {
                name: name.as_bytes().to_vec(),
                pos: pos.parse().ok()?,
            };
        }
        (info.encode() == text).then_some(info)
    }
}

/// A checkpoint that was made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// What it holds.
    pub info: CheckpointInfo,
    /// Table files.
    pub files: u64,
    /// Their bytes.
    pub file_bytes: u64,
    /// Log segments.
    pub segments: u64,
    /// Bytes that had to be copied, since the target lies in another file system.
    pub copied_bytes: u64,
    /// How long commits were held up, microseconds.
    pub held_us: u64,
    /// How long it took in all, microseconds.
    pub took_us: u64,
}

/// Makes a checkpoint in `target`, which must not exist; its parent must. Durable on return. Two at a time
/// must have different targets.
///
/// # Errors
/// `AlreadyExists` if `target` exists, or something foreign under the name it has while it is made;
/// `NotFound` without its parent; errors of the file system, and `Poisoned`. What was made until then is
/// removed if that is possible; a later call for the same target removes it otherwise.
pub fn checkpoint(parts: Parts<'_>, target: &Path) -> Result<Checkpoint> {
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
    let made = fill(parts, &unfinished).and_then(|checkpoint| {
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
            // The error that counts is the first one.
            let _ = remove_unfinished(env, &unfinished);
            Err(error)
        }
    }
}

fn fill(parts: Parts<'_>, dir: &Path) -> Result<Checkpoint> {
    let _files = parts.versions.hold_files();
    let _segments = parts.wal.hold_segments();
    // The slow part of a cut, before anybody waits.
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
        made.copied_bytes += take(parts, dir, &file_name(FileKind::Sst, *id))?;
        made.files += 1;
        made.file_bytes += placed.meta.size;
    }
    let segments = state.log_number..=cut.segment;
    for name in parts.env.list_dir(parts.dir)? {
        if parse_segment_name(&name).is_some_and(|id| segments.contains(&id)) {
            made.copied_bytes += take(parts, dir, &name)?;
            made.segments += 1;
        } else if parse_file_name(&name)
            .is_some_and(|(kind, id)| kind != FileKind::Sort && !state.files.contains_key(&id))
        {
            // Named by a record of the log, made by work under way, or about to be deleted: opening the
            // checkpoint tells, and removes what nothing names.
            match take(parts, dir, &name) {
                Err(error) if *error.kind() == ErrorKind::NotFound => {}
                taken => made.copied_bytes += taken?,
            }
        }
    }
    let mut info = parts.env.create(&dir.join(CHECKPOINT_FILE))?;
    info.append(made.info.encode().as_bytes())?;
    info.sync()?;
    create_manifest(parts.env, dir, &state)?;
    Ok(made)
}

/// Gives a file of the database its name in `dir`, too, or copies it. Returns the bytes copied.
fn take(parts: Parts<'_>, dir: &Path, name: &str) -> Result<u64> {
    link_or_copy(parts.env, &parts.dir.join(name), &dir.join(name))
}

/// Removes what an attempt left behind that was cut short, if it is that: a directory that holds nothing
/// but files of a database.
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
