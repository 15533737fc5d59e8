//! Statistics and estimates for the optimizer.

use super::Table;
use super::blob_columns::candidates;
use super::cursor::KeyImage;
use super::index_info::IndexInfo;
use crate::base::IndexId;
use crate::base::Result;
use crate::base::key::index_prefix;
use crate::base::key_range::prefix_successor;
use crate::base::row_count::RowCount;
use crate::catalog::TableEntry;
use crate::read::{ReadPoint, ScanRange, SuperVersion, SuperVersions, estimate_rows};
use crate::sst::IndexStats;
use crate::txn::Transaction;
use std::sync::Arc;

/// Sums for one index over all files and memtables.
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
    /// The sums for `index` in `super_version`.
    pub fn of(super_version: &SuperVersion, index: IndexId) -> Self {
        Self::with_files(super_version, &super_version.version.index_stats(index))
    }

    /// The sums for one index over the files and memtables of `super_version`. The caller passes
    /// the sums over the files alone as `files`.
    fn with_files(super_version: &SuperVersion, files: &IndexStats) -> Self {
        let index = files.index;
        let mut sums = Self {
            entries: files.entries,
            deletes: files.deletes,
            raw_bytes: files.raw_bytes,
            stored_bytes: files.stored_bytes,
        };
        let queued = super_version
            .frozen
            .iter()
            .map(|queued| queued.index_counts(index));
        for counts in queued.chain([super_version.active.index_counts(index)]) {
            sums.entries += counts.entries;
            sums.deletes += counts.deletes;
            sums.raw_bytes += counts.raw_bytes;
        }
        sums
    }

    /// Bytes of the index: the stored bytes of its files, plus the uncompressed bytes of its
    /// entries in memtables. `self` has the sums over files and memtables, `files` those over the
    /// files alone.
    fn size(&self, files: &IndexStats) -> u64 {
        self.stored_bytes + self.raw_bytes - files.raw_bytes.min(self.raw_bytes)
    }

    /// Number of entries that are no deletions. The index has at most as many rows, since old
    /// versions count too.
    pub fn puts(&self) -> u64 {
        self.entries.saturating_sub(self.deletes)
    }

    /// Estimated bytes in files that old versions and deletions take, if the index has `rows` rows.
    fn free_bytes(&self, rows: u64) -> u64 {
        let dead = u128::from(self.entries.saturating_sub(rows));
        (u128::from(self.stored_bytes) * dead / u128::from(self.entries.max(1))) as u64
    }

    /// Returns the part of `sum` that belongs to the newest versions of `rows` rows. `sum` is a
    /// number of bytes over all stored versions of all rows.
    fn live_share(&self, sum: u64, rows: u64) -> u64 {
        let (sum, puts) = (u128::from(sum), u128::from(self.puts().max(1)));
        (sum * u128::from(rows.min(self.puts())) / puts) as u64
    }
}

/// Returns the number of rows in index `clustered`, which `counter` keeps, and the read point that
/// shows these rows. Rows of open transactions do not count.
///
/// The call is cheap, except for the first one after the database was opened: that one estimates
/// the number with [`estimate_rows`], which reads a few dozen blocks, and later commits add to this
/// estimate. Once all entries lie in one run without old versions, the number of entries replaces
/// the estimate.
pub fn live_rows(
    counter: &RowCount,
    super_versions: &SuperVersions,
    clustered: IndexId,
) -> (u64, ReadPoint) {
    // Read the counter before taking the read point. A commit is visible before it is counted, so
    // the super version has all rows that are counted by now.
    let counted = counter.counted();
    let point = super_versions.latest();
    let files = point.super_version.version.index_stats(clustered);
    let sums = IndexSums::with_files(&point.super_version, &files);
    if let Some(rows) = known_rows(counter, counted, &point.super_version, &files, &sums) {
        return (rows, point);
    }
    let rows = estimated_rows(&point, clustered);
    counter.set(rows, counted);
    (rows.min(sums.puts()), point)
}

/// The number of rows if it is known without reading blocks: `counter` has it, or all entries of
/// the index lie in one run of files without deletions and old versions, so that each entry is a
/// row. The caller must have read `counted` from `counter` before it pinned `super_version`.
/// `files` and `sums` are the sums of the clustered index in that super version.
fn known_rows(
    counter: &RowCount,
    counted: i64,
    super_version: &SuperVersion,
    files: &IndexStats,
    sums: &IndexSums,
) -> Option<u64> {
    let in_files = files.entries;
    let plain = || in_files == 0 || super_version.version.is_plain(files.index);
    if sums.entries == in_files && plain() {
        counter.set(in_files, counted);
        return Some(in_files);
    }
    counter.rows().map(|rows| rows.min(sums.puts()))
}

