//! Takes a backup (`firn backup`).

use super::backup_format::{
    Backup, FORMAT, FORMAT_WITH_SERVER, Position, StoredTable, position_text,
};
use super::in_progress::InProgress;
use super::send::{expect_there, send};
use super::source::{Source, base_table, belonging};
use super::stored_backups::{entries, publish};
use super::target::Target;
use crate::Outcome;
use crate::args::TakeBackup;
use crate::output::{Output, bytes, hex};
use firn::backup::CHECKPOINT_FILE;
use firn::base::{Error, ErrorKind, Result};
use firn::catalog::CatalogState;
use firn::db::ReadOnlyTree;
use firn::env::{Env, MemEnv, PosixEnv};
use firn::version::{FileLocation, PlacedFile, create_manifest, manifest_name};
use serde::Serialize;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::sync::Arc;

#[derive(Serialize)]
pub struct Report {
    target: String,
    id: String,
    tables: usize,
    files: usize,
    bytes: u64,
    /// Number of files of which the backup sent at least some bytes, because no earlier backup in
    /// the target had them.
    sent_files: usize,
    sent_bytes: u64,
    pause_ms: f64,
    /// Whether the backup holds the rest of the server, too.
    with_innodb: bool,
    seqno: u64,
    position: Option<Position>,
    notes: Vec<String>,
}

/// Takes a backup.
pub fn run(args: &TakeBackup, out: &Output) -> Result<Outcome> {
    let target = Target::open(&args.target, true)?;
    let report = back_up(args, &target, out)?;
    out.print(&report, text);
    Ok(Outcome::Well)
}

/// Takes a backup into `target`.
pub fn back_up(args: &TakeBackup, target: &Target, out: &Output) -> Result<Report> {
    let taken = |id: &str| Ok(entries(target)?.iter().any(|entry| entry.id == id));
    let mark = InProgress::of_backup(target, &taken)?;
    let taken = take(args, &mark, target, out);
    let removed = mark.remove();
    let mut report = taken?;
    if let Err(error) = removed {
        let note = format!(
            "the backup is well, but running/{} stays: {error}",
            report.id
        );
        report.notes.push(note);
    }
    Ok(report)
}

/// Refuses to back up a directory whose server was killed in the middle of `ALTER TABLE` or
/// `EXCHANGE PARTITION`, if that has left the rows of a table only under a temporary name
/// (`#sql…`). The next start of the server gives the table its own name back, and a backup after
/// that contains it.
fn refuse_unfinished_ddl(known: &CatalogState) -> Result<()> {
    match known.only_copy() {
        None => Ok(()),
        Some(name) => Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "the server was killed while it altered a table, which is {name} now: start the server once, which ends \
                 that, and take the backup then"
            ),
        )),
    }
}

/// Contents of the small files that a restored directory begins with, by name. A backup has all
/// table files itself, so its manifest names no object.
fn small_files(source: &Source, tree: &ReadOnlyTree) -> Result<BTreeMap<String, String>> {
    let mut small = BTreeMap::new();
    let mut names = vec![CHECKPOINT_FILE.to_owned()];
    let is_remote = |placed: &PlacedFile| placed.meta.location == FileLocation::ObjectStore;
    if tree.state.files.values().any(is_remote) || !tree.state.deferred.is_empty() {
        let mut state = tree.state.clone();
        state.deferred.clear();
        for placed in state.files.values_mut().filter(|placed| is_remote(placed)) {
            Arc::make_mut(&mut placed.meta).location = FileLocation::Local;
        }
        let (env, dir) = (MemEnv::new(), Path::new("/backup"));
        env.create_dir_all(dir)?;
        create_manifest(&env, dir, &state)?;
        for name in env.list_dir(dir)? {
            let content = env.read(&dir.join(&name))?;
            small.insert(name, hex(&content));
        }
    } else {
        names.extend(["CURRENT".to_owned(), manifest_name(tree.manifest_id)]);
    }
    for name in names {
        match fs::read(source.dir.join(&name)) {
            Ok(content) => drop(small.insert(name, hex(&content))),
            Err(_) if name == CHECKPOINT_FILE => {}
            Err(e) => return Err(Error::io(&e, name)),
        }
    }
    Ok(small)
}

