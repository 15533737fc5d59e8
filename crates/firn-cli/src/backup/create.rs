//! `firn backup`: takes one.

use super::format::{Backup, FORMAT, StoredFile, StoredTable, entries, timestamp};
use super::source::{Source, base_table, belonging, running, stopped};
use super::target::{Target, Transfer};
use crate::Outcome;
use crate::args::TakeBackup;
use crate::output::{Output, bytes, hex};
use firn::backup::CHECKPOINT_FILE;
use firn::base::{Error, Result};
use firn::db::{Look, Tree};
use firn::env::{BLOCK, Env, PosixEnv};
use firn::store::{FileKind, file_name, parse_file_name};
use firn::version::manifest_name;
use firn::wal::parse_segment_name;
use serde::Serialize;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use xxhash_rust::xxh3::Xxh3;

/// A file that the server still writes to is sent so often.
const ATTEMPTS: u32 = 10;

#[derive(Serialize)]
struct Report {
    target: String,
    id: String,
    tables: usize,
    files: usize,
    bytes: u64,
    /// Files and bytes that no earlier backup had.
    sent_files: usize,
    sent_bytes: u64,
    pause_ms: f64,
    seqno: u64,
    position: Option<super::format::Position>,
    notes: Vec<String>,
}

/// Takes a backup.
pub fn run(args: &TakeBackup, out: &Output) -> Result<Outcome> {
    let target = Target::open(&args.target, true)?;
    let taken_ms = PosixEnv::new().wall_micros() / 1000;
    let id = unused_id(&target, timestamp(taken_ms / 1000))?;
    let marker = format!("running/{id}");
    target.put_new(&marker, Vec::new())?;
    let taken = take(args, &target, id, taken_ms, out);
    target.remove(&marker)?;
    let report = taken?;
    out.print(&report, text);
    Ok(Outcome::Well)
}

/// Two backups of one second have different names, in order.
fn unused_id(target: &Target, time: String) -> Result<String> {
    let taken = entries(target)?;
    let running = target.list("running")?;
    let used = |id: &str| {
        taken.iter().any(|entry| entry.id == id) || running.iter().any(|(name, _)| name == id)
    };
    let mut id = time.clone();
    let mut next = 2;
    while used(&id) {
        id = format!("{time}_{next:03}");
        next += 1;
    }
    Ok(id)
}

