//! The objects of a target.
//!
//! - `files/<name>-<checksum>`: a table file; `files/<name>.<number>-<checksum>`: a piece of a file
//!   that changes ([`super::pieces`]). The name identifies the content, so an object is sent once
//!   for all backups that hold it. It appears when it is complete and its checksum was compared.
//! - `backups/<id>-<checksum>.json`: one backup: all its files, their objects, definitions and
//!   positions. The checksum is that of the object.
//! - `running/<id>`: the mark of a backup that is running or was cut short; `running/prune-<id>`:
//!   the mark of a prune ([`super::in_progress`]).
//!
//! Each backup is complete by itself; there is no chain.

use super::definition_names::{is_database, is_definition, is_plain};
use firn::backup::CHECKPOINT_FILE;
use firn::base::{Error, ErrorKind, Result};
use firn::env::{Env, MemEnv};
use firn::store::parse_file_name;
use firn::version::{ManifestState, load, parse_manifest_name};
use firn::wal::parse_segment_name;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// Version of the format of backups.
pub const FORMAT: u32 = 1;

/// A position in the binary logs of the server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// Binary log of this server; empty without one.
    pub binlog_file: String,
    /// Position in it.
    pub binlog_pos: u64,
    /// `@@gtid_binlog_pos`.
    pub gtid_binlog_pos: String,
    /// `@@gtid_slave_pos`: where a replica stood.
    pub gtid_slave_pos: String,
    /// Binary log of its primary; empty if the server was no replica.
    pub source_file: String,
    /// Position in it.
    pub source_pos: u64,
}

/// Consecutive bytes: offset and length.
pub type ByteRange = (u64, u64);

/// An object, and the parts of a file that it holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// The object.
    pub object: String,
    /// The ranges of the file that its bytes fill, in order.
    pub runs: Vec<ByteRange>,
    /// XXH3-64 of the object, hexadecimal.
    pub checksum: String,
}

impl Piece {
    /// Bytes of the object.
    pub fn len(&self) -> u64 {
        self.runs.iter().map(|(_, len)| len).sum()
    }
}

/// A file of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredFile {
    /// Name in the engine's directory.
    pub name: String,
    /// Bytes of the file.
    pub size: u64,
    /// Its content; all other bytes are zeros.
    pub pieces: Vec<Piece>,
}

impl StoredFile {
    /// Whether every piece is an object below `files/` and lies within the file.
    fn is_sound(&self) -> bool {
        let within =
            |&(at, len): &ByteRange| at.checked_add(len).is_some_and(|end| end <= self.size);
        self.pieces.iter().all(|piece| {
            let named = piece.object.strip_prefix("files/").is_some_and(is_plain);
            let sum = u64::from_str_radix(&piece.checksum, 16).is_ok();
            named && sum && piece.runs.iter().all(within)
        })
    }
}

/// A table of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredTable {
    /// Its indexes.
    pub indexes: Vec<u32>,
}

/// One backup.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Backup {
    /// [`FORMAT`].
    pub format: u32,
    /// Its name: the time it was taken.
    pub id: String,
    /// When it was taken, milliseconds since 1970.
    pub taken_ms: u64,
    /// `VERSION()` of the server; empty for a stopped one.
    pub server_version: String,
    /// The last commit in it.
    pub seqno: u64,
    /// Positions of the binary logs at that commit; none for a stopped server.
    pub position: Option<Position>,
    /// Time that commits of the server waited, milliseconds.
    pub pause_ms: f64,
    /// Files of the engine.
    pub files: Vec<StoredFile>,
    /// Small files of the engine, hexadecimal, by name.
    pub small: BTreeMap<String, String>,
    /// Definitions of the server, hexadecimal, by path in its data directory.
    pub definitions: BTreeMap<String, String>,
    /// The engine's tables, by name.
    pub tables: BTreeMap<String, StoredTable>,
    /// Bytes that were sent for it.
    pub sent_bytes: u64,
    /// The archive in which its log goes on, if there is one.
    #[serde(default)]
    pub archive: Option<String>,
    /// Everything in it was committed before this time, milliseconds since 1970.
    #[serde(default)]
    pub cut_ms: u64,
}

