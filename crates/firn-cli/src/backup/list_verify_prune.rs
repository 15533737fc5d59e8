//! `firn backups`, `firn backup --verify` and `firn prune`: list, verify and remove the backups of
//! a target.

use super::archive_coverage;
use super::backup_format::{Backup, unhex};
use super::in_progress::InProgress;
use super::stored_backups::{Entry, entries};
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
pub struct Listed {
    pub id: String,
    tables: usize,
    bytes: u64,
    sent_bytes: u64,
    pause_ms: f64,
    binlog_file: String,
    binlog_pos: u64,
    gtid: String,
    /// Whether the backup holds the rest of the server, too.
    with_innodb: bool,
    /// The error of reading the backup; if there is one, all fields but `id` are unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damage: Option<String>,
}

impl Listed {
    fn of(entry: &Entry, read: Result<Backup>) -> Self {
        let damage = read.as_ref().err().map(ToString::to_string);
        let backup = read.unwrap_or_default();
        let position = backup.position.clone().unwrap_or_default();
        Self {
            id: entry.id.clone(),
            tables: backup.tables.len(),
            bytes: backup.bytes(),
            sent_bytes: backup.sent_bytes,
            pause_ms: backup.pause_ms,
            binlog_file: position.binlog_file,
            binlog_pos: position.binlog_pos,
            gtid: position.gtid_binlog_pos,
            with_innodb: !backup.server_files.is_empty(),
            damage,
        }
    }

    fn row(&self) -> Vec<String> {
        let position = match self.binlog_file.is_empty() {
            true => String::new(),
            false => format!("{}:{}", self.binlog_file, self.binlog_pos),
        };
        let known = |text: String| match self.damage {
            Some(_) => "?".to_owned(),
            None => text,
        };
        vec![
            self.id.clone(),
            known(position),
            known(self.gtid.clone()),
            known(match self.with_innodb {
                true => format!("{} and InnoDB", self.tables),
                false => self.tables.to_string(),
            }),
            known(bytes(self.bytes)),
            known(bytes(self.sent_bytes)),
        ]
    }
}

#[derive(Serialize)]
struct WithArchive {
    backups: Vec<Listed>,
    archive: Vec<archive_coverage::SegmentRange>,
}

