//! Sums over the files of a version, which a reader gets without visiting the files: entries by
//! index, references by blob file, the depth of L0.
//!
//! An edit updates the totals by the files that it adds and removes. Successive versions share all
//! nodes of the lists that the edit does not touch. Sketches of distinct keys are not kept here,
//! since they cannot be subtracted.

use super::{FileHandle, FileLocation, FileMeta, LAST_LEVEL, LEVELS};
use crate::base::IndexId;
use crate::base::blob_ref::{BlobUse, BlobUses};
use crate::base::summed_list::{Summed, SummedList};
use crate::sst::IndexStats;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Totals of one index over all files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct IndexTotals {
    /// Entries, deletions and bytes.
    pub(super) stats: IndexStats,
    /// Files with entries of the index, by level.
    pub(super) files: [u32; LEVELS],
    /// Number of files with entries of the index that may not all be live rows: an entry of this
    /// index is a deletion, or an entry of any index has a newer version in the file.
    pub(super) unclean: u32,
    /// Blob bytes of those files of which all entries belong to this index.
    pub(super) sole_blob_bytes: u128,
    /// Deletions by level.
    deletes: [u64; LEVELS],
    /// Entries in the last level, and their stored bytes.
    last: (u64, u64),
}

impl IndexTotals {
    fn new(index: IndexId) -> Self {
        Self {
            stats: IndexStats {
                index,
                ..IndexStats::default()
            },
            files: [0; LEVELS],
            unclean: 0,
            sole_blob_bytes: 0,
            deletes: [0; LEVELS],
            last: (0, 0),
        }
    }

    /// Mean stored bytes of an entry in the last level; 0 if there is none.
    pub(super) fn entry_bytes(&self) -> u64 {
        self.last.1 / self.last.0.max(1)
    }

    /// Bytes of the last level that the deletions in `level` will free when they arrive there.
    fn reclaimable(&self, level: usize) -> u128 {
        u128::from(self.deletes[level]) * u128::from(self.entry_bytes())
    }

