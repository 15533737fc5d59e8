//! CHECK TABLE checks files against their checksums, and that rows and index entries match.
//!
//! The entries of an index and the entries that the rows require are compared as sets, in one scan
//! of each: equal counts and equal sums of hashes mean equal sets, whatever the order of the scans.
//! Keys are looked up one by one only to report those that do not match.

use super::blob_columns::RowReader;
use super::index_info::IndexInfo;
use super::{Table, TableIds};
use crate::base::blob_buf::BlobBuf;
use crate::base::checksum::xxh3;
use crate::base::key::{INDEX_ID_LEN, index_prefix};
use crate::base::key_range::prefix_successor;
use crate::base::{Error, ErrorKind, IndexId, Result};
use crate::catalog::{Counters, TableEntry, TableSchema};
use crate::env::ReadClass;
use crate::iter::{MergeIter, MvccIter, ReadAt};
use crate::read::{self, ReadPoint, ScanRange, ScanSource, SuperVersions, scan_sources};
use crate::rowcode::RowFormat;
use crate::sst::IndexStats;
use std::sync::Arc;

/// Number of problems that a report describes in words. Further problems are only counted.
const PROBLEMS_MAX: usize = 100;

/// Result of a check of a table.
#[derive(Debug, Default)]
pub struct CheckReport {
    /// Rows seen.
    pub rows: u64,
    /// The problems, in words.
    pub problems: Vec<String>,
    /// Number of problems, including those that are not listed.
    pub problem_count: u64,
    /// Rows that could not be decoded.
    undecoded: u64,
}

impl CheckReport {
    pub(super) fn problem(&mut self, words: String) {
        self.problem_count += 1;
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(words);
        }
    }
}

type Entries = MvccIter<MergeIter<ScanSource>>;

/// All entries of an index at `point`.
pub(super) fn index_entries(point: &ReadPoint, index: IndexId) -> Entries {
    let lower = index_prefix(index).to_vec();
    let range = ScanRange {
        upper: prefix_successor(&lower),
        lower,
    };
    let merged = MergeIter::new(scan_sources(
        &point.super_version,
        &range,
        ReadClass::Verify,
        None,
    ));
    let mut entries = MvccIter::new(merged, ReadAt::snapshot(point.seqno));
    entries.set_bounds(Some(&range.lower), range.upper.as_deref());
    entries
}

/// The table to check, and the read point.
pub(super) struct CheckedTable<'a> {
    pub(super) schema: &'a TableSchema,
    pub(super) format: &'a RowFormat,
    pub(super) current: &'a TableIds,
    pub(super) point: &'a ReadPoint,
    pub(super) interrupted: &'a dyn Fn() -> bool,
}

/// A secondary index.
pub(super) struct Secondary<'a> {
    pub(super) index: &'a IndexInfo,
    /// Whether the keys of the index can be computed without the server: from stored columns, with
    /// known collations. A stored row does not contain virtual columns, so only the server could
    /// compute a key of these.
    pub(super) computable: bool,
}

/// The hash of a set of keys: the number of keys, and the sum of their hashes.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct KeySetHash(u64, u64);

impl KeySetHash {
    fn add(&mut self, key: &[u8]) {
        self.0 += 1;
        self.1 = self.1.wrapping_add(xxh3(key));
    }
}

/// Hashes of the keys that a scan of the rows has computed.
#[derive(Default)]
struct ExpectedEntries {
    /// Keys of the rows, without the index id.
    rows: KeySetHash,
    /// Entries that the rows require in each index, as far as they can be computed.
    entries: Vec<KeySetHash>,
}

