//! A version: the files of the tree at one moment.

use super::{Edit, FileHandle, FileSource, ManifestState, Run};
use crate::base::IndexId;
use crate::base::blob_ref::BlobUses;
use crate::sst::IndexStats;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;
use std::sync::{Arc, OnceLock};

/// Number of levels, L0 included.
pub const LEVELS: usize = 7;
/// Number of the last level.
pub const LAST_LEVEL: usize = LEVELS - 1;

/// The files of the tree at one moment. Immutable; readers pin it while they read.
///
/// For any user key, versions in a newer L0 run are newer than those in an older run. Those in L0
/// are newer than those in L1, and so on down the levels. [`Version::check`] checks the invariants.
#[derive(Debug, Default)]
pub struct Version {
    /// The runs of L0, the highest run number first. The seqno ranges of two runs may interleave.
    pub l0: Vec<Arc<Run>>,
    /// The levels L1 to L6, each one run.
    pub levels: [Arc<Run>; LAST_LEVEL],
    stats: OnceLock<HashMap<IndexId, IndexStats>>,
    /// The indexes in which each entry is a live row; see [`Version::is_plain`].
    plain: OnceLock<HashSet<IndexId>>,
    blobs: OnceLock<BlobUses>,
    /// Bytes of referenced blobs by index; see [`Version::out_of_line_bytes`].
    blobs_of_indexes: OnceLock<HashMap<IndexId, u64>>,
}

impl Version {
    /// The version that has the files of `state`. `source` opens the files.
    pub fn of_state(state: &ManifestState, source: &Arc<FileSource>) -> Self {
        let mut parts = VersionBuilder::default();
        for placed in state.files.values() {
            let handle = FileHandle::new(placed.meta.clone(), source.clone());
            parts.add(placed.level, placed.run, handle);
        }
        parts.build(None)
    }

    /// This version with `edit` applied. The caller has checked the edit with
    /// [`ManifestState::check_edit`]. Both versions share the runs of levels that the edit does not
    /// touch. A moved file keeps its handle, unless its location or the length of its tail has
    /// changed.
    pub fn with(&self, edit: &Edit, source: &Arc<FileSource>) -> Self {
        self.with_open(edit, source, &[])
    }

    /// As [`Self::with`]; an added file that has a handle in `open` keeps that handle.
    pub fn with_open(
        &self,
        edit: &Edit,
        source: &Arc<FileSource>,
        open: &[Arc<FileHandle>],
    ) -> Self {
        let mut touched: HashSet<u8> = edit.removed.iter().map(|(level, _)| *level).collect();
        touched.extend(edit.added.iter().map(|(level, ..)| *level));
        let removed: HashSet<u64> = edit.removed.iter().map(|(_, id)| *id).collect();
        let open = open.iter().map(|file| (file.file_id, file.clone()));
        let mut taken: HashMap<u64, Arc<FileHandle>> = open.collect();
        let mut parts = VersionBuilder::default();
        for &level in &touched {
            parts.touched[usize::from(level)] = true;
            for run in self.runs(level) {
                for file in &run.files {
                    if removed.contains(&file.file_id) {
                        taken.insert(file.file_id, file.clone());
                    } else {
                        parts.add(level, run.number, file.clone());
                    }
                }
            }
        }
        for (level, run, meta) in &edit.added {
            let in_place = |file: &&Arc<FileHandle>| {
                (file.location, file.tail_len) == (meta.location, meta.tail_len)
            };
            let handle = taken
                .get(&meta.file_id)
                .filter(in_place)
                .cloned()
                .unwrap_or_else(|| FileHandle::new(Arc::new(meta.clone()), source.clone()));
            parts.add(*level, *run, handle);
        }
        parts.build(Some(self))
    }

    /// This version, except that the files with these ids have new, unopened handles.
    pub(super) fn with_fresh(&self, ids: &HashSet<u64>) -> Self {
        let fresh = |run: &Arc<Run>| {
            if !run.files.iter().any(|f| ids.contains(&f.file_id)) {
                return Arc::clone(run);
            }
            let files = run
                .files
                .iter()
                .map(|file| match ids.contains(&file.file_id) {
                    true => file.fresh(),
                    false => Arc::clone(file),
                });
            Arc::new(Run {
                number: run.number,
                files: files.collect(),
            })
        };
        Self {
            l0: self.l0.iter().map(fresh).collect(),
            levels: std::array::from_fn(|level| fresh(&self.levels[level])),
            stats: OnceLock::new(),
            plain: OnceLock::new(),
            blobs: OnceLock::new(),
            blobs_of_indexes: OnceLock::new(),
        }
    }

    /// The runs of a level, newest first.
    pub fn runs(&self, level: u8) -> &[Arc<Run>] {
        match level {
            0 => &self.l0,
            n => std::slice::from_ref(&self.levels[usize::from(n) - 1]),
        }
    }

    /// All files with their levels. Of two files with the same user key, the file with the newer
    /// version of the key comes first.
    pub fn files(&self) -> impl Iterator<Item = (u8, &Arc<FileHandle>)> {
        (0..LEVELS as u8).flat_map(move |level| {
            let runs = self.runs(level).iter();
            runs.flat_map(move |run| run.files.iter().map(move |f| (level, f)))
        })
    }

