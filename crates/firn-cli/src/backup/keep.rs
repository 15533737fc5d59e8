//! `firn backups`, `firn backup --verify`, `firn prune`: what a target holds, whether it is sound, what goes.

use super::archive;
use super::format::{Backup, Entry, entries, unhex};
use super::mark::Mark;
use super::target::{Target, Transfer};
use crate::Outcome;
use crate::args::{ListBackups, Prune};
use crate::output::{Output, bytes, table};
use firn::base::{Error, ErrorKind, Result};
use firn::store::{FileKind, file_name};
use serde::Serialize;
use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;

#[derive(Serialize)]
struct Listed {
    id: String,
    tables: usize,
    bytes: u64,
    sent_bytes: u64,
    pause_ms: f64,
    binlog_file: String,
    binlog_pos: u64,
    gtid: String,
}

#[derive(Serialize)]
struct WithArchive {
    backups: Vec<Listed>,
    archive: Vec<archive::Range>,
}

fn ranges_text(ranges: &[archive::Range]) -> String {
    let row = |range: &archive::Range| {
        let seqno = |seqno: Option<u64>| seqno.map_or_else(String::new, |n| n.to_string());
        let time = |time: &Option<String>| time.clone().unwrap_or_default();
        vec![
            time(&range.first_time),
            time(&range.last_time),
            seqno(range.first_seqno),
            seqno(range.last_seqno),
            range.first_segment.to_string(),
            range.last_segment.to_string(),
        ]
    };
    let headings = [
        "archived from",
        "until",
        "commit",
        "to commit",
        "segment",
        "to segment",
    ];
    table(&headings, 2, ranges.iter().map(row).collect())
}

/// Lists the backups of a target.
pub fn list(args: &ListBackups, out: &Output) -> Result<Outcome> {
    let target = Target::open(&args.target, false)?;
    let mut listed = Vec::new();
    let found = entries(&target)?;
    if found.is_empty() {
        return Err(none(&target));
    }
    for entry in found {
        let backup = entry.read(&target)?;
        let position = backup.position.clone().unwrap_or_default();
        listed.push(Listed {
            tables: backup.tables.len(),
            bytes: backup.bytes(),
            sent_bytes: backup.sent_bytes,
            pause_ms: backup.pause_ms,
            binlog_file: position.binlog_file,
            binlog_pos: position.binlog_pos,
            gtid: position.gtid_binlog_pos,
            id: backup.id,
        });
    }
    let text = |listed: &Vec<Listed>| {
        let row = |b: &Listed| {
            let position = match b.binlog_file.is_empty() {
                true => String::new(),
                false => format!("{}:{}", b.binlog_file, b.binlog_pos),
            };
            vec![
                b.id.clone(),
                position,
                b.gtid.clone(),
                b.tables.to_string(),
                bytes(b.bytes),
                bytes(b.sent_bytes),
            ]
        };
        let headings = ["backup", "binary log", "gtid", "tables", "size", "sent"];
        table(&headings, 3, listed.iter().map(row).collect())
    };
    match &args.archive {
        None => out.print(&listed, text),
        Some(archive) => {
            let both = WithArchive {
                archive: archive::ranges(archive)?,
                backups: listed,
            };
            out.print(&both, |both| {
                text(&both.backups) + "\n" + &ranges_text(&both.archive)
            });
        }
    }
    Ok(Outcome::Well)
}

#[derive(Serialize)]
struct Verified {
    sound: bool,
    backups: usize,
    files: usize,
    bytes: u64,
    damaged: Vec<String>,
}

/// Reads everything that the backups name, and compares checksums.
pub fn verify(name: &str, out: &Output) -> Result<Outcome> {
    verify_in(&Target::open(name, false)?, out)
}

/// As [`verify`].
pub fn verify_in(target: &Target, out: &Output) -> Result<Outcome> {
    let mut damaged = Vec::new();
    let mut objects = BTreeMap::new();
    let found = entries(target)?;
    if found.is_empty() {
        return Err(none(target));
    }
    for entry in &found {
        match entry.read(target) {
            Ok(backup) => {
                if let Err(error) = examine(&backup) {
                    damaged.push(format!("backup {}: {error}", backup.id));
                }
                let pieces = backup.pieces();
                objects.extend(pieces.map(|piece| (piece.object.clone(), piece.clone())));
            }
            Err(error) if error.is_corruption() => damaged.push(error.to_string()),
            Err(error) => return Err(error),
        }
    }
    let transfers: Vec<Transfer> = objects
        .into_values()
        .map(|piece| Transfer { piece, file: None })
        .collect();
    let total = transfers.iter().map(|t| t.piece.len()).sum();
    let bar = out.progress("reading", total);
    let read = target.fetch(&transfers, false, &|len| bar.inc(len));
    bar.finish_and_clear();
    for (transfer, read) in transfers.iter().zip(read) {
        match read {
            Ok(()) => {}
            Err(error) if error.is_corruption() => {
                damaged.push(format!("{}: {error}", transfer.piece.object));
            }
            Err(error) => return Err(error),
        }
    }
    let verified = Verified {
        sound: damaged.is_empty(),
        backups: found.len(),
        files: transfers.len(),
        bytes: total,
        damaged,
    };
    out.print(&verified, |v| {
        let mut text = format!(
            "{} backups, {} files of {}: {}\n",
            v.backups,
            v.files,
            bytes(v.bytes),
            if v.sound { "sound" } else { "DAMAGED" }
        );
        for what in &v.damaged {
            let _ = writeln!(text, "  {what}");
        }
        text
    });
    Ok(match verified.sound {
        true => Outcome::Well,
        false => Outcome::Damage,
    })
}