impl Table {
    /// Checks the table at the latest commit: its files, that each row decodes, and that each index
    /// has exactly the entries that the rows require. `extended` looks each row and entry up;
    /// without it this is done only in an index whose entries do not match. `interrupted` is
    /// polled; true ends the check.
    ///
    /// # Errors
    /// `Interrupted`, and other errors that stop the check halfway, except for damage of a file:
    /// this is a problem in the report.
    pub fn check(
        &self,
        super_versions: &SuperVersions,
        extended: bool,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<CheckReport> {
        let subject = CheckedTable {
            schema: self.schema(),
            format: self.format(),
            current: &self.current(),
            point: &super_versions.latest(),
            interrupted,
        };
        let mut report = CheckReport::default();
        subject.check_files(&mut report)?;
        match subject.check_entries(extended, &mut report) {
            // Ignore damage that ends this check if the check of the files has already reported a
            // problem: it is the same damage.
            Err(error) if error.is_corruption() && report.problem_count > 0 => {}
            checked => checked?,
        }
        Ok(report)
    }
}

/// Checks the rows and indexes of a table that is not open, at `point`, as [`Table::check`] does;
/// it does not check the files. Without the server's collations, keys of text cannot be computed.
/// In an index with such keys it checks only that the entries name exactly the table's rows.
///
/// # Errors
/// `Interrupted`, and what stops the check halfway, such as a damaged file.
pub fn check_stored(
    entry: &Arc<TableEntry>,
    point: &ReadPoint,
    interrupted: &dyn Fn() -> bool,
) -> Result<CheckReport> {
    let weightless = entry.schema.with_any_collator();
    let current = TableIds::new(&Counters::default(), &weightless, Arc::clone(entry), 0)?;
    let subject = CheckedTable {
        schema: &entry.schema,
        format: &weightless.row_format()?,
        current: &current,
        point,
        interrupted,
    };
    let mut report = CheckReport::default();
    subject.check_entries(false, &mut report)?;
    Ok(report)
}

impl CheckedTable<'_> {
    fn check_files(&self, report: &mut CheckReport) -> Result<()> {
        let ids = self.current.entry.index_ids();
        for file in self.point.super_version.files() {
            let ours = |stats: &IndexStats| ids.contains(&stats.index);
            if !file.per_index.iter().any(ours) {
                continue;
            }
            self.stop_if()?;
            let mut unreachable = None;
            let mut problem = |error: Error| match error.is_unreachable() {
                true => drop(unreachable.get_or_insert(error)),
                false => report.problem(error.to_string()),
            };
            match file.reader() {
                Ok(reader) => drop(reader.survey(&mut problem)),
                Err(error) => problem(error),
            }
            // It says nothing about the file.
            unreachable.map_or(Ok(()), Err)?;
        }
        Ok(())
    }

    fn check_entries(&self, extended: bool, report: &mut CheckReport) -> Result<()> {
        let all = self.secondaries();
        let indexes: Vec<&Secondary<'_>> = all.iter().collect();
        let wanted = self.scan_rows(&indexes, extended, report)?;
        let mut differing = Vec::new();
        for (secondary, entries) in indexes.iter().zip(&wanted.entries) {
            let wanted = (wanted.rows, *entries);
            if extended || !self.scan_entries(secondary, wanted, report)? {
                differing.push(*secondary);
            }
        }
        if !extended && !differing.is_empty() {
            self.scan_rows(&differing, true, report)?;
        }
        for secondary in differing {
            self.look_entries_up(secondary.index, report)?;
        }
        Ok(())
    }

