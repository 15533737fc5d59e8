//! Checks the SSTs against their own checksums and against the manifest.

use super::findings::Findings;
use crate::output::{Output, bytes};
use firn::base::{Error, ErrorKind, Result};
use firn::db::{ReadOnlyDb, ReadOnlyTree};
use firn::sst::{SstReader, VerifyReport};
use firn::store::{FileKind, file_name};
use firn::version::{FileLocation, FileMeta};
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

/// A note names at most this many files.
const NAMED_MAX: usize = 3;

/// Counts of the files that were read.
#[derive(Default)]
pub struct Checked {
    /// Number of files.
    pub count: u64,
    /// Bytes of the files.
    pub bytes: u64,
}

/// Checks the files of the tree and those that only the log names, and reports files that neither
/// names.
pub fn check_tree(
    db: &ReadOnlyDb,
    tree: &ReadOnlyTree,
    out: &Output,
    findings: &mut Findings,
) -> Result<Checked> {
    if tree.torn > 0 {
        let what = format!(
            "ends in {} bytes of a torn edit, as a crash leaves it; it is dropped at the next start",
            tree.torn
        );
        let name = firn::version::manifest_name(tree.manifest_id);
        findings.warning(&name, None, what);
    }
    let bar = out.progress("files", tree.version.size());
    let mut checked = Checked::default();
    let mut remote = Checked::default();
    let has_store = db.source().store().remote().is_some();
    for (_, file) in tree.version.files() {
        if file.location == FileLocation::ObjectStore && !has_store {
            remote.count += 1;
            remote.bytes += file.size;
            continue;
        }
        checked.count += 1;
        checked.bytes += file.size;
        match file.open() {
            Ok(reader) => check_file(&reader, file.meta(), findings),
            Err(error) => findings.error(&error),
        }
        bar.inc(file.size);
    }
    bar.finish_and_clear();
    if remote.count > 0 {
        findings.error(&Error::unsupported(format!(
            "{} SSTs ({}) lie in an object store and are not checked here: --storage-url reads them, and CHECK TABLE",
            remote.count,
            bytes(remote.bytes)
        )));
    }
    // Do not report an error of reading the log here: the check of the log reports it.
    let (named, whole) = match db.log(tree) {
        Ok(log) => (log.files, true),
        Err(_) => match db.files_left(tree) {
            Ok(files) => (files, false),
            // This version cannot read the log, so it is unknown which files the log names. Do not
            // warn of files that nothing names.
            Err(error) if error.is_unsupported() => {
                findings.error(&error);
                return Ok(checked);
            }
            Err(error) => return Err(error),
        },
    };
    for file in &named {
        checked.count += 1;
        checked.bytes += file.size;
        match file.open() {
            Ok(reader) => check_file(&reader, file.meta(), findings),
            Err(error) => findings.error(&error),
        }
    }
    let named: HashSet<u64> = named.iter().map(|file| file.file_id).collect();
    let live = |id: &u64| tree.state.files.contains_key(id) || named.contains(id);
    let on_disk: BTreeSet<u64> = db.source().store().list()?.into_iter().collect();
    let strays: Vec<u64> = on_disk.iter().copied().filter(|id| !live(id)).collect();
    if !strays.is_empty() {
        let mut files = tree.state.files.values();
        let complete = files.all(|placed| {
            placed.meta.location != FileLocation::Local || on_disk.contains(&placed.meta.file_id)
        });
        note_strays(&strays, whole, complete, findings);
    }
    Ok(checked)
}

/// Reports the files that nothing names. A stop leaves many of them after the drop of a large
/// table. `whole` says that the log could be read to its end, and `complete` that no file of the
/// tree is missing.
fn note_strays(strays: &[u64], whole: bool, complete: bool, findings: &mut Findings) {
    let named: Vec<String> = strays
        .iter()
        .take(NAMED_MAX)
        .map(|id| file_name(FileKind::Sst, *id))
        .collect();
    let more = match strays.len() > NAMED_MAX {
        true => ", …",
        false => "",
    };
    let names = match whole {
        true => "neither manifest nor log names",
        false => "neither the manifest nor what is left of the log names",
    };
    let fate = match complete {
        true => "a start deletes a few of them at once and the others later, step by step",
        false => "they stay as long as files of the tree are missing",
    };
    let count = strays.len();
    findings.note(format!(
        "{count} SSTs that {names} ({}{more}): {fate}",
        named.join(", ")
    ));
}

/// Checks each SST in the directory by itself, because there is no manifest.
pub fn check_all(db: &ReadOnlyDb, out: &Output, findings: &mut Findings) -> Result<Checked> {
    let store = db.source().store();
    let ids = store.list()?;
    let bar = out.progress("files", ids.len() as u64);
    let mut checked = Checked::default();
    for id in ids {
        let name = file_name(FileKind::Sst, id);
        checked.count += 1;
        let opened = store.open(id).and_then(|file| {
            checked.bytes += file.size()?;
            SstReader::open(file, id, name, Arc::clone(db.source().cache()))
        });
        match opened {
            Ok(reader) => drop(reader.survey(&mut |error| findings.error(&named(&reader, error)))),
            Err(error) => findings.error(&error),
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(checked)
}

fn check_file(reader: &SstReader, meta: &FileMeta, findings: &mut Findings) {
    let mut damaged = false;
    let report = reader.survey(&mut |error| {
        damaged = true;
        findings.error(&named(reader, error));
    });
    if !damaged && let Some(what) = difference(&report, reader, meta) {
        let what = format!("differs from what the manifest says: {what}");
        findings.damage(reader.name(), None, what);
    }
}

/// Adds the name of the file to an error of reading it.
fn named(reader: &SstReader, error: Error) -> Error {
    match error.kind() {
        // Such an error names the file already.
        ErrorKind::Corruption { .. } | ErrorKind::Unsupported | ErrorKind::Unreachable => error,
        _ => Error::corruption(reader.name(), 0, error),
    }
}

fn difference(report: &VerifyReport, reader: &SstReader, meta: &FileMeta) -> Option<&'static str> {
    let p = reader.properties();
    if report.checksum != meta.checksum {
        Some("checksum of the whole file")
    } else if (report.entries, report.deletes) != (meta.entries, meta.deletes) {
        Some("number of entries")
    } else if (&p.smallest, &p.largest) != (&meta.smallest, &meta.largest) {
        Some("range of keys")
    } else if p.external_seqno != meta.external_seqno.is_some() {
        Some("whether its seqnos are its own")
    } else if !p.external_seqno && (p.min_seqno, p.max_seqno) != (meta.min_seqno, meta.max_seqno) {
        Some("range of commits")
    } else if p.per_index != meta.per_index {
        Some("counts by index")
    } else {
        None
    }
}
