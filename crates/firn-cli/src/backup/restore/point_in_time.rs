//! Brings a backup to a point with the log archive (`firn restore … --archive`).
//!
//! The copy is recovered in a staging directory, and renamed when it is complete
//! ([`super::staging`]).

use super::engine_directory::whole;
use super::is_named;
use super::prepared_transactions::end_prepared;
use super::staging::Stage;
use crate::Outcome;
use crate::args::{Restore, Until};
use crate::backup::archive_coverage::{local_time, stored};
use crate::backup::backup_format::{Backup, unhex};
use crate::backup::source::{Definitions, base_table, belonging};
use crate::backup::stored_backups::entries;
use crate::backup::target::Target;
use crate::output::{Output, bytes};
use chrono::{DateTime, Local, NaiveDateTime, TimeZone};
use firn::backup::{
    BinlogCoordinates, ReachedPoint, RecoveryTarget, archive_owner, archived_segments, find_point,
};
use firn::base::options::Options;
use firn::base::{Error, ErrorKind, Result};
use firn::catalog::{CatalogState, TableEntry};
use firn::db::{Db, ReadOnlyDb, visible};
use firn::env::{Env, PosixEnv};
use firn::store::FileKind;
use firn::wal::segment_name;
use serde::Serialize;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

#[derive(Serialize)]
struct Report {
    id: String,
    directory: String,
    tables: Vec<String>,
    bytes: u64,
    /// The last seqno in the restored database.
    seqno: u64,
    time: Option<String>,
    binlog_file: String,
    binlog_pos: u64,
    rolled_back: usize,
    notes: Vec<String>,
}

/// Restores a backup, and replays the archived log on it up to a point.
pub fn run(args: &Restore, archive: &Path, target: &Target, out: &Output) -> Result<Outcome> {
    let wanted = destination(&args.until)?;
    let env: Arc<dyn Env> = Arc::new(PosixEnv::new());
    let owner = archive_owner(&*env, archive)?;
    let mut notes = Vec::new();
    let backup = choose(target, &args.backup, &owner, &wanted, &mut notes)?;
    if !backup.server_files.is_empty() && args.table.is_empty() {
        return Err(Error::unsupported(format_args!(
            "backup {} holds InnoDB, too, which a log archive does not bring to a point: restore it without --archive and \
             apply the binary log from its position, or name FIRN tables with --table",
            backup.id
        )));
    }
    let reached = find_point(&*env, archive, backup.last_segment(), backup.seqno, &wanted)?;

    let stage = Stage::begin(&args.to, &Definitions::new(), false, &|_| Ok(()))?;
    let work = stage.engine();
    let mut restored = whole(target, &backup, &work, out)?;
    let then = tables_of(&env, &work)?;
    restored += fetch_archived(&env, archive, &backup, &reached, &work)?;

    let options = Options {
        background_jobs: 0,
        ..Options::default()
    };
    let db = Db::recover_to(Arc::clone(&env), &work, options, reached.point)?;
    if visible(&db) != reached.seqno {
        let message = format!(
            "recovered to commit {}, expected {}",
            visible(&db),
            reached.seqno
        );
        return Err(Error::corruption("log", 0, message));
    }
    db.retire_unknown_indexes()?;
    for (seqno, what) in &reached.doubtful {
        notes.push(format!(
            "commit {seqno} ({what}) was made shortly before this place was reached, and may stand behind it in the binary \
             log: --until-seqno {} leads to the state before it",
            seqno.saturating_sub(1)
        ));
    }
    let rolled_back = end_prepared(&db, args.table.is_empty(), &mut notes)?;
    let entries = keep_tables(&db, &args.table)?;
    let definitions = definitions_of(&entries, &backup, &then, &mut notes)?;
    while db.compact_once()? {}
    db.close()?;
    drop(db);
    stage.put_in_place(&definitions, &[])?;

    let (binlog_file, binlog_pos) = reached_binlog(&reached, &backup);
    let report = Report {
        id: backup.id.clone(),
        directory: args.to.display().to_string(),
        tables: entries.iter().map(|entry| entry.name.clone()).collect(),
        bytes: restored,
        seqno: reached.seqno,
        time: reached.wall_ms.map(local_time),
        binlog_file,
        binlog_pos,
        rolled_back,
        notes,
    };
    out.print(&report, text);
    Ok(Outcome::Well)
}