/// Estimated number of rows in index `clustered`, for callers that have no counter of them.
pub fn estimated_rows(point: &ReadPoint, clustered: IndexId) -> u64 {
    let lower = index_prefix(clustered).to_vec();
    let upper = prefix_successor(&lower);
    let estimated = estimate_rows(point, &ScanRange { lower, upper });
    // Ignore errors here: a statement that reads the rows meets them again and reports them.
    estimated.unwrap_or_else(|_| IndexSums::of(&point.super_version, clustered).puts())
}

/// Estimated bytes in blob files that `rows` rows in index `clustered` refer to, see
/// [`Version::out_of_line_bytes`](crate::version::Version::out_of_line_bytes). `owner` returns the
/// table that has an index.
pub fn out_of_line_bytes(
    super_version: &SuperVersion,
    clustered: IndexId,
    rows: u64,
    owner: impl Fn(IndexId) -> Option<Arc<TableEntry>>,
) -> u64 {
    let mut holds = |index: IndexId| {
        owner(index).is_some_and(|table| {
            table.clustered.id == index && !candidates(&table.schema).is_empty()
        })
    };
    let mut bytes = super_version
        .version
        .out_of_line_bytes(clustered, &mut holds);
    for queued in &super_version.frozen {
        bytes += queued.out_of_line_bytes(clustered, &mut holds);
    }
    bytes += super_version.active.index_counts(clustered).blob_bytes;
    if bytes == 0 {
        return 0;
    }
    IndexSums::of(super_version, clustered).live_share(bytes, rows)
}

/// Own writes of a range that an estimate looks at, at most.
const OWN_VERSIONS_MAX: u64 = 256;

/// Statistics of a table.
#[derive(Debug, Clone, Copy, Default)]
pub struct TableStatistics {
    /// Rows and their bytes.
    pub size: TableSize,
    /// Bytes of the secondary indexes in files and memtables.
    pub index_bytes: u64,
    /// Estimated bytes in files that old versions and deletions take, in all indexes.
    pub free_bytes: u64,
    /// Time of creation, in microseconds since 1970.
    pub created_micros: u64,
}

/// The statistics of a table that the optimizer asks for in each statement; see
/// [`TableStatistics`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TableSize {
    /// Rows, see [`live_rows`].
    pub rows: u64,
    /// Bytes of the rows before compression, without values out of line.
    pub raw_bytes: u64,
    /// Bytes of the clustered index in files and memtables.
    pub data_bytes: u64,
    /// Bytes of values out of line in blob files.
    pub blob_bytes: u64,
}

/// One end of a range of keys.
#[derive(Debug, Clone, Copy)]
pub struct RangeEnd<'a> {
    /// The key in the server's form.
    pub key: KeyImage<'a>,
    /// Whether the bound lies behind all keys with this prefix. If so, a lower bound excludes these
    /// keys, and an upper bound includes them.
    pub after: bool,
}

impl Table {
    /// The size of the table, computed from the counts that files and memtables keep. Every
    /// statement asks for the size, so this must be cheap: it sums up the counts of the clustered
    /// index alone, and does not pin the super version.
    pub fn size(&self, super_versions: &SuperVersions) -> TableSize {
        let current = self.current();
        let counter = &current.live_rows;
        // Read the counter before pinning the super version. A commit is visible before it is
        // counted, so the super version has all rows that are counted by now.
        let counted = counter.counted();
        let known = super_versions.with_current(|super_version| {
            let files = super_version.version.index_stats(current.clustered.id());
            let sums = IndexSums::with_files(super_version, &files);
            let rows = known_rows(counter, counted, super_version, &files, &sums)?;
            Some(self.size_of_rows(super_version, &files, &sums, rows))
        });
        known.unwrap_or_else(|| {
            let id = current.clustered.id();
            let (rows, point) = live_rows(counter, super_versions, id);
            let super_version = &point.super_version;
            let files = super_version.version.index_stats(id);
            let sums = IndexSums::with_files(super_version, &files);
            self.size_of_rows(super_version, &files, &sums, rows)
        })
    }