    pub(super) fn secondaries(&self) -> Vec<Secondary<'_>> {
        let all = Table::secondaries(self.current).map(|(number, index)| Secondary {
            index,
            computable: self.is_computable(number),
        });
        all.collect()
    }

    fn is_computable(&self, index: usize) -> bool {
        self.schema.indexes[index].parts.iter().all(|part| {
            let column = &self.schema.columns[part.column as usize].column;
            column.stored && part.has_collator()
        })
    }

    /// Decodes each row and hashes the entries that it requires in `indexes`. With `lookup`, it
    /// looks these entries up instead and reports those that are missing. A row that does not
    /// decode is reported only in the first scan of a check.
    fn scan_rows(
        &self,
        indexes: &[&Secondary<'_>],
        lookup: bool,
        report: &mut CheckReport,
    ) -> Result<ExpectedEntries> {
        let mut reader = RowReader::new(self.format, ReadClass::Verify, None);
        let mut record = vec![0; self.schema.record_len as usize];
        let mut blobs = BlobBuf::new();
        let mut entry = Vec::new();
        let again = report.rows > 0;
        let mut wanted = ExpectedEntries {
            entries: vec![KeySetHash::default(); indexes.len()],
            ..ExpectedEntries::default()
        };
        let mut rows = self.entries_of(&self.current.clustered);
        let mut found = rows.first()?;
        while found {
            if wanted.rows.0.is_multiple_of(1024) {
                self.stop_if()?;
            }
            blobs.clear();
            let row_key = rows.user_key();
            wanted.rows.add(&row_key[INDEX_ID_LEN..]);
            let store = &self.point.super_version.blobs;
            let (kind, value) = (rows.kind(), rows.value());
            let decoded = reader.read(store, kind, value, &mut record, &mut blobs);
            if let Err(error) = &decoded
                && !again
            {
                report.undecoded += 1;
                report.problem(format!("row {}: {error}", hex(row_key)));
            }
            let computable = indexes.iter().zip(&mut wanted.entries);
            for (secondary, sum) in
                computable.filter(|(index, _)| index.computable && decoded.is_ok())
            {
                let index = secondary.index;
                entry.clear();
                // SAFETY: `reader.read` succeeded, so each blob pointer in `record` points into
                // `blobs`.
                unsafe { index.declared_key(&record, &mut entry) }?;
                entry.extend_from_slice(&row_key[INDEX_ID_LEN..]);
                if !lookup {
                    sum.add(&entry);
                } else if !self.is_there(&entry)? {
                    let row = hex(row_key);
                    report.problem(format!("index {}: row {row} has no entry", index.name()));
                }
            }
            found = rows.next()?;
        }
        report.rows = wanted.rows.0;
        Ok(wanted)
    }

    /// Returns whether the index has exactly the entries that the rows require. If the keys of the
    /// index cannot be computed, returns whether its entries name exactly the rows of the table.
    fn scan_entries(
        &self,
        secondary: &Secondary<'_>,
        (rows, wanted): (KeySetHash, KeySetHash),
        report: &mut CheckReport,
    ) -> Result<bool> {
        let index = secondary.index;
        let (mut seen, mut named) = (KeySetHash::default(), KeySetHash::default());
        let mut entries = self.entries_of(index);
        let mut found = entries.first()?;
        while found {
            if seen.0.is_multiple_of(1024) {
                self.stop_if()?;
            }
            let key = entries.user_key();
            seen.add(key);
            // An entry with a malformed key names no row, so the two hashes will differ, and the
            // entry is reported.
            if let Ok(declared) = index.declared_len(key) {
                named.add(&key[declared..]);
            }
            found = entries.next()?;
        }
        if seen.0 != rows.0 {
            let (name, entries, rows) = (index.name(), seen.0, rows.0);
            report.problem(format!(
                "index {name} has {entries} entries, the table {rows} rows"
            ));
        } else if named != rows {
            let name = index.name();
            report.problem(format!(
                "index {name}: its entries name other rows than the table has"
            ));
        }
        let computed = secondary.computable && report.undecoded == 0;
        Ok(named == rows && (!computed || seen == wanted))
    }

    /// Reports each entry of the index that has no row.
    fn look_entries_up(&self, index: &IndexInfo, report: &mut CheckReport) -> Result<()> {
        let mut row_key = Vec::new();
        let mut entries = self.entries_of(index);
        let mut count = 0u64;
        let mut found = entries.first()?;
        while found {
            if count.is_multiple_of(1024) {
                self.stop_if()?;
            }
            count += 1;
            let key = entries.user_key();
            match index.declared_len(key) {
                Err(error) => report.problem(format!("index {}: {error}", index.name())),
                Ok(declared) => {
                    row_key.clear();
                    row_key.extend_from_slice(&index_prefix(self.current.clustered.id()));
                    row_key.extend_from_slice(&key[declared..]);
                    if !self.is_there(&row_key)? {
                        let entry = hex(key);
                        report.problem(format!("index {}: entry {entry} has no row", index.name()));
                    }
                }
            }
            found = entries.next()?;
        }
        Ok(())
    }

    pub(super) fn is_there(&self, key: &[u8]) -> Result<bool> {
        let there = read::get(
            &self.point.super_version,
            key,
            self.point.seqno,
            ReadClass::Verify,
            |key, _| key.kind.is_put(),
        )?;
        Ok(there == Some(true))
    }

    pub(super) fn entries_of(&self, index: &IndexInfo) -> Entries {
        index_entries(self.point, index.id())
    }

    fn stop_if(&self) -> Result<()> {
        match (self.interrupted)() {
            true => Err(Error::new(ErrorKind::Interrupted, "check interrupted")),
            false => Ok(()),
        }
    }
}

fn hex(key: &[u8]) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}
