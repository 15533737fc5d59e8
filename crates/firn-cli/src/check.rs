//! Checks every checksum, every invariant, and every index against its table (`firn check`).

mod blobs;
mod files;
mod findings;
mod log;
mod tables;

use crate::Outcome;
use crate::args::Check;
use crate::data_directory;
use crate::output::{Output, bytes};
use findings::{Findings, Verdict};
use firn::base::Result;
use firn::db::ReadOnlyDb;
use serde::Serialize;
use std::fmt::Write;

#[derive(Serialize)]
struct Report {
    directory: String,
    /// Everything could be read, and nothing is damaged; there may be warnings.
    sound: bool,
    /// This version cannot read some parts, and the parts that it can read are not damaged.
    unsupported: bool,
    files: u64,
    file_bytes: u64,
    log_segments: u64,
    tables: u64,
    rows: u64,
    findings: Vec<findings::Finding>,
    /// Number of findings that are not listed.
    more: u64,
}

/// Checks the database.
pub fn run(args: &Check, out: &Output) -> Result<Outcome> {
    let db = data_directory::open_with_store(&args.directory, args.storage_url.as_deref())?;
    let (report, verdict) = check(&db, args.files_only, out)?;
    let outcome = match verdict {
        Verdict::Sound => Outcome::Well,
        Verdict::Unsupported => Outcome::Unsupported,
        Verdict::Damaged => Outcome::Damage,
    };
    out.print(&report, text);
    Ok(outcome)
}

/// Checks one part after the other. Damage in one part does not keep the others from being checked.
fn check(db: &ReadOnlyDb, files_only: bool, out: &Output) -> Result<(Report, Verdict)> {
    let mut findings = Findings::default();
    let tree = match db.tree() {
        Ok(tree) => Some(tree),
        Err(error) => {
            findings.error(&error);
            None
        }
    };
    let files = match &tree {
        Some(tree) => files::check_tree(db, tree, out, &mut findings)?,
        None => files::check_all(db, out, &mut findings)?,
    };
    let (log, log_segments) = log::check(db, tree.as_ref(), &mut findings)?;
    if let Some(tree) = &tree {
        blobs::check(db, tree, log.as_ref(), &mut findings)?;
    }
    let mut tables = tables::Checked::default();
    if let Some(tree) = tree.as_ref().filter(|_| !files_only) {
        let point = match log {
            Some(log) => log.point,
            None => db.files_only(tree),
        };
        tables = tables::check(db, tree, &point, out, &mut findings)?;
    }
    let verdict = findings.verdict();
    let (findings, more) = findings.finish();
    let report = Report {
        directory: db.dir().display().to_string(),
        sound: verdict == Verdict::Sound,
        unsupported: verdict == Verdict::Unsupported,
        files: files.count,
        file_bytes: files.bytes,
        log_segments,
        tables: tables.tables,
        rows: tables.rows,
        findings,
        more,
    };
    Ok((report, verdict))
}

fn text(report: &Report) -> String {
    let mut out = format!(
        "{}: {} files ({}), {} log segments, {} tables, {} rows\n",
        report.directory,
        report.files,
        bytes(report.file_bytes),
        report.log_segments,
        report.tables,
        report.rows
    );
    for finding in &report.findings {
        let _ = writeln!(out, "{finding}");
    }
    if report.more > 0 {
        let _ = writeln!(out, "and {} more", report.more);
    }
    let verdict = match (report.sound, report.findings.is_empty()) {
        (true, true) => "all is well",
        (true, false) => "no damage",
        (false, _) if report.unsupported => {
            "NOT CHECKED: part of it is encrypted, in an object store that was not read, or of a newer version of Firn"
        }
        (false, _) => "DAMAGED",
    };
    let _ = writeln!(out, "{verdict}");
    out
}