    /// The files of each run that may hold a key ≥ `lower` and within `upper`, newest run first.
    /// Runs without such files are left out.
    pub fn overlapping<'a>(
        &'a self,
        lower: &'a [u8],
        upper: Bound<&'a [u8]>,
    ) -> impl Iterator<Item = &'a [Arc<FileHandle>]> {
        let runs = self.l0.iter().chain(&self.levels);
        runs.map(move |run| run.overlapping(lower, upper))
            .filter(|files| !files.is_empty())
    }

    /// Stored bytes of a level.
    pub fn level_size(&self, level: u8) -> u64 {
        self.runs(level).iter().map(|run| run.size()).sum()
    }

    /// Stored bytes of all files.
    pub fn size(&self) -> u64 {
        (0..LEVELS as u8).map(|level| self.level_size(level)).sum()
    }

    /// The blobs that the entries of all files refer to, by blob file.
    pub fn blob_uses(&self) -> &BlobUses {
        self.blobs.get_or_init(|| {
            let mut all = BlobUses::default();
            let uses = self.files().flat_map(|(_, file)| &file.blobs);
            uses.for_each(|&blobs| all.add(blobs));
            all
        })
    }

    /// Statistics of an index, summed over all files; zero if no file has entries of it. The sum
    /// includes old versions and deletions, so at most `entries - deletes` rows are live.
    pub fn index_stats(&self, index: IndexId) -> IndexStats {
        let none = IndexStats {
            index,
            ..IndexStats::default()
        };
        self.all_index_stats().get(&index).copied().unwrap_or(none)
    }

    /// Whether each entry of the index is a live row: a single run has all entries, and no entry
    /// deletes or supersedes another. The first call computes this for all indexes.
    pub fn is_plain(&self, index: IndexId) -> bool {
        let found = self.plain.get_or_init(|| {
            let mut run_of: HashMap<IndexId, Option<usize>> = HashMap::new();
            for (number, run) in self.l0.iter().chain(&self.levels).enumerate() {
                for file in &run.files {
                    for one in &file.per_index {
                        let clean = file.superseded == 0 && one.deletes == 0;
                        let run = run_of.entry(one.index).or_insert(Some(number));
                        *run = run.filter(|known| *known == number && clean);
                    }
                }
            }
            let plain = run_of.into_iter().filter(|(_, run)| run.is_some());
            plain.map(|(index, _)| index).collect()
        });
        found.contains(&index)
    }

    /// Bytes in blob files that the entries of `index` refer to. `holders` returns the indexes that
    /// may refer to blobs. The result is exact, except for files with entries of several such
    /// indexes: their bytes are split by a sample (see `blob_bytes_by_index.rs`). The first call
    /// computes the result for all indexes. An index that is created later has no entries in this
    /// version, so the result stays right.
    pub fn out_of_line_bytes(
        &self,
        index: IndexId,
        holders: &mut impl FnMut() -> HashSet<IndexId>,
    ) -> u64 {
        let sums = self.blobs_of_indexes.get_or_init(|| {
            let mut sums = HashMap::new();
            if !self.blob_uses().is_empty() {
                let holders = holders();
                for (_, file) in self.files() {
                    let shares = file.blob_bytes_by_index(&holders).iter();
                    shares.for_each(|(index, bytes)| *sums.entry(*index).or_default() += bytes);
                }
            }
            sums
        });
        sums.get(&index).copied().unwrap_or(0)
    }

    /// Statistics of all indexes, summed on first use.
    pub fn all_index_stats(&self) -> &HashMap<IndexId, IndexStats> {
        self.stats.get_or_init(|| {
            let mut all: HashMap<IndexId, IndexStats> = HashMap::new();
            for one in self.files().flat_map(|(_, file)| &file.per_index) {
                all.entry(one.index)
                    .and_modify(|sum| {
                        sum.entries += one.entries;
                        sum.deletes += one.deletes;
                        sum.raw_bytes += one.raw_bytes;
                        sum.stored_bytes += one.stored_bytes;
                    })
                    .or_insert(*one);
            }
            all
        })
    }
}

/// Files grouped by level and run: a version under construction.
#[derive(Default)]
struct VersionBuilder {
    l0: BTreeMap<u64, Vec<Arc<FileHandle>>>,
    levels: [Vec<Arc<FileHandle>>; LAST_LEVEL],
    touched: [bool; LEVELS],
}

impl VersionBuilder {
    fn add(&mut self, level: u8, run: u64, file: Arc<FileHandle>) {
        match level {
            0 => self.l0.entry(run).or_default().push(file),
            n => self.levels[usize::from(n) - 1].push(file),
        }
    }

    /// Builds the version. Levels of `old` that were not touched are shared with it.
    fn build(self, old: Option<&Version>) -> Version {
        let l0 = match old {
            Some(old) if !self.touched[0] => old.l0.clone(),
            _ => {
                let runs = self.l0.into_iter().rev();
                runs.map(|(number, files)| Arc::new(Run::new(number, files)))
                    .collect()
            }
        };
        let mut levels = self.levels.into_iter().enumerate();
        Version {
            l0,
            levels: std::array::from_fn(|_| {
                let (i, files) = levels.next().expect("as many as levels");
                match old {
                    Some(old) if !self.touched[i + 1] => old.levels[i].clone(),
                    _ => Arc::new(Run::new(0, files)),
                }
            }),
            stats: OnceLock::new(),
            plain: OnceLock::new(),
            blobs: OnceLock::new(),
            blobs_of_indexes: OnceLock::new(),
        }
    }
}

#[cfg(test)]
mod tests;