/// A target that should have backups and has none is a wrong one.
fn none(target: &Target) -> Error {
    let message = format!("{} has no backup", target.name());
    Error::new(ErrorKind::NotFound, message)
}

/// What lies in the backup's own object: its definitions, and a manifest that can be loaded.
fn examine(backup: &Backup) -> Result<()> {
    let mut definitions = backup.definitions.values();
    definitions.try_for_each(|digits| unhex(digits).map(drop))?;
    let state = backup.state()?;
    let has = |name: &str| backup.files.iter().any(|file| file.name == name);
    let tables = state.files.keys().map(|id| file_name(FileKind::Sst, *id));
    let uses = state.files.values().flat_map(|file| file.meta.blobs.iter());
    let values = uses.map(|used| {
        let id = state.blobs_moved.get(&used.file).unwrap_or(&used.file);
        file_name(FileKind::Blob, *id)
    });
    match tables.chain(values).find(|name| !has(name)) {
        Some(name) => Err(Error::corruption(name, 0, "the backup does not have it")),
        None => Ok(()),
    }
}

#[derive(Serialize)]
pub struct Pruned {
    pub kept: Vec<String>,
    removed: Vec<String>,
    removed_files: usize,
    removed_bytes: u64,
    /// What went from the archive of the log.
    archive: Option<archive::Removed>,
}

/// Removes the oldest backups, then the files that none of the others names. Cut short, it leaves files that nothing
/// names, which the next one removes.
pub fn prune(args: &Prune, out: &Output) -> Result<Outcome> {
    let target = Target::open(&args.target, false)?;
    let mut pruned = prune_in(&target, args.keep, args.force)?;
    if let Some(archive) = &args.archive {
        let found = entries(&target)?;
        let kept: Result<Vec<_>> = found.iter().map(|entry| entry.read(&target)).collect();
        pruned.archive = Some(archive::prune(archive, &kept?)?);
    }
    out.print(&pruned, |p| {
        let mut text = format!(
            "removed {} backups and {} files of {}, kept {}\n",
            p.removed.len(),
            p.removed_files,
            bytes(p.removed_bytes),
            p.kept.len()
        );
        if let Some(a) = &p.archive {
            let _ = writeln!(
                text,
                "removed {} segments and {} files of {} from the archive",
                a.segments,
                a.files,
                bytes(a.bytes)
            );
        }
        text
    });
    Ok(Outcome::Well)
}

/// As [`prune`].
pub fn prune_in(target: &Target, keep: usize, force: bool) -> Result<Pruned> {
    let mark = Mark::of_prune(target, force)?;
    let pruned = remove_others(target, keep);
    let unmarked = mark.remove();
    let pruned = pruned?;
    unmarked.map(|()| pruned)
}

fn remove_others(target: &Target, keep: usize) -> Result<Pruned> {
    let found = entries(target)?;
    let (old, kept) = found.split_at(found.len().saturating_sub(keep));
    // All that is kept is read first: what cannot be read must not lose its files.
    let mut named = HashSet::new();
    for entry in kept {
        let backup = entry.read(target)?;
        named.extend(backup.pieces().map(|piece| piece.object.clone()));
    }
    old.iter()
        .try_for_each(|entry| target.remove(&entry.object))?;
    let ids = |entries: &[Entry]| entries.iter().map(|entry| entry.id.clone()).collect();
    let mut pruned = Pruned {
        kept: ids(kept),
        removed: ids(old),
        removed_files: 0,
        removed_bytes: 0,
        archive: None,
    };
    for (name, size) in target.list("files")? {
        let object = format!("files/{name}");
        if !named.contains(&object) {
            target.remove(&object)?;
            pruned.removed_files += 1;
            pruned.removed_bytes += size;
        }
    }
    Ok(pruned)
}
