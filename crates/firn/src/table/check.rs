//! CHECK TABLE: files against their checksums, rows against their entries and the other way round.

use super::index::IndexInfo;
use super::{Current, Table};
use crate::base::key::{INDEX_ID_LEN, index_prefix};
use crate::base::range::prefix_successor;
use crate::base::{Error, ErrorKind, Result};
use crate::iter::{MergeIter, MvccIter, ReadAt};
use crate::read::{self, ReadPoint, ScanRange, Source, Views, scan_sources};
use crate::rowcode::BlobBuf;

/// Problems listed at most; the rest is counted.
const PROBLEMS_MAX: usize = 100;

/// What a check found.
#[derive(Debug, Default)]
pub struct CheckReport {
    /// Rows seen.
    pub rows: u64,
    /// What is wrong, in words.
    pub problems: Vec<String>,
    /// How much is wrong.
    pub problem_count: u64,
}

impl CheckReport {
    fn problem(&mut self, words: String) {
        self.problem_count += 1;
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(words);
        }
    }
}

type Entries = MvccIter<MergeIter<Source>>;

impl Table {
    /// Checks the table at the latest commit. `extended` also checks that each row has its entries
    /// in every index and each entry its row. `interrupted` is polled.
    pub fn check(
        &self,
        views: &Views,
        extended: bool,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<CheckReport> {
        let mut report = CheckReport::default();
        let point = views.latest();
        let current = self.current();
        self.check_files(&point, &current, interrupted, &mut report)?;
        let secondaries: Vec<&IndexInfo> = Self::secondaries(&current).map(|(_, i)| i).collect();
        // Virtual columns are not in the row: only the host could compute such an entry.
        let computable = |(number, _): &(usize, &IndexInfo)| self.is_made_of_stored(*number);
        let from_rows: Vec<&IndexInfo> = Self::secondaries(&current)
            .filter(computable)
            .map(|(_, i)| i)
            .collect();
        self.check_rows(
            &point,
            &current,
            &from_rows,
            extended,
            interrupted,
            &mut report,
        )?;
        for index in secondaries {
            self.check_entries(&point, &current, index, extended, interrupted, &mut report)?;
        }
        Ok(report)
    }

    fn is_made_of_stored(&self, index: usize) -> bool {
        let schema = self.schema();
        let stored = |column: u32| schema.columns[column as usize].column.stored;
        schema.indexes[index]
            .parts
            .iter()
            .all(|part| stored(part.column))
    }

    fn check_files(
        &self,
        point: &ReadPoint,
        current: &Current,
        interrupted: &dyn Fn() -> bool,
        report: &mut CheckReport,
    ) -> Result<()> {
        let ids = current.entry.index_ids();
        for (_, file) in point.view.version.files() {
            if !file
                .per_index
                .iter()
                .any(|stats| ids.contains(&stats.index))
            {
                continue;
            }
            stop_if(interrupted)?;
            if let Err(error) = file.reader().and_then(|reader| reader.verify().map(|_| ())) {
                report.problem(error.to_string());
            }
        }
        Ok(())
    }

    fn check_rows(
        &self,
        point: &ReadPoint,
        current: &Current,
        secondaries: &[&IndexInfo],
        extended: bool,
        interrupted: &dyn Fn() -> bool,
        report: &mut CheckReport,
    ) -> Result<()> {
        let plan = self.format().plan(None);
        let mut record = vec![0; self.record_len()];
        let mut blobs = BlobBuf::new();
        let mut entry = Vec::new();
        let mut rows = entries_of(point, &current.clustered);
        let mut found = rows.first()?;
        while found {
            if report.rows.is_multiple_of(1024) {
                stop_if(interrupted)?;
            }
            report.rows += 1;
            blobs.clear();
            let row_key = rows.user_key();
            if let Err(error) = plan.decode(rows.value(), &mut record, &mut blobs) {
                report.problem(format!("row {}: {error}", hex(row_key)));
            } else if extended {
                for index in secondaries {
                    entry.clear();
                    // SAFETY: the blob pointers were just written and point into `blobs`.
                    unsafe { index.declared_key(&record, &mut entry) }?;
                    entry.extend_from_slice(&row_key[INDEX_ID_LEN..]);
                    let there =
                        read::get(&point.view, &entry, point.seqno, |key, _| key.kind.is_put())?;
                    if there != Some(true) {
                        let row = hex(row_key);
                        report.problem(format!("index {}: row {row} has no entry", index.name()));
                    }
                }
            }
            found = rows.next()?;
        }
        Ok(())
    }

    fn check_entries(
        &self,
        point: &ReadPoint,
        current: &Current,
        index: &IndexInfo,
        extended: bool,
        interrupted: &dyn Fn() -> bool,
        report: &mut CheckReport,
    ) -> Result<()> {
        let mut row_key = Vec::new();
        let mut entries = entries_of(point, index);
        let mut count = 0u64;
        let mut found = entries.first()?;
        while found {
            if count.is_multiple_of(1024) {
                stop_if(interrupted)?;
            }
            count += 1;
            if extended {
                let key = entries.user_key();
                match index.declared_len(key) {
                    Err(error) => report.problem(format!("index {}: {error}", index.name())),
                    Ok(declared) => {
                        row_key.clear();
                        row_key.extend_from_slice(&index_prefix(current.clustered.id()));
                        row_key.extend_from_slice(&key[declared..]);
                        let there = read::get(&point.view, &row_key, point.seqno, |key, _| {
                            key.kind.is_put()
                        })?;
                        if there != Some(true) {
                            let entry = hex(key);
                            report.problem(format!(
                                "index {}: entry {entry} has no row",
                                index.name()
                            ));
                        }
                    }
                }
            }
            found = entries.next()?;
        }
        if count != report.rows {
            let (name, rows) = (index.name(), report.rows);
            report.problem(format!(
                "index {name} has {count} entries, the table {rows} rows"
            ));
        }
        Ok(())
    }
}

fn entries_of(point: &ReadPoint, index: &IndexInfo) -> Entries {
    let lower = index_prefix(index.id()).to_vec();
    let range = ScanRange {
        upper: prefix_successor(&lower),
        lower,
    };
    let merged = MergeIter::new(scan_sources(&point.view, &range, None));
    let mut entries = MvccIter::new(merged, ReadAt::snapshot(point.seqno));
    entries.set_bounds(Some(&range.lower), range.upper.as_deref());
    entries
}

fn stop_if(interrupted: &dyn Fn() -> bool) -> Result<()> {
    match interrupted() {
        true => Err(Error::new(ErrorKind::Interrupted, "check interrupted")),
        false => Ok(()),
    }
}

fn hex(key: &[u8]) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}