fn take(args: &TakeBackup, mark: &InProgress<'_>, target: &Target, out: &Output) -> Result<Report> {
    let taken_ms = PosixEnv::new().wall_micros() / 1000;
    let id = mark.id.clone();
    let source = match &args.from_dir {
        Some(dir) => Source::stopped(dir, args.storage_url.as_deref())?,
        None => Source::running(args, &id)?,
    };
    let tree = source.db.tree()?;
    if source.db.source().store().remote().is_none() {
        let mut placed = tree.state.files.values();
        let named = placed.try_for_each(|placed| placed.meta.check_local());
        named
            .map_err(|error| Error::unsupported(format_args!("{error}: --storage-url names it")))?;
    }
    let log = source.db.log(&tree)?;
    let known = source.db.tables(&log.point)?;
    if args.from_dir.is_some() {
        refuse_unfinished_ddl(&known)?;
    }
    let mut notes = source.notes.clone();
    let mut definitions = belonging(
        &source.definitions,
        &known.tables.keys().map(String::as_str).collect::<Vec<_>>(),
        true,
    );
    let mut tables = BTreeMap::new();
    for (name, entry) in &known.tables {
        let table = name.split('/').nth(1).unwrap_or_default();
        // Leave out temporary tables of unfinished DDL: in a copy they belong to no statement.
        if table.starts_with("#sql") {
            continue;
        }
        let image = base_table(name) == name && !entry.frm.is_empty();
        let path = format!("{}.frm", base_table(name));
        match definitions.entry(path) {
            Entry::Occupied(_) => {}
            Entry::Vacant(missing) if image => {
                missing.insert(entry.frm.clone());
            }
            Entry::Vacant(_) => notes.push(format!("no definition of {name} was found")),
        }
        let indexes = entry.index_ids();
        tables.insert(name.clone(), StoredTable { indexes });
    }

    let databases = known
        .tables
        .keys()
        .filter_map(|name| name.split('/').next());
    for database in databases {
        if let Some(error) = source.unreadable.get(database) {
            return Err(error.clone());
        }
    }
    let sent = send(target, &source, &tree, &log, out)?;
    let small = small_files(&source, &tree)?;
    let definitions = definitions.iter();
    let backup = Backup {
        format: match source.server_copy {
            None => FORMAT,
            Some(_) => FORMAT_WITH_SERVER,
        },
        id,
        taken_ms,
        server_version: source.server_version.clone(),
        seqno: log.point.seqno,
        position: source.position.clone(),
        pause_ms: source.pause_ms,
        files: sent.files,
        server_files: sent.server_files,
        small,
        definitions: definitions.map(|(p, b)| (p.clone(), hex(b))).collect(),
        tables,
        sent_bytes: sent.sent_bytes,
        archive: source.archive.clone(),
        cut_ms: source.cut_ms,
    };
    if let Some(name) = backup.foreign_name() {
        return Err(Error::unsupported(format_args!(
            "the server has a file {name:?}, whose name no backup can hold"
        )));
    }
    expect_there(target, &backup, mark)?;
    publish(&backup, target)?;
    Ok(Report {
        target: target.name().to_owned(),
        tables: backup.tables.len(),
        files: backup.files.len() + backup.server_files.len(),
        with_innodb: !backup.server_files.is_empty(),
        bytes: backup.bytes(),
        sent_files: sent.sent_files,
        sent_bytes: sent.sent_bytes,
        pause_ms: backup.pause_ms,
        seqno: backup.seqno,
        position: backup.position,
        id: backup.id,
        notes,
    })
}

fn text(report: &Report) -> String {
    let mut text = format!(
        "backup {} in {}: {} tables, {} files of {}; sent {} files of {}\n",
        report.id,
        report.target,
        report.tables,
        report.files,
        bytes(report.bytes),
        report.sent_files,
        bytes(report.sent_bytes),
    );
    if report.with_innodb {
        text += "with InnoDB, other engines and the system tables at the same position\n";
    } else if report.position.is_some() {
        let _ = writeln!(text, "writers waited {:.1} ms", report.pause_ms);
    }
    text += &position_text(report.position.as_ref());
    for note in &report.notes {
        let _ = writeln!(text, "note: {note}");
    }
    text
}