    /// The size of the table if it has `rows` rows. `files` and `sums` are the sums of its
    /// clustered index in `super_version`.
    fn size_of_rows(
        &self,
        super_version: &SuperVersion,
        files: &IndexStats,
        sums: &IndexSums,
        rows: u64,
    ) -> TableSize {
        let blob_bytes = match self.candidates.is_empty() {
            true => 0,
            false => {
                let owner = |index| self.catalog.table_of_index(index);
                out_of_line_bytes(super_version, files.index, rows, owner)
            }
        };
        TableSize {
            rows,
            raw_bytes: sums.live_share(sums.raw_bytes, rows),
            data_bytes: sums.size(files),
            blob_bytes,
        }
    }

    /// Statistics of the table, computed from the counts that files and memtables keep.
    pub fn statistics(&self, super_versions: &SuperVersions) -> TableStatistics {
        let current = self.current();
        let id = current.clustered.id();
        let (rows, point) = live_rows(&current.live_rows, super_versions, id);
        let super_version = &point.super_version;
        let of = |index: &IndexInfo| {
            let files = super_version.version.index_stats(index.id());
            (IndexSums::with_files(super_version, &files), files)
        };
        let (clustered, files) = of(&current.clustered);
        let mut free_bytes = clustered.free_bytes(rows);
        let mut index_bytes = 0;
        for (_, index) in Self::secondaries(&current) {
            let (sums, files) = of(index);
            index_bytes += sums.size(&files);
            free_bytes += sums.free_bytes(rows);
        }
        TableStatistics {
            size: self.size_of_rows(super_version, &files, &clustered, rows),
            index_bytes,
            free_bytes,
            created_micros: current.entry.created_micros,
        }
    }

    /// Estimates the rows of a range of index number `index`, see [`estimate_rows`].
    ///
    /// # Errors
    /// `InvalidArgument` for a malformed key image; those of reading index partitions:
    /// `Corruption`, `Unsupported`, `Io`.
    pub fn estimate_range(
        &self,
        super_versions: &SuperVersions,
        index: Option<usize>,
        lower: Option<RangeEnd<'_>>,
        upper: Option<RangeEnd<'_>>,
    ) -> Result<u64> {
        match self.scan_range(index, lower, upper)? {
            Some(range) => estimate_rows(&super_versions.latest(), &range),
            None => Ok(0),
        }
    }

    /// The rows that the transaction has added to the table, less those that it has deleted.
    pub fn own_rows(&self, txn: &Transaction) -> i64 {
        txn.own_rows(self.current().clustered.id())
    }

    /// Estimates how many rows of a range the transaction has added, see [`Self::estimate_range`].
    /// Looks at [`OWN_VERSIONS_MAX`] of its writes at most; where there are more, it takes half of
    /// the rows that the transaction has added to the table.
    ///
    /// # Errors
    /// As [`Self::estimate_range`].
    pub fn own_rows_in_range(
        &self,
        txn: &Transaction,
        index: Option<usize>,
        lower: Option<RangeEnd<'_>>,
        upper: Option<RangeEnd<'_>>,
    ) -> Result<u64> {
        let added = u64::try_from(self.own_rows(txn)).unwrap_or(0);
        // Without added rows, the keys are those of changed rows, which count as committed ones.
        if added == 0 {
            return Ok(0);
        }
        let Some(range) = self.scan_range(index, lower, upper)? else {
            return Ok(0);
        };
        let upper = range.upper.unwrap_or_default();
        let (keys, is_all) = txn.own_keys_within(&range.lower, &upper, OWN_VERSIONS_MAX)?;
        let rows = match is_all {
            true => keys,
            false => keys.max(added / 2),
        };
        Ok(rows.min(added))
    }

    /// The keys of a range of index number `index`; `None` if there are none.
    fn scan_range(
        &self,
        index: Option<usize>,
        lower: Option<RangeEnd<'_>>,
        upper: Option<RangeEnd<'_>>,
    ) -> Result<Option<ScanRange>> {
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
        let Some(lower) = lower else { return Ok(None) };
        if upper.as_ref().is_some_and(|upper| *upper <= lower) {
            return Ok(None);
        }
        Ok(Some(ScanRange { lower, upper }))
    }
}

fn bound(info: &IndexInfo, end: RangeEnd<'_>) -> Result<Option<Vec<u8>>> {
    // Reserve 64 bytes, enough for a key of a few numbers: most bounds of ranges are that short, so
    // the buffer seldom grows.
    let mut key = Vec::with_capacity(64);
    info.seek_prefix(end.key.image, &mut key)?;
    Ok(if end.after {
        prefix_successor(&key)
    } else {
        Some(key)
    })
}
