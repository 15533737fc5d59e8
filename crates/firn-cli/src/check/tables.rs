//! The tables: each row decodes, each index has the entries of the rows and no others, and each
//! foreign key finds the row that it refers to.

use super::findings::Findings;
use crate::output::Output;
use firn::base::{IndexId, Result};
use firn::catalog::{CATALOG_INDEX, CatalogState};
use firn::db::{ReadOnlyDb, ReadOnlyTree};
use firn::read::ReadPoint;
use firn::table::{check_foreign_keys, check_stored};
use std::collections::BTreeSet;

/// Counts of the tables that were checked.
#[derive(Default)]
pub struct Checked {
    /// Number of tables.
    pub tables: u64,
    /// Number of rows.
    pub rows: u64,
}

/// Checks all tables at `point`.
pub fn check(
    db: &ReadOnlyDb,
    tree: &ReadOnlyTree,
    point: &ReadPoint,
    out: &Output,
    findings: &mut Findings,
) -> Result<Checked> {
    let mut checked = Checked::default();
    let known = match db.tables(point) {
        Ok(known) => known,
        Err(error) => {
            findings.error(&error);
            return Ok(checked);
        }
    };
    let stored = |id: IndexId| tree.version.index_stats(id).stored_bytes;
    let bar = out.progress(
        "tables",
        known
            .tables
            .values()
            .flat_map(|t| t.index_ids())
            .map(stored)
            .sum(),
    );
    for (name, entry) in &known.tables {
        checked.tables += 1;
        match check_stored(entry, point, &|| false) {
            Ok(report) => {
                checked.rows += report.rows;
                for problem in &report.problems {
                    findings.damage(name, None, problem);
                }
                let more = report.problem_count - report.problems.len() as u64;
                if more > 0 {
                    findings.damage(name, None, format!("{more} problems more"));
                }
            }
            Err(error) => findings.error(&error),
        }
        match check_foreign_keys(&known, name, point, &|| false) {
            Ok(report) => {
                for problem in &report.problems {
                    findings.warning(name, None, problem);
                }
                let more = report.problem_count - report.problems.len() as u64;
                if more > 0 {
                    findings.warning(name, None, format!("{more} rows more refer to nothing"));
                }
            }
            Err(error) => findings.error(&error),
        }
        bar.inc(entry.index_ids().into_iter().map(stored).sum());
    }
    bar.finish_and_clear();
    warn_of_strangers(tree, &known, findings);
    Ok(checked)
}

/// Warns of entries that belong to no table: they are harmless, but no compaction will ever remove
/// them.
fn warn_of_strangers(tree: &ReadOnlyTree, known: &CatalogState, findings: &mut Findings) {
    let mut ours: BTreeSet<IndexId> = known.retired.keys().copied().collect();
    ours.insert(CATALOG_INDEX);
    ours.extend(known.tables.values().flat_map(|entry| entry.index_ids()));
    for stats in tree.version.all_index_stats() {
        if !ours.contains(&stats.index) {
            let what = format!(
                "{} entries of index {}, which no table has",
                stats.entries, stats.index
            );
            findings.warning("catalog", None, what);
        }
    }
}
