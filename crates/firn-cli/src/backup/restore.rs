//! Makes a data directory from a backup (`firn restore`). Nothing is overwritten, and one rename
//! makes the complete copy appear ([`staging`]).

mod engine_directory;
mod point_in_time;
mod prepared_transactions;
mod staging;

use super::backup_format::{Backup, Position, StoredFile, position_text, unhex};
use super::source::{Definitions, base_table, belonging};
use super::stored_backups::find;
use super::table_file_names::encode;
use super::target::Target;
use crate::Outcome;
use crate::args::Restore;
use crate::output::{Output, bytes};
use firn::base::{Error, ErrorKind, Result};
use firn::db::{ReadOnlyDb, ReadOnlyLog};
use firn::env::PosixEnv;
#[cfg(test)]
pub(super) use point_in_time::parse_time;
use serde::Serialize;
use staging::{Stage, Step};
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

#[derive(Serialize)]
struct Report {
    id: String,
    directory: String,
    tables: Vec<String>,
    bytes: u64,
    /// Commits that the server replays when it starts.
    commits_to_replay: u64,
    seqno: u64,
    position: Option<Position>,
    notes: Vec<String>,
}

/// Restores a backup.
pub fn run(args: &Restore, out: &Output) -> Result<Outcome> {
    let target = Target::open(&args.target, false)?;
    if let Some(archive) = &args.archive {
        return point_in_time::run(args, archive, &target, out);
    }
    let report = restore(args, &target, out, &|_| Ok(()))?;
    out.print(&report, text);
    Ok(Outcome::Well)
}

fn restore(args: &Restore, target: &Target, out: &Output, step: Step<'_>) -> Result<Report> {
    let mut notes = Vec::new();
    let backup = find(target, &args.backup, &mut notes)?;
    let tables = chosen(&backup, &args.table)?;
    let mut definitions = Definitions::new();
    for (path, digits) in &backup.definitions {
        definitions.insert(path.clone(), unhex(digits)?);
    }
    let mut server_files: Vec<&StoredFile> = Vec::new();
    if !args.table.is_empty() {
        definitions = belonging(&definitions, &tables, false);
    } else if !backup.server_files.is_empty() {
        // The server's files include most definitions: keep only the definitions that are not among
        // these files.
        server_files.extend(&backup.server_files);
        let names: HashSet<&str> = server_files.iter().map(|file| file.name.as_str()).collect();
        definitions.retain(|path, _| !names.contains(path.as_str()));
    }
    let stage = Stage::begin(&args.to, &definitions, !server_files.is_empty(), step)?;
    let engine = stage.engine();
    let mut bytes = match args.table.is_empty() {
        true => engine_directory::whole(target, &backup, &engine, out)?,
        false => engine_directory::tables(target, &backup, &tables, &engine, &mut notes, out)?,
    };
    stage.step("engine complete")?;
    if !server_files.is_empty() {
        bytes += engine_directory::fetch(target, &server_files, &stage.definitions_dir(), out)?;
        notes.push("the copy is a whole data directory, with the system tables".to_owned());
    }
    let server_files: Vec<String> = server_files.iter().map(|file| file.name.clone()).collect();
    let log = examine(&engine, &tables)?;
    stage.put_in_place(&definitions, &server_files)?;
    Ok(Report {
        id: backup.id.clone(),
        directory: args.to.display().to_string(),
        tables: tables.iter().map(|&t| t.to_owned()).collect(),
        bytes,
        commits_to_replay: log.commits,
        seqno: log.point.seqno,
        position: backup.position.clone(),
        notes,
    })
}

fn text(report: &Report) -> String {
    let text = format!(
        "backup {} is in {}: {} tables, {}, every checksum right; {} commits to replay\n{}",
        report.id,
        report.directory,
        report.tables.len(),
        bytes(report.bytes),
        report.commits_to_replay,
        position_text(report.position.as_ref())
    );
    let notes = report.notes.iter();
    notes.fold(text, |text, note| text + "note: " + note + "\n")
}

/// Reads manifest and log as the server will. Fails if one of the tables is missing.
fn examine(engine: &Path, tables: &[&str]) -> Result<ReadOnlyLog> {
    let db = ReadOnlyDb::open(Arc::new(PosixEnv::new()), engine)?;
    let tree = db.tree()?;
    let log = db.log(&tree)?;
    let known = db.tables(&log.point)?;
    match tables
        .iter()
        .find(|table| !known.tables.contains_key(**table))
    {
        Some(table) => Err(Error::corruption(
            "catalog",
            0,
            format!("{table} is missing"),
        )),
        None => Ok(log),
    }
}

/// Whether a table, or the table of a partition, has this name, written as in SQL or as in the
/// catalog.
fn is_named(table: &str, name: &str) -> bool {
    let (database, rest) = name.split_once('.').unwrap_or_default();
    let table = base_table(table);
    table == format!("{database}/{rest}")
        || table == format!("{}/{}", encode(database), encode(rest))
}

/// Catalog names of the wanted tables, or of all if none is wanted; partitions come with their
/// table.
fn chosen<'a>(backup: &'a Backup, wanted: &[String]) -> Result<Vec<&'a str>> {
    let all = backup.tables.keys().map(String::as_str);
    if wanted.is_empty() {
        return Ok(all.collect());
    }
    for name in wanted {
        if !all.clone().any(|table| is_named(table, name)) {
            let message = format!("backup {} has no FIRN table {name}", backup.id);
            return Err(Error::new(ErrorKind::NotFound, message));
        }
    }
    Ok(all
        .filter(|table| wanted.iter().any(|name| is_named(table, name)))
        .collect())
}

#[cfg(test)]
mod tests;