fn take(
    args: &TakeBackup,
    target: &Target,
    id: String,
    taken_ms: u64,
    out: &Output,
) -> Result<Report> {
    let source = match &args.from_dir {
        Some(dir) => stopped(dir)?,
        None => running(args, &id)?,
    };
    let env: Arc<dyn Env> = Arc::new(PosixEnv::new());
    let look = Look::open(Arc::clone(&env), &source.dir)?;
    let tree = look.tree()?;
    let log = look.log(&tree)?;
    let known = look.tables(&log.point)?;
    let mut notes = Vec::new();
    let mut definitions = belonging(
        &source.definitions,
        &known.tables.keys().map(String::as_str).collect::<Vec<_>>(),
        true,
    );
    let mut tables = BTreeMap::new();
    for (name, entry) in &known.tables {
        let table = name.split('/').nth(1).unwrap_or_default();
        // What DDL under way has made belongs to nobody in a copy.
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

    let shipped = objects(target)?;
    let mut files = list(&source, &tree, &log)?;
    let mut new: Vec<usize> = Vec::new();
    let mut named = HashSet::new();
    for (at, file) in files.iter().enumerate() {
        let there = shipped.get(&file.object) == Some(&file.stored);
        if !there && named.insert(file.object.clone()) {
            new.push(at);
        }
    }
    let sent_files = new.len();
    let sent_bytes = new.iter().map(|&at| files[at].stored).sum();
    let bar = out.progress("sending", sent_bytes);
    for attempt in 1.. {
        let transfers: Vec<Transfer> = new
            .iter()
            .map(|&at| Transfer {
                object: files[at].object.clone(),
                file: source.dir.join(&files[at].name),
                len: files[at].stored,
            })
            .collect();
        let sums = target.send(&transfers, &|len| bar.inc(len))?;
        let mut again = Vec::new();
        for (&at, sum) in new.iter().zip(sums) {
            let file = &mut files[at];
            if format!("{sum:016x}") == file.checksum {
                continue;
            }
            target.remove(&file.object)?;
            let id = parse_file_name(&file.name).map(|(_, id)| id);
            if id.is_none_or(|id| tree.state.files.contains_key(&id)) || attempt == ATTEMPTS {
                let what = "the file is not as it was written: its checksum differs";
                return Err(Error::corruption(file.name.clone(), 0, what));
            }
            // The server still writes to it, behind what the checkpoint needs.
            let sum = checksum_of(&source.dir.join(&file.name), file.stored)?;
            file.checksum = format!("{sum:016x}");
            file.object = format!("files/{}-{}", file.name, file.checksum);
            again.push(at);
        }
        new = again;
        if new.is_empty() {
            break;
        }
    }
    bar.finish_and_clear();

    let mut small = BTreeMap::new();
    let manifest = manifest_name(tree.manifest_id);
    for name in [CHECKPOINT_FILE, "CURRENT", &manifest] {
        match fs::read(source.dir.join(name)) {
            Ok(content) => drop(small.insert(name.to_owned(), hex(&content))),
            Err(_) if name == CHECKPOINT_FILE => {}
            Err(e) => return Err(Error::io(&e, name)),
        }
    }
    let definitions = definitions.iter();
    let backup = Backup {
        format: FORMAT,
        id,
        taken_ms,
        server_version: source.server_version.clone(),
        seqno: log.point.seqno,
        position: source.position.clone(),
        pause_ms: source.pause_ms,
        files,
        small,
        definitions: definitions.map(|(p, b)| (p.clone(), hex(b))).collect(),
        tables,
        sent_bytes,
    };
    backup.publish(target)?;
    Ok(Report {
        target: target.name().to_owned(),
        tables: backup.tables.len(),
        files: backup.files.len(),
        bytes: backup.bytes(),
        sent_files,
        sent_bytes,
        pause_ms: backup.pause_ms,
        seqno: backup.seqno,
        position: backup.position,
        id: backup.id,
        notes,
    })
}

/// Objects that are there, with their sizes. They appear whole, so a backup that was cut short needs not begin anew.
fn objects(target: &Target) -> Result<HashMap<String, u64>> {
    let listed = target.list("files")?.into_iter();
    Ok(listed
        .map(|(name, size)| (format!("files/{name}"), size))
        .collect())
}

/// The engine's files. What the manifest knows the checksum of is not read.
fn list(source: &Source, tree: &Tree, log: &firn::db::Log) -> Result<Vec<StoredFile>> {
    let mut files = Vec::new();
    for (id, placed) in &tree.state.files {
        let name = file_name(FileKind::Sst, *id);
        let (size, checksum) = (placed.meta.size, format!("{:016x}", placed.meta.checksum));
        files.push(StoredFile {
            object: format!("files/{name}-{checksum}"),
            name,
            size,
            stored: size,
            checksum,
        });
    }
    let entries = fs::read_dir(&source.dir).map_err(|e| Error::io(&e, source.dir.display()))?;
    for entry in entries {
        let path = entry
            .map_err(|e| Error::io(&e, source.dir.display()))?
            .path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let segment = parse_segment_name(&name);
        let other = match parse_file_name(&name) {
            Some((FileKind::Sst, id)) => log.files.iter().any(|file| file.file_id == id),
            Some((FileKind::Blob, _)) => true,
            _ => false,
        };
        if segment.is_none_or(|id| id < tree.state.log_number) && !other {
            continue;
        }
        let size = path.metadata().map_err(|e| Error::io(&e, &name))?.len();
        // Behind the end of the log a segment has nothing that counts.
        let stored = match segment {
            Some(id) if id == log.end.last_segment && log.end.end_offset > 0 => {
                log.end.end_offset.next_multiple_of(BLOCK as u64).min(size)
            }
            _ => size,
        };
        let checksum = format!("{:016x}", checksum_of(&path, stored)?);
        files.push(StoredFile {
            object: format!("files/{name}-{checksum}"),
            name: name.into_owned(),
            size,
            stored,
            checksum,
        });
    }
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(files)
}

fn checksum_of(path: &Path, len: u64) -> Result<u64> {
    let failed = |e: std::io::Error| Error::io(&e, path.display());
    let mut file = fs::File::open(path).map_err(failed)?.take(len);
    let mut hash = Xxh3::new();
    let mut chunk = vec![0; 1 << 20];
    loop {
        match file.read(&mut chunk).map_err(failed)? {
            0 => return Ok(hash.digest()),
            n => hash.update(&chunk[..n]),
        }
    }
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
    if report.position.is_some() {
        let _ = writeln!(text, "writers waited {:.1} ms", report.pause_ms);
    }
    text += &super::format::position_text(report.position.as_ref());
    for note in &report.notes {
        let _ = writeln!(text, "note: {note}");
    }
    text
}