fn text(report: &Report) -> String {
    let mut text = format!(
        "backup {} and the archive are in {}: {} tables, {}\nreached commit {}",
        report.id,
        report.directory,
        report.tables.len(),
        bytes(report.bytes),
        report.seqno
    );
    if let Some(time) = &report.time {
        let _ = write!(text, ", {time}");
    }
    if !report.binlog_file.is_empty() {
        let (file, pos) = (&report.binlog_file, report.binlog_pos);
        let _ = write!(text, ", binary log {file}:{pos}");
    }
    text.push('\n');
    if report.rolled_back > 0 {
        let _ = writeln!(
            text,
            "{} transactions were prepared and are rolled back",
            report.rolled_back
        );
    }
    for note in &report.notes {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

/// The last position in the server's binary log that the copy knows: the last position that a
/// replayed commit reported, or otherwise the backup's position. The name is empty if there is no
/// such position.
fn reached_binlog(reached: &ReachedPoint, backup: &Backup) -> (String, u64) {
    match (&reached.binlog, &backup.position) {
        (Some(at), _) => (at.name.clone(), at.pos),
        (None, Some(at)) => (at.binlog_file.clone(), at.binlog_pos),
        (None, None) => (String::new(), 0),
    }
}

fn destination(until: &Until) -> Result<RecoveryTarget> {
    if let Some(text) = &until.until_time {
        return parse_time(text).map(RecoveryTarget::Time);
    }
    if let Some(text) = &until.until_binlog {
        let place = text.rsplit_once(':').and_then(|(name, pos)| {
            let numbered = name.rsplit_once('.')?.1.parse::<u64>().is_ok();
            Some(BinlogCoordinates {
                name: name.to_owned(),
                pos: pos.parse().ok().filter(|_| numbered)?,
            })
        });
        let wrong = || Error::invalid(format_args!("{text} is no place as bin.000007:1234"));
        return place.ok_or_else(wrong).map(RecoveryTarget::Binlog);
    }
    Ok(until
        .until_seqno
        .map_or(RecoveryTarget::End, RecoveryTarget::Seqno))
}

/// Milliseconds since 1970 of a time that the user gave.
pub fn parse_time(text: &str) -> Result<u64> {
    let wrong = |what: &str| Error::invalid(format_args!("{text} {what}"));
    if let Ok(time) = DateTime::parse_from_rfc3339(text) {
        return u64::try_from(time.timestamp_millis()).map_err(|_| wrong("lies before 1970"));
    }
    let formats = ["%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M:%S%.f"];
    let local = formats
        .iter()
        .find_map(|format| NaiveDateTime::parse_from_str(text, format).ok())
        .ok_or_else(|| wrong("is no time as 2026-11-22 13:00:00"))?;
    let time = Local
        .from_local_datetime(&local)
        .single()
        .ok_or_else(|| wrong("is no time, or two, where clocks change: give it with an offset"))?;
    u64::try_from(time.timestamp_millis()).map_err(|_| wrong("lies before 1970"))
}

/// The newest backup from before the point `wanted`, or the one with `id`. Unreadable backups are
/// skipped with a note.
pub(in crate::backup) fn choose(
    target: &Target,
    id: &str,
    owner: &str,
    wanted: &RecoveryTarget,
    notes: &mut Vec<String>,
) -> Result<Backup> {
    let mut foreign = 0;
    let mut unread = Vec::new();
    let mut backups = Vec::new();
    for entry in entries(target)?.iter().rev() {
        if id != "latest" && entry.id != id {
            continue;
        }
        match entry.read(target) {
            Ok(backup) if backup.archive.as_deref() == Some(owner) => backups.push(backup),
            Ok(_) => foreign += 1,
            Err(error) if id == "latest" => {
                unread.push(format!("backup {} is left out: {error}", entry.id));
            }
            Err(error) => return Err(error),
        }
    }
    notes.append(&mut unread);
    if let Some(at) = newest_before(&backups, wanted) {
        return Ok(backups.swap_remove(at));
    }
    let what = match (backups.last(), foreign) {
        (Some(oldest), _) => {
            let position = oldest.position.clone().unwrap_or_default();
            format!(
                "the point lies before backup {}: it ends with commit {}, {}, {}:{}",
                oldest.id,
                oldest.seqno,
                local_time(oldest.cut_ms),
                position.binlog_file,
                position.binlog_pos
            )
        }
        (None, 0) if !notes.is_empty() => notes.join("; "),
        (None, 0) => format!("{} has no backup {id}", target.name()),
        (None, n) => format!(
            "{n} backups in {} are not followed by this archive: they were taken of another server, or before the \
             log was archived",
            target.name()
        ),
    };
    Err(Error::new(ErrorKind::NotFound, what))
}

/// Finds the newest of `backups` that ends before `wanted`, and returns its index. `backups` are
/// ordered newest first.
fn newest_before(backups: &[Backup], wanted: &RecoveryTarget) -> Option<usize> {
    match wanted {
        RecoveryTarget::End => (!backups.is_empty()).then_some(0),
        RecoveryTarget::Seqno(seqno) => backups.iter().position(|b| b.seqno <= *seqno),
        RecoveryTarget::Time(ms) => backups.iter().position(|b| b.cut_ms <= *ms),
        RecoveryTarget::Binlog(wanted) => {
            let places = backups.iter().map(|backup| {
                let at = backup.position.as_ref()?;
                let place = BinlogCoordinates {
                    name: at.binlog_file.clone(),
                    pos: at.binlog_pos,
                };
                (!place.name.is_empty()).then_some(place)
            });
            let places: Vec<_> = places.collect();
            let to = |place: &Option<BinlogCoordinates>| {
                place.as_ref().and_then(|place| place.to(wanted))
            };
            let before = |place| to(place).is_some_and(Ordering::is_le);
            if let Some(at) = places.iter().position(before) {
                return Some(at);
            }
            // No backup has an earlier position in a binary log of this name. Take the newest one
            // that is older than all backups with this name: the server may have renamed its binary
            // log after that backup, and then the archive has the name.
            let first = places.iter().rposition(|place| to(place).is_some());
            let from = first.map_or(0, |first| first + 1);
            let older = places[from..].iter().position(Option::is_some);
            older.map(|at| from + at)
        }
    }
}

/// Copies to `work` the archived segments up to the point, and the files that they name.
fn fetch_archived(
    env: &Arc<dyn Env>,
    archive: &Path,
    backup: &Backup,
    reached: &ReachedPoint,
    work: &Path,
) -> Result<u64> {
    let moved = backup.state()?.blobs_moved;
    let mut copied = 0;
    let mut copy = |from: &Path, name: &str| {
        let to = work.join(name);
        let done = fs::copy(from, &to).map_err(|e| Error::io(&e, from.display()))?;
        copied += done;
        Ok::<(), Error>(())
    };
    let missing = |name: &str| {
        let message = format!("{name} is missing in the archive, and the log names it");
        Error::new(ErrorKind::NotFound, message)
    };
    for (id, meta) in &reached.names.files {
        let from = stored(archive, FileKind::Sst, *id);
        let name = firn::store::file_name(FileKind::Sst, *id);
        match work.join(&name).exists() {
            true => {}
            false if from.exists() => copy(&from, &name)?,
            false => return Err(missing(&name)),
        }
        let content = fs::read(work.join(&name)).map_err(|e| Error::io(&e, &name))?;
        if xxh3_64(&content) != meta.checksum {
            let what = "the file is not as it was written: its checksum differs";
            return Err(Error::corruption(name, 0, what));
        }
    }
    for id in &reached.names.blobs {
        // Prefer the archive's copy of a blob file: this copy may have values that were still being
        // written when the backup was taken.
        let from = stored(archive, FileKind::Blob, *id);
        let name = firn::store::file_name(FileKind::Blob, *id);
        match from.exists() {
            true => copy(&from, &name)?,
            false if work.join(&name).exists() || moved.contains_key(id) => {}
            false => return Err(missing(&name)),
        }
    }
    let later = backup.last_segment() + 1..=reached.point.segment;
    for id in archived_segments(&**env, archive)? {
        if later.contains(&id) {
            let name = segment_name(id);
            copy(&archive.join(&name), &name)?;
        }
    }
    let synced = fs::File::open(work).and_then(|dir| Ok(rustix::fs::syncfs(&dir)?));
    synced.map_err(|e| Error::io(&e, work.display()))?;
    Ok(copied)
}

/// Returns the wanted tables. Drops all other tables, and temporary copies of unfinished DDL.
fn keep_tables(db: &Db, wanted: &[String]) -> Result<Vec<Arc<TableEntry>>> {
    let all = db.catalog().list("");
    let table = |name: &str| name.split('/').nth(1).unwrap_or_default().to_owned();
    // Refuse a point between two renames of an ALTER or an EXCHANGE PARTITION: a table has been
    // renamed away, and no table has its name.
    if let Some(copy) = db.catalog().known().only_copy() {
        let message = format!(
            "an ALTER TABLE in database {} was putting a table in place at this very point, and a table would be \
             missing: choose a point some milliseconds before or after",
            copy.split('/').next().unwrap_or_default()
        );
        return Err(Error::unsupported(message));
    }
    let is_wanted = |name: &str| {
        !table(name).starts_with("#sql")
            && (wanted.is_empty() || wanted.iter().any(|w| is_named(name, w)))
    };
    for name in wanted {
        if !all.iter().any(|t| is_named(&t.name, name)) {
            let message = format!("there is no FIRN table {name} at the point");
            return Err(Error::new(ErrorKind::NotFound, message));
        }
    }
    let (kept, gone): (Vec<_>, Vec<_>) = all.iter().cloned().partition(|t| is_wanted(&t.name));
    gone.iter()
        .try_for_each(|t| db.catalog().drop_table(&t.name))?;
    Ok(kept)
}

/// The tables of a restored directory, before the archive adds anything.
fn tables_of(env: &Arc<dyn Env>, dir: &Path) -> Result<CatalogState> {
    let db = ReadOnlyDb::open(Arc::clone(env), dir)?;
    let log = db.log(&db.tree()?)?;
    db.tables(&log.point)
}

/// The definitions that the server needs for the tables. A table's own definition comes from the
/// catalog at the restored point. Definitions of triggers, views and the like come from the backup;
/// `then` is the catalog of that backup.
fn definitions_of(
    entries: &[Arc<TableEntry>],
    backup: &Backup,
    then: &CatalogState,
    notes: &mut Vec<String>,
) -> Result<Definitions> {
    let mut stored = Definitions::new();
    for (path, digits) in &backup.definitions {
        stored.insert(path.clone(), unhex(digits)?);
    }
    let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
    let mut definitions = belonging(&stored, &names, true);
    let mut parts: BTreeMap<&str, Vec<&TableEntry>> = BTreeMap::new();
    for entry in entries {
        parts
            .entry(base_table(&entry.name))
            .or_default()
            .push(entry);
    }
    let mut unknown = Vec::new();
    for (base, entries) in parts {
        let first = entries[0];
        let is_known = first.name == base || same_partitions(base, &entries, backup);
        let is_as_then = is_known && is_unchanged(&entries, then);
        if is_as_then && definitions.contains_key(&format!("{base}.frm")) {
            // Keep the definition file of the backup, because the table has not changed since. The
            // file may be newer than the definition in the catalog, because the engine keeps no
            // definition of partitions that were changed before the backup.
            continue;
        }
        let is_one = entries
            .iter()
            .all(|entry| entry.version == first.version && entry.frm == first.frm);
        if !is_known || !is_one || first.frm.is_empty() {
            unknown.push(base.replacen('/', ".", 1));
            continue;
        }
        definitions.insert(format!("{base}.frm"), first.frm.clone());
    }
    if !unknown.is_empty() {
        return Err(Error::unsupported(format_args!(
            "the partitions of {} were changed after backup {}, or were being changed at the point: the archive does \
             not have their definition; take a later backup, or name the other tables with --table",
            unknown.join(", "),
            backup.id
        )));
    }
    let of_triggers = |path: &&String| path.ends_with(".TRG");
    let lost: Vec<_> = stored
        .keys()
        .filter(of_triggers)
        .filter(|path| !definitions.contains_key(*path))
        .map(|path| path.trim_end_matches(".TRG").replacen('/', ".", 1))
        .collect();
    if !lost.is_empty() {
        notes.push(format!(
            "triggers of tables that backup {} has, and that have this name no more, are left out: {}",
            backup.id,
            lost.join(", ")
        ));
    }
    let kept: Vec<_> = definitions
        .keys()
        .filter(of_triggers)
        .map(|path| path.trim_end_matches(".TRG").replacen('/', ".", 1))
        .collect();
    if !kept.is_empty() {
        notes.push(format!(
            "triggers are those of backup {}, not those of the point: {}",
            backup.id,
            kept.join(", ")
        ));
    }
    let databases: BTreeSet<&str> = names.iter().filter_map(|n| n.split('/').next()).collect();
    let new: Vec<_> = databases
        .iter()
        .filter(|db| !stored.contains_key(&format!("{db}/db.opt")))
        .copied()
        .collect();
    if !new.is_empty() {
        notes.push(format!(
            "default character sets of these databases are not known: {}",
            new.join(", ")
        ));
    }
    notes.push(format!(
        "views and default character sets of databases are those of backup {}",
        backup.id
    ));
    Ok(definitions)
}

/// Whether the table, or each of its partitions, has the same definition as in the catalog `then`.
/// If the engine keeps no definition of the table, the table's clustered index must be the same in
/// both catalogs, because a rebuilt table may have another definition.
fn is_unchanged(entries: &[&TableEntry], then: &CatalogState) -> bool {
    entries.iter().all(|entry| {
        then.tables.get(&entry.name).is_some_and(|then| {
            let same_definition = then.version == entry.version && then.frm == entry.frm;
            let same_rows = then.clustered.id == entry.clustered.id;
            same_definition && (same_rows || !entry.frm.is_empty())
        })
    })
}

/// Whether the table has the same partitions as in the backup.
fn same_partitions(base: &str, entries: &[&TableEntry], backup: &Backup) -> bool {
    let then: BTreeSet<&str> = backup
        .tables
        .keys()
        .map(String::as_str)
        .filter(|name| base_table(name) == base)
        .collect();
    let now: BTreeSet<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
    then == now && backup.definitions.contains_key(&format!("{base}.par"))
}

#[cfg(test)]
mod tests;