    /// Adds to these totals what `file` of `level` has of the index, or subtracts it.
    fn change(&mut self, level: usize, file: &FileMeta, stats: &IndexStats, sign: Sign) {
        let to = |sum: &mut u64, part: u64| *sum = sign.apply(*sum, part);
        to(&mut self.stats.entries, stats.entries);
        to(&mut self.stats.deletes, stats.deletes);
        to(&mut self.stats.raw_bytes, stats.raw_bytes);
        to(&mut self.stats.stored_bytes, stats.stored_bytes);
        to(&mut self.deletes[level], stats.deletes);
        if level == LAST_LEVEL {
            to(&mut self.last.0, stats.entries);
            to(&mut self.last.1, stats.stored_bytes);
        }
        let unclean = file.superseded > 0 || stats.deletes > 0;
        let blobs = match file.per_index.len() {
            1 => u128::from(file.blob_bytes()),
            _ => 0,
        };
        match sign {
            Sign::Plus => {
                self.files[level] += 1;
                self.unclean += u32::from(unclean);
                self.sole_blob_bytes += blobs;
            }
            Sign::Minus => {
                self.files[level] -= 1;
                self.unclean -= u32::from(unclean);
                self.sole_blob_bytes -= blobs;
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sign {
    Plus,
    Minus,
}

impl Sign {
    /// Adds without an overflow check: numbers of a damaged manifest may be so large that the sum
    /// wraps. The version that has such numbers is refused by its invariants.
    fn apply(self, sum: u64, part: u64) -> u64 {
        match self {
            Self::Plus => sum.wrapping_add(part),
            Self::Minus => sum.wrapping_sub(part),
        }
    }
}

impl Summed for IndexTotals {
    type Sum = ();
    fn sum(&self) {}
    fn join(_: &mut (), (): &()) {}
}

/// The references to one blob file, summed over all SSTs. `bytes` is a 128-bit number, because the
/// sum of the 64-bit numbers of all SSTs may not fit into 64 bits, and a sum that had been cut off
/// at 64 bits would be wrong once SSTs are removed from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BlobTotal {
    file: u64,
    refs: u64,
    bytes: u128,
    /// Sizes of the SSTs that refer to the file.
    naming: u128,
}

impl Summed for BlobTotal {
    type Sum = u128;

    fn sum(&self) -> u128 {
        self.bytes
    }

    fn join(left: &mut u128, right: &u128) {
        *left += right;
    }
}

/// The references of all files, summed by blob file.
#[derive(Debug, Clone, Default)]
pub struct BlobTotals(SummedList<BlobTotal>);

fn narrow(bytes: u128) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

impl BlobTotals {
    /// Whether there are no references.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes that all references refer to.
    pub fn bytes(&self) -> u64 {
        narrow(self.0.sum())
    }

    /// The references to one blob file.
    pub fn of(&self, file: u64) -> BlobUse {
        let found = self.0.first_not(|total| total.file < file);
        let found = found.filter(|total| total.file == file);
        BlobUse {
            file,
            refs: found.map_or(0, |total| total.refs),
            bytes: found.map_or(0, |total| narrow(total.bytes)),
        }
    }

    /// Bytes of the SSTs that refer to any of `files`, at most. An SST that refers to several of
    /// them counts several times.
    pub fn naming_bytes(&self, files: impl Iterator<Item = u64>) -> u64 {
        let one = |file: u64| {
            let found = self.0.first_not(|total| total.file < file);
            let found = found.filter(|total| total.file == file);
            found.map_or(0, |total| total.naming)
        };
        narrow(files.map(one).sum())
    }

    /// A copy to which others can be added.
    pub fn to_uses(&self) -> BlobUses {
        let mut uses = BlobUses::default();
        for total in &self.0 {
            uses.add(BlobUse {
                file: total.file,
                refs: total.refs,
                bytes: narrow(total.bytes),
            });
        }
        uses
    }

    /// Applies the change of an edit: for each blob file, adds the references and bytes of the SSTs
    /// that the edit adds, and subtracts those of the SSTs that it removes.
    fn apply(&mut self, change: &BTreeMap<u64, BlobChange>) {
        for (&file, change) in change {
            let at = self.0.partition_point(|total| total.file < file);
            let known = self.0.get(at).filter(|total| total.file == file);
            let is_known = known.is_some();
            let before = known.copied().unwrap_or(BlobTotal {
                file,
                refs: 0,
                bytes: 0,
                naming: 0,
            });
            let (came, went) = (&change.came, &change.went);
            let total = BlobTotal {
                file,
                refs: (before.refs.wrapping_add(came.refs)).wrapping_sub(went.refs),
                bytes: before.bytes + came.bytes - went.bytes,
                naming: before.naming + came.naming - went.naming,
            };
            match (is_known, total.refs > 0 || total.bytes > 0) {
                (true, true) if total == before => {}
                (true, true) => self.0.replace(at, total),
                (true, false) => drop(self.0.remove(at)),
                (false, true) => self.0.insert(at, total),
                (false, false) => {}
            }
        }
    }
}

/// Change of one [`BlobTotal`] by an edit: the sums over the SSTs that the edit adds (`came`) and
/// over those that it removes (`went`), of their references to one blob file.
#[derive(Default)]
struct BlobChange {
    came: BlobSums,
    went: BlobSums,
}

/// The fields of a [`BlobTotal`].
#[derive(Default)]
struct BlobSums {
    refs: u64,
    bytes: u128,
    naming: u128,
}

impl BlobSums {
    fn add(&mut self, used: &BlobUse, size: u64) {
        self.refs = self.refs.wrapping_add(used.refs);
        self.bytes += u128::from(used.bytes);
        self.naming += u128::from(size);
    }
}

/// One end of a file of L0.
///
/// The edge refers to the metadata of the file, not to its handle: the handle keeps the open reader
/// in memory, and must be dropped when the file is closed.
#[derive(Debug, Clone)]
struct L0Edge {
    file: Arc<FileMeta>,
    ends: bool,
}

impl L0Edge {
    /// The key by which the edges are sorted. If one file ends at the key where another one begins,
    /// the two overlap. So at equal keys the beginnings come first.
    fn order(&self) -> (&[u8], bool, u64) {
        let key = match self.ends {
            false => &self.file.smallest,
            true => &self.file.largest,
        };
        (key, self.ends, self.file.file_id)
    }
}

/// Describes a sequence of edges in key order. `open` is the number of files that begin in the
/// sequence minus the number that end in it. `deepest` is the largest value that this difference
/// has anywhere within the sequence.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Depth {
    open: i64,
    deepest: i64,
}

impl Summed for L0Edge {
    type Sum = Depth;

    fn sum(&self) -> Depth {
        match self.ends {
            false => Depth {
                open: 1,
                deepest: 1,
            },
            true => Depth {
                open: -1,
                deepest: 0,
            },
        }
    }

    fn join(left: &mut Depth, right: &Depth) {
        left.deepest = left.deepest.max(left.open + right.deepest);
        left.open += right.open;
    }
}

/// Some files of a version.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FilesAndBytes {
    /// Number of files.
    pub files: u64,
    /// Their stored bytes.
    pub bytes: u64,
}

impl FilesAndBytes {
    /// Adds `file` if it is in the object store, or subtracts it.
    fn change(&mut self, file: &FileMeta, sign: Sign) {
        if file.location == FileLocation::ObjectStore {
            self.files = sign.apply(self.files, 1);
            self.bytes = sign.apply(self.bytes, file.size);
        }
    }
}

/// The totals of a version.
#[derive(Debug, Clone, Default)]
pub(super) struct Totals {
    /// Ascending by index id.
    indexes: SummedList<IndexTotals>,
    /// Bytes of the last level that the deletions of each level will free.
    reclaimable: [u128; LEVELS],
    pub(super) blobs: BlobTotals,
    pub(super) remote: FilesAndBytes,
    l0_edges: SummedList<L0Edge>,
}

impl Totals {
    /// The totals of `files` with their levels, in any order.
    pub(super) fn of<'a>(files: impl Iterator<Item = (u8, &'a Arc<FileHandle>)>) -> Self {
        let mut indexes: BTreeMap<IndexId, IndexTotals> = BTreeMap::new();
        let mut blobs: BTreeMap<u64, BlobSums> = BTreeMap::new();
        let mut edges = Vec::new();
        let mut remote = FilesAndBytes::default();
        for (level, handle) in files {
            let file: &FileMeta = handle;
            remote.change(file, Sign::Plus);
            for stats in &file.per_index {
                indexes
                    .entry(stats.index)
                    .or_insert_with(|| IndexTotals::new(stats.index))
                    .change(usize::from(level), file, stats, Sign::Plus);
            }
            for used in &file.blobs {
                blobs.entry(used.file).or_default().add(used, file.size);
            }
            if level == 0 {
                edges.extend(edges_of(handle.meta()));
            }
        }
        edges.sort_by(|a, b| a.order().cmp(&b.order()));
        let level = |level| {
            let of = indexes.values().map(|totals| totals.reclaimable(level));
            of.fold(0, u128::wrapping_add)
        };
        Self {
            reclaimable: std::array::from_fn(level),
            indexes: indexes.into_values().collect(),
            blobs: BlobTotals(
                blobs
                    .into_iter()
                    .map(|(file, sums)| BlobTotal {
                        file,
                        refs: sums.refs,
                        bytes: sums.bytes,
                        naming: sums.naming,
                    })
                    .collect(),
            ),
            remote,
            l0_edges: edges.into_iter().collect(),
        }
    }

    /// Subtracts the files that an edit has `removed` and adds those that it has `added`.
    pub(super) fn apply(
        &mut self,
        removed: &[(u8, Arc<FileHandle>)],
        added: &[(u8, Arc<FileHandle>)],
    ) {
        let mut blobs: BTreeMap<u64, BlobChange> = BTreeMap::new();
        let removed = removed
            .iter()
            .map(|(level, file)| (*level, file, Sign::Minus));
        let added = added.iter().map(|(level, file)| (*level, file, Sign::Plus));
        for (level, handle, sign) in removed.chain(added) {
            let file: &FileMeta = handle;
            self.remote.change(file, sign);
            for stats in &file.per_index {
                self.change_index(usize::from(level), file, stats, sign);
            }
            for used in &file.blobs {
                let change = blobs.entry(used.file).or_default();
                match sign {
                    Sign::Plus => change.came.add(used, file.size),
                    Sign::Minus => change.went.add(used, file.size),
                }
            }
            if level == 0 {
                edges_of(handle.meta()).for_each(|edge| self.change_edge(edge, sign));
            }
        }
        self.blobs.apply(&blobs);
    }

    fn change_index(&mut self, level: usize, file: &FileMeta, stats: &IndexStats, sign: Sign) {
        let at = self.position(stats.index);
        let known = self.indexes.get(at);
        let known = known.filter(|totals| totals.stats.index == stats.index);
        let is_known = known.is_some();
        let mut totals = known.cloned().unwrap_or(IndexTotals::new(stats.index));
        for (level, sum) in self.reclaimable.iter_mut().enumerate() {
            *sum = sum.wrapping_sub(totals.reclaimable(level));
        }
        totals.change(level, file, stats, sign);
        for (level, sum) in self.reclaimable.iter_mut().enumerate() {
            *sum = sum.wrapping_add(totals.reclaimable(level));
        }
        match totals.files.iter().any(|files| *files > 0) {
            true if is_known => self.indexes.replace(at, totals),
            true => self.indexes.insert(at, totals),
            false if is_known => drop(self.indexes.remove(at)),
            false => {}
        }
    }

    fn change_edge(&mut self, edge: L0Edge, sign: Sign) {
        let at = self.l0_edges.partition_point(|e| e.order() < edge.order());
        match sign {
            Sign::Plus => self.l0_edges.insert(at, edge),
            Sign::Minus => drop(self.l0_edges.remove(at)),
        }
    }

    fn position(&self, index: IndexId) -> usize {
        let before = |totals: &IndexTotals| totals.stats.index < index;
        self.indexes.partition_point(before)
    }

    /// The totals of an index; `None` if no file has entries of it.
    pub(super) fn index(&self, index: IndexId) -> Option<&IndexTotals> {
        let found = self.indexes.first_not(|totals| totals.stats.index < index);
        found.filter(|totals| totals.stats.index == index)
    }

    /// The statistics of all indexes.
    pub(super) fn indexes(&self) -> impl Iterator<Item = IndexStats> {
        self.indexes.iter().map(|totals| totals.stats)
    }

    /// Bytes of the last level that the deletions of `level` will free.
    pub(super) fn reclaimable(&self, level: u8) -> u64 {
        narrow(self.reclaimable[usize::from(level)])
    }

    /// The largest number of files of L0 that share a key.
    pub(super) fn l0_depth(&self) -> usize {
        self.l0_edges.sum().deepest.max(0) as usize
    }

    /// The first total that differs from those of `files`, in words.
    pub(super) fn difference<'a>(
        &self,
        files: impl Iterator<Item = (u8, &'a Arc<FileHandle>)>,
    ) -> Option<String> {
        let right = Self::of(files);
        let differing = |name: &str| Some(format!("its {name} are not those of its files"));
        if !self.indexes.iter().eq(&right.indexes) {
            differing("entries by index")
        } else if self.reclaimable != right.reclaimable {
            differing("reclaimable bytes")
        } else if !self.blobs.0.iter().eq(&right.blobs.0) {
            differing("blob references")
        } else if self.remote != right.remote {
            differing("files in the object store")
        } else if self.l0_edges.sum() != right.l0_edges.sum()
            || !(self.l0_edges.iter().map(L0Edge::order))
                .eq(right.l0_edges.iter().map(L0Edge::order))
        {
            differing("edges of L0")
        } else {
            None
        }
    }
}

fn edges_of(file: &Arc<FileMeta>) -> impl Iterator<Item = L0Edge> {
    [false, true].into_iter().map(|ends| L0Edge {
        file: Arc::clone(file),
        ends,
    })
}

#[cfg(test)]
mod tests;
