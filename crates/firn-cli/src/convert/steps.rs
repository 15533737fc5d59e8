//! The steps of a conversion on the server. Every step can be repeated.

use super::client::Client;
use super::foreign_key::{ForeignKey, TableName};
use super::plan::Plan;
use super::{ConvertedTable, Failure, Report, saved_foreign_keys};
use crate::args::Convert;
use crate::output::{Output, bytes};
use crate::server::quoted_name;
use firn::base::Result;
use std::collections::BTreeSet;
use std::time::Instant;

/// Carries out a plan. If the conversion of a table fails, the other tables are converted all the
/// same.
///
/// # Errors
/// Those of the server before the first table is converted: foreign keys cannot be saved or
/// dropped. Keys that were dropped before the error are saved.
pub fn run(plan: &Plan, args: &Convert, client: &mut Client<'_>, out: &Output) -> Result<Report> {
    for key in &plan.forget {
        saved_foreign_keys::forget(client, key)?;
    }
    saved_foreign_keys::save(client, &plan.drop.iter().collect::<Vec<_>>())?;
    for key in &plan.drop {
        client.ask(&format!(
            "ALTER TABLE {} DROP FOREIGN KEY {}",
            key.child.quoted(),
            quoted_name(&key.name)
        ))?;
        out.progress_line(&format!("saved and dropped foreign key {}", key.title()));
    }
    let (converted, failed) = convert_tables(plan, args, client, out);
    let unconverted: BTreeSet<&str> = failed.iter().map(|f| f.name.as_str()).collect();
    let mut missing = Vec::new();
    let mut constraints = 0;
    for key in &plan.add {
        match add(key, &unconverted, client) {
            Ok(()) => {
                constraints += 1;
                out.progress_line(&format!("added foreign key {}", key.title()));
            }
            Err(reason) => missing.push(failure(key, reason)),
        }
    }
    for key in &plan.impossible {
        let reason = format!("{} has another engine or is gone", key.parent);
        missing.push(failure(key, reason));
    }
    let keys = plan.add.iter().chain(&plan.forget);
    let schemas: BTreeSet<String> = keys.map(|key| key.child.schema.clone()).collect();
    saved_foreign_keys::drop_empty(client, &schemas)?;
    Ok(Report {
        to: args.to().to_owned(),
        dry_run: false,
        converted,
        stay: plan.stay.clone(),
        constraints,
        failed,
        missing,
    })
}

fn failure(key: &ForeignKey, reason: String) -> Failure {
    Failure {
        name: key.title(),
        reason,
    }
}

fn convert_tables(
    plan: &Plan,
    args: &Convert,
    client: &mut Client<'_>,
    out: &Output,
) -> (Vec<ConvertedTable>, Vec<Failure>) {
    let (mut converted, mut failed) = (Vec::new(), Vec::new());
    let number = plan.convert.len();
    for (done, table) in plan.convert.iter().enumerate() {
        let began = Instant::now();
        let statement = format!("ALTER TABLE {} ENGINE={}", table.name.quoted(), args.to());
        let line = format!(
            "[{}/{number}] {} ({})",
            done + 1,
            table.name,
            bytes(table.bytes)
        );
        match client.ask(&statement) {
            Ok(_) => {
                let seconds = began.elapsed().as_secs_f64();
                out.progress_line(&format!("{line} in {seconds:.1} s"));
                converted.push(ConvertedTable {
                    table: table.name.to_string(),
                    bytes: table.bytes,
                    seconds,
                });
            }
            Err(error) => {
                out.progress_line(&format!("{line} failed: {error}"));
                failed.push(Failure {
                    name: table.name.to_string(),
                    reason: error.to_string(),
                });
            }
        }
    }
    (converted, failed)
}

/// Adds a foreign key that a conversion has saved and dropped, unless a row of the child table
/// refers to a row that does not exist. Both tables are locked while this function compares their
/// rows. So the server need not compare them again, which it could only do by copying the whole
/// child.
fn add(
    key: &ForeignKey,
    unconverted: &BTreeSet<&str>,
    client: &mut Client<'_>,
) -> std::result::Result<(), String> {
    let is_left = |table: &&TableName| unconverted.contains(table.to_string().as_str());
    if let Some(table) = [&key.child, &key.parent].into_iter().find(is_left) {
        return Err(format!("{table} could not be converted"));
    }
    let mut ask = |statement: &str| client.ask(statement).map_err(|error| error.to_string());
    ask(&key.lock_statement())?;
    let orphan = ask(&key.orphan_query())?;
    if let Some(values) = orphan.first().and_then(|row| row.first()) {
        ask("UNLOCK TABLES")?;
        return Err(format!(
            "the row of {} with ({values}) has no row in {}",
            key.child, key.parent
        ));
    }
    let statement = format!(
        "ALTER TABLE {} ADD {}",
        key.child.quoted(),
        key.definition()
    );
    ask(&statement)?;
    ask("UNLOCK TABLES")?;
    saved_foreign_keys::forget(client, key).map_err(|error| error.to_string())
}
