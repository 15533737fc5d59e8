//! Finds rows whose foreign key refers to no row. It compares stored keys, so it needs no
//! collations.

use super::KeyMap;
use crate::base::Result;
use crate::base::key::{INDEX_ID_LEN, index_prefix};
use crate::base::{Error, ErrorKind};
use crate::catalog::{CatalogState, ForeignKey, TableEntry};
use crate::read::ReadPoint;
use crate::table::check_table::{CheckReport, index_entries};

/// Looks for rows of `table` whose foreign keys refer to no row at `point`. The report's number of
/// rows counts a row once for each foreign key that was checked. Sessions that turn foreign key
/// checks off may write such rows, so they are no damage.
///
/// # Errors
/// `Interrupted`; those of reading files.
pub fn check_foreign_keys(
    known: &CatalogState,
    table: &str,
    point: &ReadPoint,
    interrupted: &dyn Fn() -> bool,
) -> Result<CheckReport> {
    let mut report = CheckReport::default();
    let Some(entry) = known.tables.get(table) else {
        return Ok(report);
    };
    for key in entry.foreign_keys.iter().filter(|key| !key.inherited) {
        let check = KeyCheck {
            known,
            entry,
            key,
            point,
        };
        check.run(interrupted, &mut report)?;
    }
    Ok(report)
}

struct KeyCheck<'a> {
    known: &'a CatalogState,
    entry: &'a TableEntry,
    key: &'a ForeignKey,
    point: &'a ReadPoint,
}

impl KeyCheck<'_> {
    fn run(&self, interrupted: &dyn Fn() -> bool, report: &mut CheckReport) -> Result<()> {
        let (key, schema) = (self.key, &self.entry.schema);
        let names = key.column_names();
        let Some(own) = schema.leading_index(&names, None) else {
            report.problem(format!("foreign key {}: the index is missing", key.name));
            return Ok(());
        };
        let parent = self.known.tables.get(&key.parent);
        let found = parent.and_then(|parent| {
            let like = Some((schema, own));
            let number = parent
                .schema
                .leading_index(&key.parent_column_names(), like)?;
            Some((parent, number))
        });
        let Some((parent, number)) = found else {
            let (name, table) = (&key.name, &key.parent);
            report.problem(format!(
                "foreign key {name}: table {table} or its index is missing"
            ));
            return Ok(());
        };
        let map = KeyMap::new((schema, own), (&parent.schema, number), names.len())?;
        let mut rows = index_entries(self.point, self.entry.indexes[own].id);
        let target = parent.indexes[number].id;
        let mut referenced = index_entries(self.point, target);
        let (mut value, mut last) = (Vec::new(), Vec::new());
        let mut more = rows.first()?;
        while more {
            if interrupted() {
                return Err(Error::new(ErrorKind::Interrupted, "the check was stopped"));
            }
            report.rows += 1;
            value.clear();
            value.extend_from_slice(&index_prefix(target));
            if map.map(&rows.user_key()[INDEX_ID_LEN..], &mut value)? && value != last {
                let stands =
                    referenced.seek_ge(&value)? && referenced.user_key().starts_with(&value);
                if !stands {
                    let row = self.known.entry_text(rows.user_key());
                    let (name, table) = (&key.name, &key.parent);
                    report.problem(format!(
                        "{row}: no row of table {table} has the value that foreign key {name} refers to"
                    ));
                }
                std::mem::swap(&mut last, &mut value);
            }
            more = rows.next()?;
        }
        Ok(())
    }
}
