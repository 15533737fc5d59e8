//! `firn backups`, `firn backup --verify`, `firn prune`: what a target holds, whether it is sound, what goes.

use super::format::{Backup, Entry, entries};
use super::target::{Target, Transfer};
use crate::Outcome;
use crate::args::{ListBackups, Prune};
use crate::output::{Output, bytes, table};
use firn::base::{Error, ErrorKind, Result};
use serde::Serialize;
use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;
use std::path::PathBuf;

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

/// Lists the backups of a target.
pub fn list(args: &ListBackups, out: &Output) -> Result<Outcome> {
    let target = Target::open(&args.target, false)?;
    let mut listed = Vec::new();
    for entry in entries(&target)? {
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
    out.print(&listed, |listed| {
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
    });
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
    let target = Target::open(name, false)?;
    let mut damaged = Vec::new();
    let mut objects = BTreeMap::new();
    let found = entries(&target)?;
    for entry in &found {
        match entry.read(&target) {
            Ok(backup) => objects.extend(wanted(&backup)),
            Err(error) if error.is_corruption() => damaged.push(error.to_string()),
            Err(error) => return Err(error),
        }
    }
    let transfers: Vec<Transfer> = objects
        .iter()
        .map(|(object, (len, _))| Transfer {
            object: object.clone(),
            file: PathBuf::new(),
            len: *len,
        })
        .collect();
    let total = transfers.iter().map(|t| t.len).sum();
    let bar = out.progress("reading", total);
    let sums = target.fetch(&transfers, false, &|len| bar.inc(len));
    bar.finish_and_clear();
    for ((object, (_, checksum)), sum) in objects.iter().zip(sums) {
        match sum {
            Ok(sum) if format!("{sum:016x}") == *checksum => {}
            Ok(_) => damaged.push(format!("{object}: not as it was sent")),
            Err(error) if error.is_corruption() => damaged.push(format!("{object}: {error}")),
            Err(error) => return Err(error),
        }
    }
    let verified = Verified {
        sound: damaged.is_empty(),
        backups: found.len(),
        files: objects.len(),
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

/// Objects of a backup: bytes and checksum.
fn wanted(backup: &Backup) -> impl Iterator<Item = (String, (u64, String))> {
    let files = backup.files.iter();
    files.map(|file| (file.object.clone(), (file.stored, file.checksum.clone())))
}

#[derive(Serialize)]
struct Pruned {
    kept: Vec<String>,
    removed: Vec<String>,
    removed_files: usize,
    removed_bytes: u64,
}

/// Removes the oldest backups, then the files that none of the others names. Cut short, it leaves files that nothing
/// names, which the next one removes.
pub fn prune(args: &Prune, out: &Output) -> Result<Outcome> {
    let target = Target::open(&args.target, false)?;
    let running = target.list("running")?;
    if let Some((id, _)) = running.first()
        && !args.force
    {
        let message = format!(
            "backup {id} is under way, and its files are named by nothing yet; --force if it was cut short"
        );
        return Err(Error::new(ErrorKind::Busy, message));
    }
    let found = entries(&target)?;
    let from = found.len().saturating_sub(args.keep);
    let (old, kept): (&[Entry], &[Entry]) = found.split_at(from);
    // All that is kept is read first: what cannot be read must not lose its files.
    let mut named = HashSet::new();
    for entry in kept {
        let backup = entry.read(&target)?;
        named.extend(backup.files.into_iter().map(|file| file.object));
    }
    old.iter()
        .try_for_each(|entry| target.remove(&entry.object))?;
    let mut pruned = Pruned {
        kept: kept.iter().map(|entry| entry.id.clone()).collect(),
        removed: old.iter().map(|entry| entry.id.clone()).collect(),
        removed_files: 0,
        removed_bytes: 0,
    };
    for (name, size) in target.list("files")? {
        let object = format!("files/{name}");
        if !named.contains(&object) {
            target.remove(&object)?;
            pruned.removed_files += 1;
            pruned.removed_bytes += size;
        }
    }
    for (id, _) in running {
        target.remove(&format!("running/{id}"))?;
    }
    out.print(&pruned, |p| {
        format!(
            "removed {} backups and {} files of {}, kept {}\n",
            p.removed.len(),
            p.removed_files,
            bytes(p.removed_bytes),
            p.kept.len()
        )
    });
    Ok(Outcome::Well)
}
