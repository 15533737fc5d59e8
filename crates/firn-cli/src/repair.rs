//! `firn repair`: saves the intact content of a damaged directory into a new one.

use crate::Outcome;
use crate::args::Repair;
use crate::data_directory;
use crate::output::{Output, bytes, table};
use firn::base::{ErrorKind, Result};
use firn::db::repair;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

#[derive(Serialize)]
struct Report {
    directory: String,
    target: String,
    /// Whether nothing was lost.
    complete: bool,
    lost: Vec<Loss>,
    tables: BTreeMap<String, u64>,
    entries: u64,
    stored_bytes: u64,
    index_entries_removed: u64,
    index_entries_added: u64,
    prepared_transactions: usize,
    notes: Vec<String>,
}

#[derive(Serialize)]
struct Loss {
    file: Option<String>,
    offset: Option<u64>,
    what: String,
}

/// Repairs the database.
pub fn run(args: &Repair, out: &Output) -> Result<Outcome> {
    let db = data_directory::open_with_store(&args.directory, args.storage_url.as_deref())?;
    let bar = out.spinner("saving what is left");
    let mut lost = Vec::new();
    let repaired = repair(&db, &args.target, &mut |error| {
        let (file, offset) = match error.kind() {
            ErrorKind::Corruption { file, offset } => (Some(file.clone()), Some(*offset)),
            _ => (None, None),
        };
        let what = error.message().to_owned();
        lost.push(Loss { file, offset, what });
    });
    bar.finish_and_clear();
    let repaired = repaired?;
    let report = Report {
        directory: db.dir().display().to_string(),
        target: args.target.display().to_string(),
        complete: lost.is_empty() && repaired.entries_removed == 0,
        lost,
        tables: repaired.tables,
        entries: repaired.entries,
        stored_bytes: repaired.bytes,
        index_entries_removed: repaired.entries_removed,
        index_entries_added: repaired.entries_added,
        prepared_transactions: repaired.prepared,
        notes: repaired.notes,
    };
    let outcome = match report.complete {
        true => Outcome::Well,
        false => Outcome::Damage,
    };
    out.print(&report, text);
    Ok(outcome)
}

fn text(report: &Report) -> String {
    let mut out = String::new();
    for loss in &report.lost {
        let _ = write!(out, "lost: ");
        if let (Some(file), Some(offset)) = (&loss.file, loss.offset) {
            let _ = write!(out, "{file} at {offset}: ");
        }
        let _ = writeln!(out, "{}", loss.what);
    }
    for note in &report.notes {
        let _ = writeln!(out, "note: {note}");
    }
    let _ = writeln!(
        out,
        "saved {} entries ({}) in {}",
        report.entries,
        bytes(report.stored_bytes),
        report.target
    );
    if report.index_entries_removed + report.index_entries_added > 0 {
        let _ = writeln!(
            out,
            "index entries removed for want of a row: {}; made anew: {}",
            report.index_entries_removed, report.index_entries_added
        );
    }
    if report.prepared_transactions > 0 {
        let _ = writeln!(
            out,
            "{} prepared transactions wait for XA COMMIT or XA ROLLBACK",
            report.prepared_transactions
        );
    }
    let rows = report.tables.iter();
    let rows = rows.map(|(name, rows)| vec![name.clone(), rows.to_string()]);
    let _ = write!(out, "\n{}", table(&["table", "rows"], 1, rows.collect()));
    out
}