impl Backup {
    /// Bytes of all its files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.size).sum()
    }

    /// A name in it that could lead out of the directory that it is restored to, if there is one.
    pub fn foreign_name(&self) -> Option<&str> {
        let file =
            |name: &str| parse_file_name(name).is_some() || parse_segment_name(name).is_some();
        let small = |name: &str| {
            ["CURRENT", CHECKPOINT_FILE].contains(&name) || parse_manifest_name(name).is_some()
        };
        let definition = |path: &str| {
            path.split_once('/')
                .is_some_and(|(database, file)| is_database(database) && is_definition(file))
        };
        let files = self.files.iter();
        let named = files.map(|f| (&f.name, file(&f.name) && f.is_sound()));
        let small = self.small.keys().map(|name| (name, small(name)));
        let definitions = self.definitions.keys();
        let mut all = named
            .chain(small)
            .chain(definitions.map(|path| (path, definition(path))));
        all.find(|(_, good)| !good).map(|(name, _)| name.as_str())
    }

    /// The state that its manifest describes.
    ///
    /// # Errors
    /// `Corruption` if that cannot be read.
    pub fn state(&self) -> Result<ManifestState> {
        let (env, dir) = (MemEnv::new(), Path::new("/"));
        for (name, digits) in &self.small {
            env.create(&dir.join(name))?.append(&unhex(digits)?)?;
        }
        let missing = || Error::corruption("CURRENT", 0, "the backup has none");
        Ok(load(&env, dir)?.ok_or_else(missing)?.state)
    }

    /// The last segment of its log.
    pub fn last_segment(&self) -> u64 {
        let names = self.files.iter().map(|file| file.name.as_str());
        names.filter_map(parse_segment_name).max().unwrap_or(0)
    }

    /// All its objects.
    pub fn pieces(&self) -> impl Iterator<Item = &Piece> {
        self.files.iter().flat_map(|file| &file.pieces)
    }
}

/// The bytes that hexadecimal digits stand for.
pub fn unhex(digits: &str) -> Result<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes: Option<Vec<u8>> = pairs
        .map(|pair| (pair.len() == 2).then(|| byte(pair)).flatten())
        .collect();
    bytes.ok_or_else(|| Error::corruption("backup", 0, "no hexadecimal digits"))
}

/// A time as `20260131T235959Z`, from seconds since 1970.
pub fn timestamp(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Days from 1 March of year 0, in eras of 400 years.
    let z = days + 719_468;
    let (era, day) = (z / 146_097, z % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

/// The statements that start a replica from here.
pub fn position_text(position: Option<&Position>) -> String {
    let Some(position) = position else {
        return String::new();
    };
    let mut text = String::new();
    if !position.binlog_file.is_empty() {
        let _ = writeln!(
            text,
            "binary log: CHANGE MASTER TO MASTER_LOG_FILE='{}', MASTER_LOG_POS={};",
            position.binlog_file, position.binlog_pos
        );
        let _ = writeln!(
            text,
            "GTID: SET GLOBAL gtid_slave_pos='{}';",
            position.gtid_binlog_pos
        );
    }
    if !position.source_file.is_empty() {
        let _ = writeln!(
            text,
            "of its primary: CHANGE MASTER TO MASTER_LOG_FILE='{}', MASTER_LOG_POS={};  gtid_slave_pos='{}'",
            position.source_file, position.source_pos, position.gtid_slave_pos
        );
    }
    text
}

/// Whether a directory can take a restored copy: nothing in it would be overwritten.
pub fn busy(what: &Path) -> Error {
    let message = format!("{} is there already", what.display());
    Error::new(ErrorKind::AlreadyExists, message)
}
