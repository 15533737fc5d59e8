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
use crate::data_directory::IN_DATADIR;
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

/// Version of the format of backups of the engine alone.
pub const FORMAT: u32 = 1;

/// Version of the format of backups that also hold the rest of the server. A program that does not
/// know it must not restore the engine alone.
pub const FORMAT_WITH_SERVER: u32 = 2;

/// A position in the binary logs of the server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// Name of the server's binary log file; empty if it keeps no binary log.
    pub binlog_file: String,
    /// Position in that file, bytes.
    pub binlog_pos: u64,
    /// `@@gtid_binlog_pos`.
    pub gtid_binlog_pos: String,
    /// `@@gtid_slave_pos`: the position of a replica in its primary's transactions.
    pub gtid_slave_pos: String,
    /// Binary log file of the replica's primary; empty if the server was no replica.
    pub source_file: String,
    /// Position in the primary's file, bytes.
    pub source_pos: u64,
}

/// Offset and length of consecutive bytes.
pub type ByteRange = (u64, u64);

/// An object of the target, and the ranges of a file that it holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// Name of the object.
    pub object: String,
    /// The ranges of the file that the object's bytes fill, in order.
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
    /// Name of the file in the engine's directory.
    pub name: String,
    /// Bytes of the file.
    pub size: u64,
    /// The pieces that hold the file's content; all other bytes of the file are zeros.
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
    /// Ids of the table's indexes.
    pub indexes: Vec<u32>,
}

/// One backup.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Backup {
    /// Version of the format: [`FORMAT`] or [`FORMAT_WITH_SERVER`].
    pub format: u32,
    /// Id of the backup: the time when it was taken.
    pub id: String,
    /// When the backup was taken, milliseconds since 1970.
    pub taken_ms: u64,
    /// `VERSION()` of the server; empty for a backup of a stopped server.
    pub server_version: String,
    /// Seqno of the last commit in the backup.
    pub seqno: u64,
    /// Positions of the binary logs at commit `seqno`; none for a backup of a stopped server.
    pub position: Option<Position>,
    /// Time for which commits of the server had to wait for the backup, milliseconds; 0 if the time
    /// is not known.
    pub pause_ms: f64,
    /// Files of the engine that are stored as objects.
    pub files: Vec<StoredFile>,
    /// The files of the rest of the server, by their paths in its data directory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub server_files: Vec<StoredFile>,
    /// Contents of the engine's small files, hexadecimal, by name.
    pub small: BTreeMap<String, String>,
    /// Definitions that the server keeps, hexadecimal, by path in its data directory.
    pub definitions: BTreeMap<String, String>,
    /// The engine's tables, by name.
    pub tables: BTreeMap<String, StoredTable>,
    /// Bytes that were sent for this backup.
    pub sent_bytes: u64,
    /// Identity of the log archive that continues the backup's log, if there is one.
    #[serde(default)]
    pub archive: Option<String>,
    /// Every commit in the backup was made before this time, milliseconds since 1970.
    #[serde(default)]
    pub cut_ms: u64,
}

impl Backup {
    /// Bytes of all files of the backup.
    pub fn bytes(&self) -> u64 {
        self.all_files().map(|file| file.size).sum()
    }

    fn all_files(&self) -> impl Iterator<Item = &StoredFile> {
        self.files.iter().chain(&self.server_files)
    }

    /// Returns a name in the backup that could lead out of the directory of a restore, if there is
    /// one.
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
        let of_server = |name: &str| name.split('/').all(is_plain) && !name.starts_with(IN_DATADIR);
        let server = self.server_files.iter();
        let named = named.chain(server.map(|f| (&f.name, of_server(&f.name) && f.is_sound())));
        let small = self.small.keys().map(|name| (name, small(name)));
        let definitions = self.definitions.keys();
        let mut all = named
            .chain(small)
            .chain(definitions.map(|path| (path, definition(path))));
        all.find(|(_, good)| !good).map(|(name, _)| name.as_str())
    }

    /// The state of the tree that the backup's manifest describes.
    ///
    /// # Errors
    /// `Corruption` if the manifest cannot be read.
    pub fn state(&self) -> Result<ManifestState> {
        let (env, dir) = (MemEnv::new(), Path::new("/"));
        for (name, digits) in &self.small {
            env.create(&dir.join(name))?.append(&unhex(digits)?)?;
        }
        let missing = || Error::corruption("CURRENT", 0, "the backup has none");
        Ok(load(&env, dir)?.ok_or_else(missing)?.state)
    }

    /// Number of the last log segment in the backup.
    pub fn last_segment(&self) -> u64 {
        let names = self.files.iter().map(|file| file.name.as_str());
        names.filter_map(parse_segment_name).max().unwrap_or(0)
    }

    /// All objects of the backup.
    pub fn pieces(&self) -> impl Iterator<Item = &Piece> {
        self.all_files().flat_map(|file| &file.pieces)
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

/// The statements that start a replica from the backup's positions.
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

/// The error for a directory in which a restored copy would overwrite something.
pub fn busy(what: &Path) -> Error {
    let message = format!("{} is there already", what.display());
    Error::new(ErrorKind::AlreadyExists, message)
}
