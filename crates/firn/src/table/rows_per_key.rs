//! Estimates how many rows share a key: the optimizer's rows per key.
//!
//! The files of an index carry sketches of the distinct values of each prefix of its keys. The
//! union of these sketches is the sketch of the index. If an index has very many files, some dozens
//! of them stand for the others (`run_sample.rs`). Entries in memtables are added by walking over
//! them, if they are not too many. So the estimate reads no row, is the same after a restart, and
//! is there after a load without ANALYZE. It counts values as they were written: the values of
//! deleted and superseded entries count until a compaction has dropped these entries. The estimate
//! of distinct values is never above the number of rows.
//!
//! Where sketches are missing (files of an older version, or a great many rows in memtables), a
//! scan visits values: for each prefix of the index, it seeks from one distinct value to the next.
//! When the index ends within a few dozen seeks, the count is exact. Otherwise the values seen so
//! far cover a part of the index, and a range estimate of the rows in that part gives the rows per
//! value. The beginning of the index stands for all of it, which is good for even distributions and
//! wrong for skewed ones.

mod distinct_values;
mod run_sample;

use super::Table;
use super::index_info::IndexInfo;
use super::statistics::live_rows;
use crate::base::Result;
use crate::base::key::index_prefix;
use crate::base::key_range::prefix_successor;
use crate::base::prefix_extractor::PrefixExtractor;
use crate::env::ReadClass;
use crate::iter::{MergeIter, MvccIter, ReadAt};
use crate::read::{ReadPoint, ScanRange, SuperVersions, estimate_rows, scan_sources};
use distinct_values::distinct_values;
use std::sync::Arc;

/// Distinct values that are visited at most.
const VALUES_MAX: u64 = 64;

impl Table {
    /// Mean number of rows with the same value in the first 1, 2, … declared parts of index number
    /// `index`. All NULLs count as one value.
    ///
    /// Reads the properties of at most some dozens of files. If these have no sketches, it reads a
    /// few dozen blocks instead for each prefix.
    ///
    /// # Errors
    /// Those of reading files: `Corruption`, `Unsupported`, `NoDescriptor`, `Io`. A file whose
    /// sketches cannot be read is an error only if no other file has any.
    pub fn rows_per_key(&self, super_versions: &SuperVersions, index: usize) -> Result<Vec<f64>> {
        let current = self.current();
        let Some(info) = current.indexes.get(index) else {
            return Ok(Vec::new());
        };
        let clustered = current.clustered.id();
        let (rows, point) = live_rows(&current.live_rows, super_versions, clustered);
        let rows = rows.max(1);
        let prefix_extractor: Arc<dyn PrefixExtractor> =
            Arc::new(self.schema.key_prefix_extractor(index)?);
        let prefixes = prefix_extractor.prefixes();
        let values = match prefixes {
            0 => Some(Vec::new()),
            _ => distinct_values(&point.super_version, info.id(), &prefix_extractor)?,
        };
        let mut all = Vec::with_capacity(info.part_count());
        for parts in 1..=info.part_count() {
            // A longer prefix has no fewer distinct values: if each row has its own value of a
            // prefix, it has its own value of all longer ones.
            let known = all.last().copied().unwrap_or(f64::MAX);
            let per_key = if known <= 1.0 || parts > prefixes {
                1.0
            } else if let Some(values) = &values {
                rows as f64 / values[parts - 1].clamp(1.0, rows as f64)
            } else {
                rows_of_prefix(&point, info, parts, rows)?
            };
            all.push(per_key.min(known));
        }
        Ok(all)
    }
}

fn rows_of_prefix(point: &ReadPoint, info: &IndexInfo, parts: usize, rows: u64) -> Result<f64> {
    let lower = index_prefix(info.id()).to_vec();
    let mut range = ScanRange {
        upper: prefix_successor(&lower),
        lower,
    };
    let sources = scan_sources(&point.super_version, &range, ReadClass::Range, None);
    let mut entries = MvccIter::new(MergeIter::new(sources), ReadAt::snapshot(point.seqno));
    entries.set_bounds(Some(&range.lower), range.upper.as_deref());
    let mut values = 0;
    let mut found = entries.first()?;
    while found && values < VALUES_MAX {
        values += 1;
        let key = entries.user_key();
        let prefix = &key[..info.prefix_len(key, parts)?];
        let Some(next) = prefix_successor(prefix) else {
            found = false;
            break;
        };
        found = entries.seek_ge(&next)?;
        range.upper = Some(next);
    }
    let covered = if found {
        estimate_rows(point, &range)?.max(values)
    } else {
        rows
    };
    Ok((covered as f64 / values.max(1) as f64).max(1.0))
}
