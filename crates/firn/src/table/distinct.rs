//! How many rows share a key: what the optimizer calls rows per key.
//!
//! For each prefix of an index: seek from one distinct value to the next. When the index ends within
//! a few dozen seeks the count is exact. Otherwise the values seen so far cover a part of the index;
//! the rows in that part, by a range estimate, give the rows per value. The
//! beginning of the index stands for the rest: good for even distributions, wrong for skewed ones.

use super::Table;
use super::index::IndexInfo;
use super::statistics::IndexSums;
use crate::base::Result;
use crate::base::key::index_prefix;
use crate::base::range::prefix_successor;
use crate::iter::{MergeIter, MvccIter, ReadAt};
use crate::read::{ReadPoint, ScanRange, Views, estimate_rows, scan_sources};

/// Distinct values to visit.
const VALUES_MAX: u64 = 64;

impl Table {
    /// Mean rows for one value of the first 1, 2, … declared parts of index number `index`.
    ///
    /// # Errors
    /// Those of reading.
    pub fn rows_per_key(&self, views: &Views, index: usize) -> Result<Vec<f64>> {
        let current = self.current();
        let Some(info) = current.indexes.get(index) else {
            return Ok(Vec::new());
        };
        let point = views.latest();
        let rows = IndexSums::of(&point.view, info.id()).live_entries().max(1);
        let mut all = Vec::with_capacity(info.part_count());
        for parts in 1..=info.part_count() {
            // A longer prefix has no fewer values: once each row has its own, all do.
            let known = all.last().copied().unwrap_or(f64::MAX);
            let per_key = if known <= 1.0 {
                1.0
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
    let sources = scan_sources(&point.view, &range, None);
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
