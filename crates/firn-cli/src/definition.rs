//! Writes the server's definition of a table, as the engine keeps it (`firn definition`).

use crate::Outcome;
use crate::args::Definition;
use crate::backup::table_file_names::encode;
use crate::data_directory;
use crate::output::{Output, bytes};
use firn::base::{Error, ErrorKind, Result};
use firn::catalog::{CatalogState, TableEntry};
use serde::Serialize;
use std::fs::OpenOptions;
use std::io::Write;
use std::sync::Arc;

#[derive(Serialize)]
struct Report {
    table: String,
    target: String,
    bytes: usize,
}

/// Writes the definition to a file.
pub fn run(args: &Definition, out: &Output) -> Result<Outcome> {
    let db = data_directory::open_read_only(&args.directory)?;
    let tree = db.tree()?;
    let log = db.log(&tree)?;
    let entry = find(&db.tables(&log.point)?, &args.table)?;
    let target = args.target.display().to_string();
    let failed = |error: std::io::Error| Error::io(&error, format_args!("{target}"));
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&args.target)
        .map_err(failed)?;
    file.write_all(&entry.frm)
        .and_then(|()| file.sync_all())
        .map_err(failed)?;
    let report = Report {
        table: entry.name.clone(),
        target: target.clone(),
        bytes: entry.frm.len(),
    };
    out.print(&report, |report| {
        let size = bytes(report.bytes as u64);
        format!("{}: {size} in {}\n", report.table, report.target)
    });
    Ok(Outcome::Well)
}

/// The table with this name, or the first of its partitions. Fails if the partitions have different
/// definitions: some partitions were changed later than others, and nothing tells which definition
/// is that of the table.
fn find(known: &CatalogState, name: &str) -> Result<Arc<TableEntry>> {
    let Some((database, table)) = name.split_once('.') else {
        return Err(Error::invalid(format_args!("{name}: not database.table")));
    };
    let stored = format!("{}/{}", encode(database), encode(table));
    let partition = format!("{stored}#P#");
    let mut of_partitions = known.tables.range(partition.clone()..);
    let first = of_partitions.next();
    let first = first.filter(|(name, _)| name.starts_with(&partition));
    let is_one = |entry: &TableEntry| {
        let others = of_partitions
            .clone()
            .map_while(|(name, other)| name.starts_with(&partition).then_some(other));
        others.into_iter().all(|other| other.frm == entry.frm)
    };
    let found = known.tables.get(&stored).or(first.map(|(_, entry)| entry));
    match found {
        Some(entry)
            if !entry.frm.is_empty() && (known.tables.contains_key(&stored) || is_one(entry)) =>
        {
            Ok(Arc::clone(entry))
        }
        Some(_) if !known.tables.contains_key(&stored) => Err(Error::new(
            ErrorKind::NotFound,
            format!(
                "the partitions of {name} were changed: the engine keeps no definition of that until the next ALTER TABLE in \
                 place, such as one of the comment"
            ),
        )),
        Some(_) => Err(Error::new(
            ErrorKind::NotFound,
            format!("no definition is kept with table {name}"),
        )),
        None => Err(Error::new(ErrorKind::NotFound, format!("no table {name}"))),
    }
}
