//! `firn convert`: moves the tables of schemas from one engine to another, with their foreign keys.
//!
//! The server refuses `ALTER TABLE … ENGINE` on either side of a foreign key, so the command saves
//! the constraints in a table of the schema, drops them, converts table by table, and adds them
//! again. Each step leaves a state from which the same command goes on: the tables that still have
//! the old engine, and the saved constraints, are what is left to do.
//!
//! Rejected: a file of saved constraints on the client's machine, because another machine could not
//! resume then, and a lost file would lose constraints; converting a table and adding its
//! constraints in one ALTER, because cycles have no order in which that works.
#![allow(clippy::disallowed_methods)] // Nothing here runs under the simulation.

mod catalog;
mod client;
mod foreign_key;
mod plan;
mod saved_foreign_keys;
mod steps;

use crate::Outcome;
use crate::args::Convert;
use crate::output::{Output, bytes, table};
use client::Client;
use firn::base::Result;
use plan::{Kept, Plan};
use serde::Serialize;
use std::fmt::Write;

/// The result of a conversion, or of `--dry-run` what it would do.
#[derive(Debug, Serialize)]
struct Report {
    to: String,
    dry_run: bool,
    /// Tables that were converted, or would be.
    converted: Vec<ConvertedTable>,
    /// Tables that keep their engine, and why.
    stay: Vec<Kept>,
    /// Number of constraints that were added again, or with `--dry-run` would be added.
    constraints: usize,
    /// Tables that could not be converted, with the server's error.
    failed: Vec<Failure>,
    /// Foreign keys that a conversion has dropped and that could not be added again, each with the
    /// reason. Their definitions stay in the schema's table of saved foreign keys.
    missing: Vec<Failure>,
}

#[derive(Debug, Serialize)]
struct ConvertedTable {
    table: String,
    bytes: u64,
    seconds: f64,
}

/// A table or constraint, and the reason why its step failed.
#[derive(Debug, Serialize)]
struct Failure {
    name: String,
    reason: String,
}

/// Converts the tables of schemas.
pub fn run(args: &Convert, out: &Output) -> Result<Outcome> {
    let mut client = Client::new(args)?;
    let schemas = catalog::schemas(&mut client, &args.schemas)?;
    let tables = catalog::tables(&mut client, &schemas)?;
    let in_force = catalog::foreign_keys(&mut client, &schemas)?;
    let saved = saved_foreign_keys::load(&mut client, &schemas)?;
    let plan = Plan::new(tables, in_force, saved, args.from(), args.to());
    let report = match args.dry_run {
        true => would_do(&plan, args),
        false => steps::run(&plan, args, &mut client, out)?,
    };
    out.print(&report, text);
    match report.failed.is_empty() && report.missing.is_empty() {
        true => Ok(Outcome::Well),
        false => Ok(Outcome::Damage),
    }
}

fn would_do(plan: &Plan, args: &Convert) -> Report {
    let converted = plan.convert.iter().map(|table| ConvertedTable {
        table: table.name.to_string(),
        bytes: table.bytes,
        seconds: 0.0,
    });
    Report {
        to: args.to().to_owned(),
        dry_run: true,
        converted: converted.collect(),
        stay: plan.stay.clone(),
        constraints: plan.add.len(),
        failed: Vec::new(),
        missing: Vec::new(),
    }
}

fn text(report: &Report) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{}{} tables to {}, {} foreign keys",
        if report.dry_run { "would convert " } else { "" },
        report.converted.len(),
        report.to,
        report.constraints
    );
    if report.dry_run && !report.converted.is_empty() {
        let rows = report.converted.iter();
        let rows = rows.map(|done| vec![done.table.clone(), bytes(done.bytes)]);
        text += &table(&["table", "size"], 1, rows.collect());
    }
    let sections = [
        ("not converted, run again:", &report.failed),
        (
            "foreign keys that are NOT in force, run again:",
            &report.missing,
        ),
    ];
    for (heading, failures) in sections {
        if !failures.is_empty() {
            let _ = writeln!(text, "{heading}");
        }
        for failure in failures {
            let _ = writeln!(text, "  {}: {}", failure.name, failure.reason);
        }
    }
    if !report.stay.is_empty() {
        let _ = writeln!(text, "stay as they are:");
    }
    for kept in &report.stay {
        let _ = writeln!(text, "  {} ({}): {}", kept.table, kept.engine, kept.reason);
    }
    text
}
