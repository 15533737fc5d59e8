//! Statistics and estimates for the optimizer.

use super::Table;
use super::cursor::Key;
use super::index::IndexInfo;
use crate::base::IndexId;
use crate::base::Result;
use crate::base::key::index_prefix;
use crate::base::range::prefix_successor;
use crate::read::{ScanRange, View, Views, estimate_rows};

/// Sums over files and memtables for one index.
#[derive(Debug, Clone, Copy, Default)]
pub struct IndexSums {
    /// Entries, deletions included.
    pub entries: u64,
    /// Deletions.
    pub deletes: u64,
    /// Bytes of keys and values before compression.
    pub raw_bytes: u64,
    /// Bytes in files.
    pub stored_bytes: u64,
}

impl IndexSums {
    /// The sums for `index` in `view`.
    pub fn of(view: &View, index: IndexId) -> Self {
        let files = view.version.index_stats(index);
        let mut sums = Self {
            entries: files.entries,
            deletes: files.deletes,
            raw_bytes: files.raw_bytes,
            stored_bytes: files.stored_bytes,
        };
        let queued = view.frozen.iter().map(|queued| queued.index_counts(index));
        for counts in queued.chain([view.active.index_counts(index)]) {
            sums.entries += counts.entries;
            sums.deletes += counts.deletes;
            sums.raw_bytes += counts.raw_bytes;
        }
        sums
    }

    /// Rows, supposing that each deletion deletes one entry: exact at rest, too high while old
    /// versions of updated rows wait for compaction.
    pub fn live_entries(&self) -> u64 {
        self.entries.saturating_sub(2 * self.deletes)
    }
}

/// Statistics of a table.
#[derive(Debug, Clone, Copy, Default)]
pub struct TableStatistics {
    /// Rows, an estimate.
    pub rows: u64,
    /// Of the clustered index, bytes.
    pub raw_bytes: u64,
    /// Of the clustered index, bytes in files and memtables.
    pub data_bytes: u64,
    /// Of the secondary indexes, bytes in files and memtables.
    pub index_bytes: u64,
    /// Creation, microseconds since 1970.
    pub created_micros: u64,
}

/// One end of a range of keys.
#[derive(Debug, Clone, Copy)]
pub struct RangeEnd<'a> {
    /// The key in the server's form.
    pub key: Key<'a>,
    /// At the lower end: the range begins after all keys with this prefix. At the upper end: it
    /// ends after them.
    pub after: bool,
}

impl Table {
    /// Statistics from what files and memtables count.
    pub fn statistics(&self, views: &Views) -> TableStatistics {
        let view = views.pin();
        let current = self.current();
        // What is not in files yet counts at its raw size.
        let size = |sums: &IndexSums, in_files: u64| sums.stored_bytes + sums.raw_bytes - in_files;
        let of = |index: &IndexInfo| {
            let sums = IndexSums::of(&view, index.id());
            let raw_in_files = view.version.index_stats(index.id()).raw_bytes;
            let bytes = size(&sums, raw_in_files.min(sums.raw_bytes));
            (sums, bytes)
        };
        let (clustered, data_bytes) = of(&current.clustered);
        let index_bytes = Self::secondaries(&current)
            .map(|(_, index)| of(index).1)
            .sum();
        TableStatistics {
            rows: clustered.live_entries(),
            raw_bytes: clustered.raw_bytes,
            data_bytes,
            index_bytes,
            created_micros: current.entry.created_micros,
        }
    }

    /// Estimates the rows of a range of index number `index`, see [`estimate_rows`].
    pub fn estimate_range(
        &self,
        views: &Views,
        index: Option<usize>,
        lower: Option<RangeEnd<'_>>,
        upper: Option<RangeEnd<'_>>,
    ) -> Result<u64> {
        let current = self.current();
        let info = match index {
            Some(number) => current.indexes.get(number).unwrap_or(&current.clustered),
            None => &current.clustered,
        };
        let lower = match lower {
            None => Some(index_prefix(info.id()).to_vec()),
            Some(end) => bound(info, end)?,
        };
        let upper = match upper {
            None => prefix_successor(&index_prefix(info.id())),
            Some(end) => bound(info, end)?,
        };
        let Some(lower) = lower else { return Ok(0) };
        if upper.as_ref().is_some_and(|upper| *upper <= lower) {
            return Ok(0);
        }
        estimate_rows(&views.latest(), &ScanRange { lower, upper })
    }
}

fn bound(info: &IndexInfo, end: RangeEnd<'_>) -> Result<Option<Vec<u8>>> {
    let mut key = Vec::new();
    info.seek_prefix(end.key.image, &mut key)?;
    Ok(if end.after {
        prefix_successor(&key)
    } else {
        Some(key)
    })
}
