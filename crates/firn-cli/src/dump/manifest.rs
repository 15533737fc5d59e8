//! Dumps a manifest, edit by edit.

use super::split;
use crate::Outcome;
use crate::args::DumpManifest;
use crate::output::{Output, bytes};
use firn::base::{CounterValue, Error, Result};
use firn::env::PosixEnv;
use firn::store::file_name;
use firn::version::{Edit, FileLocation, ManifestReader, parse_manifest_name};
use serde::Serialize;
use std::fmt::Write;

#[derive(Serialize)]
struct Report {
    file: String,
    edits: Vec<EditReport>,
    torn_bytes: u64,
}

#[derive(Serialize)]
struct Counter {
    counter: u64,
    value: u64,
    /// Number of times that the counter was set to a given value, which may be smaller than the
    /// value before. Raising the counter does not count.
    generation: u64,
}

#[derive(Serialize)]
struct EditReport {
    added: Vec<Added>,
    removed: Vec<Removed>,
    log_number: Option<u64>,
    last_seqno: Option<u64>,
    next_file_id: Option<u64>,
    next_run_number: Option<u64>,
    counters: Vec<Counter>,
    times: Vec<(u64, u64)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    identity: Option<IdentityReport>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    to_be_deleted: Vec<Deferred>,
    /// The last global transaction id of each domain.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    gtids: Vec<String>,
}

#[derive(Serialize)]
struct IdentityReport {
    database: String,
    epoch: u64,
    /// The commits of the epoch have seqnos above this one.
    after: u64,
}

#[derive(Serialize)]
struct Deferred {
    file: String,
    /// Epoch of the slot of the shared log at which the file was removed. (A database in an object
    /// store has a shared log, which its writer shares with its readers; its positions are called
    /// slots.)
    epoch: u64,
    /// Number, within the epoch, of the slot of the shared log at which the file was removed; none
    /// if the file has been deleted since.
    slot: Option<u64>,
}

#[derive(Serialize)]
struct Added {
    file: u64,
    level: u8,
    run: u64,
    stored_bytes: u64,
    /// Bytes behind the data blocks; none if the manifest was written before it kept this number.
    tail_bytes: Option<u64>,
    location: &'static str,
    entries: u64,
}

#[derive(Serialize)]
struct Removed {
    file: u64,
    level: u8,
}

pub(super) fn run(args: &DumpManifest, out: &Output) -> Result<Outcome> {
    let (dir, name) = split(&args.file)?;
    let id = parse_manifest_name(name)
        .ok_or_else(|| Error::invalid(format_args!("{name} is not the name of a manifest")))?;
    let mut reader = ManifestReader::open(&PosixEnv::new(), dir, id)?;
    let edits = reader.poll(false)?;
    let report = Report {
        file: name.to_owned(),
        edits: edits.iter().map(edit).collect(),
        torn_bytes: reader.unread(),
    };
    out.print(&report, text);
    Ok(Outcome::Well)
}

fn edit(edit: &Edit) -> EditReport {
    EditReport {
        added: edit
            .added
            .iter()
            .map(|(level, run, meta)| Added {
                file: meta.file_id,
                level: *level,
                run: *run,
                stored_bytes: meta.size,
                tail_bytes: (meta.tail_len > 0).then_some(meta.tail_len),
                location: location_name(meta.location),
                entries: meta.entries,
            })
            .collect(),
        removed: edit
            .removed
            .iter()
            .map(|&(level, file)| Removed { file, level })
            .collect(),
        log_number: edit.log_number,
        last_seqno: edit.last_seqno,
        next_file_id: edit.next_file_id,
        next_run_number: edit.next_run_number,
        counters: edit.counters.iter().map(counter).collect(),
        times: edit.time_pairs.clone(),
        identity: edit.identity.map(|identity| IdentityReport {
            database: identity.database.to_string(),
            epoch: identity.epoch,
            after: identity.after,
        }),
        to_be_deleted: edit
            .deferred
            .iter()
            .map(|deferred| Deferred {
                file: file_name(deferred.kind, deferred.file),
                epoch: deferred.epoch,
                slot: (deferred.slot > 0).then_some(deferred.slot),
            })
            .collect(),
        gtids: edit.gtids.iter().map(ToString::to_string).collect(),
    }
}

/// The location of a file as one word.
pub(crate) fn location_name(location: FileLocation) -> &'static str {
    match location {
        FileLocation::Local => "local",
        FileLocation::ObjectStore => "object store",
    }
}

fn counter(&(counter, known): &(u64, CounterValue)) -> Counter {
    Counter {
        counter,
        value: known.value,
        generation: known.generation,
    }
}

fn text(report: &Report) -> String {
    let mut out = format!("{}: {} edits\n", report.file, report.edits.len());
    for (number, edit) in report.edits.iter().enumerate() {
        let _ = write!(out, "edit {}", number + 1);
        for (what, value) in [
            ("log from segment", edit.log_number),
            ("commits up to", edit.last_seqno),
            ("next file", edit.next_file_id),
            ("next run", edit.next_run_number),
        ] {
            if let Some(value) = value {
                let _ = write!(out, ", {what} {value}");
            }
        }
        let _ = writeln!(out);
        if let Some(IdentityReport {
            database,
            epoch,
            after,
        }) = &edit.identity
        {
            let _ = writeln!(
                out,
                "  database {database}, epoch {epoch} after commit {after}"
            );
        }
        for removed in &edit.removed {
            let _ = writeln!(out, "  - L{} file {}", removed.level, removed.file);
        }
        for added in &edit.added {
            let run = match added.run {
                0 => String::new(),
                run => format!(" run {run}"),
            };
            let _ = writeln!(
                out,
                "  + L{}{run} file {}: {} entries, {}",
                added.level,
                added.file,
                added.entries,
                bytes(added.stored_bytes)
            );
        }
        for deferred in &edit.to_be_deleted {
            let _ = match deferred.slot {
                Some(slot) => writeln!(
                    out,
                    "  {} is to be deleted, removed in slot {slot} of epoch {}",
                    deferred.file, deferred.epoch
                ),
                None => writeln!(out, "  {} is deleted", deferred.file),
            };
        }
        for gtid in &edit.gtids {
            let _ = writeln!(out, "  the last commit of its domain is {gtid}");
        }
        for Counter {
            counter,
            value,
            generation,
        } in &edit.counters
        {
            let _ = match generation {
                0 => writeln!(out, "  counter {counter} is {value}"),
                _ => writeln!(
                    out,
                    "  counter {counter} is {value} since it was set, generation {generation}"
                ),
            };
        }
    }
    if report.torn_bytes > 0 {
        let _ = writeln!(out, "{} bytes of a torn edit at the end", report.torn_bytes);
    }
    out
}