fn ranges_text(ranges: &[archive_coverage::SegmentRange]) -> String {
    let row = |range: &archive_coverage::SegmentRange| {
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
    let listed = listed(&target)?;
    if listed.is_empty() {
        return Err(none(&target));
    }
    let outcome = match listed.iter().all(|listed| listed.damage.is_none()) {
        true => Outcome::Well,
        false => Outcome::Damage,
    };
    let text = |listed: &Vec<Listed>| {
        let headings = ["backup", "binary log", "gtid", "tables", "size", "sent"];
        let mut text = table(&headings, 3, listed.iter().map(Listed::row).collect());
        for listed in listed {
            if let Some(damage) = &listed.damage {
                let _ = writeln!(text, "backup {} cannot be read: {damage}", listed.id);
            }
        }
        text
    };
    match &args.archive {
        None => out.print(&listed, text),
        Some(archive) => {
            let both = WithArchive {
                archive: archive_coverage::ranges(archive)?,
                backups: listed,
            };
            out.print(&both, |both| {
                text(&both.backups) + "\n" + &ranges_text(&both.archive)
            });
        }
    }
    Ok(outcome)
}

/// The backups of the target, oldest first.
pub fn listed(target: &Target) -> Result<Vec<Listed>> {
    let found = entries(target)?.into_iter();
    let read = found.map(|entry| Listed::of(&entry, entry.read(target)));
    Ok(read.collect())
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

/// The error for a target without backups: the user probably named a wrong target.
fn none(target: &Target) -> Error {
    let message = format!("{} has no backup", target.name());
    Error::new(ErrorKind::NotFound, message)
}

/// Checks the content of the backup's own object: the definitions, and a manifest that loads.
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
    /// Ids of damaged backups that stay, because they are not older than the oldest backup kept, or
    /// because no undamaged backup was removed.
    pub damaged: Vec<String>,
    pub removed: Vec<String>,
    removed_files: usize,
    removed_bytes: u64,
    /// Counts of files removed from the log archive.
    archive: Option<archive_coverage::Removed>,
}

/// Removes the oldest backups, then the files that no remaining backup names. If a prune is cut
/// short, the next one removes the files that it left.
pub fn prune(args: &Prune, out: &Output) -> Result<Outcome> {
    let target = Target::open(&args.target, false)?;
    let mut pruned = prune_in(&target, args.keep, args.force)?;
    if let Some(archive) = &args.archive {
        let kept = read_all(&target)?.good.into_iter();
        let kept: Vec<_> = kept.map(|(_, backup)| backup).collect();
        pruned.archive = Some(archive_coverage::prune(archive, &kept)?);
    }
    out.print(&pruned, |p| {
        let mut text = format!(
            "removed {} backups and {} files of {}, kept {}\n",
            p.removed.len(),
            p.removed_files,
            bytes(p.removed_bytes),
            p.kept.len()
        );
        for id in &p.damaged {
            let _ = writeln!(
                text,
                "backup {id} cannot be read, and stays with what it names still"
            );
        }
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
    Ok(match pruned.damaged.is_empty() {
        true => Outcome::Well,
        false => Outcome::Damage,
    })
}

struct StoredBackups {
    /// Readable backups.
    good: Vec<(Entry, Backup)>,
    damaged: Vec<Entry>,
}

/// Reads the backups.
///
/// # Errors
/// Those of the target; `Unsupported` for a backup of a newer format, whose objects are unknown.
fn read_all(target: &Target) -> Result<StoredBackups> {
    let (mut good, mut damaged) = (Vec::new(), Vec::new());
    for entry in entries(target)? {
        match entry.read(target) {
            Ok(backup) => good.push((entry, backup)),
            Err(error) if error.is_corruption() => damaged.push(entry),
            Err(error) => return Err(error),
        }
    }
    Ok(StoredBackups { good, damaged })
}

/// As [`prune`], on an open target.
pub fn prune_in(target: &Target, keep: usize, force: bool) -> Result<Pruned> {
    let mark = InProgress::of_prune(target, force)?;
    let pruned = remove_others(target, keep);
    let unmarked = mark.remove();
    let pruned = pruned?;
    unmarked.map(|()| pruned)
}

/// Removes all readable backups but the newest `keep`. Damaged backups do not count towards `keep`.
fn remove_others(target: &Target, keep: usize) -> Result<Pruned> {
    // Read all backups before removing anything: files that an unreadable one names must stay.
    let StoredBackups { good, damaged } = read_all(target)?;
    if good.is_empty() && !damaged.is_empty() {
        let what = "nothing is removed: none of the backups can be read";
        return Err(Error::corruption(target.name(), 0, what));
    }
    let (old, kept) = good.split_at(good.len().saturating_sub(keep));
    let oldest = kept.first().map(|(entry, _)| &entry.id);
    // Remove a damaged backup only if it is older than the backups to be kept, and if undamaged
    // backups are removed, too. Otherwise it may be the only backup of its time.
    let is_old = |entry: &Entry| !old.is_empty() && oldest.is_some_and(|oldest| entry.id < *oldest);
    let (old_damaged, damaged): (Vec<_>, Vec<_>) = damaged.into_iter().partition(is_old);
    let mut named = HashSet::new();
    for (_, backup) in kept {
        named.extend(backup.pieces().map(|piece| piece.object.clone()));
    }
    for entry in &damaged {
        named.extend(entry.remains(target)?);
    }
    let old = old.iter().map(|(entry, _)| entry).chain(&old_damaged);
    let removed: Result<Vec<String>> = old
        .map(|entry| target.remove(&entry.object).map(|()| entry.id.clone()))
        .collect();
    let mut pruned = Pruned {
        kept: kept.iter().map(|(entry, _)| entry.id.clone()).collect(),
        damaged: damaged.iter().map(|entry| entry.id.clone()).collect(),
        removed: removed?,
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
