//! A version: the files of the tree at one moment.

use super::move_costs::MoveCosts;
use super::quarantine::{MovableSums, Quarantine};
use super::totals::{FilesAndBytes, IndexTotals, Totals};
use super::{
    BlobTotals, Edit, FileHandle, FileMeta, FileSource, FileSpan, FileSums, ManifestState, Run,
};
use crate::base::{Error, IndexId, Result, Seqno};
use crate::sst::IndexStats;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

/// Number of levels, L0 included.
pub const LEVELS: usize = 7;
/// Number of the last level.
pub const LAST_LEVEL: usize = LEVELS - 1;

/// The files of the tree at one moment. Immutable; readers pin it while they read.
///
/// For any user key, versions in a newer L0 run are newer than those in an older run. Those in L0
/// are newer than those in L1, and so on down the levels. [`Version::check`] checks the invariants.
///
/// The next version copies this one and applies an edit to the copy. That costs the files of the
/// edit and the logarithm of all files, because both share all nodes of their lists that the edit
/// does not touch. Sums over all files ([`FileSums`], [`Totals`]) and the costs of moving each file
/// down ([`MoveCosts`]) change with the edit, so nobody has to visit all files.
#[derive(Debug, Clone, Default)]
pub struct Version {
    /// The runs of L0, the highest run number first. The seqno ranges of two runs may interleave.
    pub l0: Vec<Arc<Run>>,
    /// The levels L1 to L6, each one run.
    pub levels: [Arc<Run>; LAST_LEVEL],
    totals: Totals,
    pub(super) move_costs: MoveCosts,
    pub(super) quarantine: Arc<Quarantine>,
    pub(super) movable_sums: MovableSums,
}

/// Files, each with its level.
pub(super) type LeveledFiles = Vec<(u8, Arc<FileHandle>)>;

/// The version that an edit leads to.
pub(super) struct NextVersion {
    pub(super) version: Version,
    /// The files that the edit removes or moves, with their levels before.
    pub(super) gone: LeveledFiles,
    /// The files that the edit adds, with their levels.
    pub(super) added: LeveledFiles,
}

impl Version {
    /// The version that has the files of `state`. `source` opens the files.
    pub fn of_state(state: &ManifestState, source: &Arc<FileSource>) -> Self {
        let mut l0: BTreeMap<u64, Vec<Arc<FileHandle>>> = BTreeMap::new();
        let mut levels: [Vec<Arc<FileHandle>>; LAST_LEVEL] = Default::default();
        for placed in state.files.values() {
            let handle = FileHandle::new(placed.meta.clone(), source.clone());
            match placed.level {
                0 => l0.entry(placed.run).or_default().push(handle),
                n => levels[usize::from(n) - 1].push(handle),
            }
        }
        let l0 = l0.into_iter().rev();
        let mut version = Self {
            l0: l0
                .map(|(number, files)| Arc::new(Run::new(number, files)))
                .collect(),
            levels: levels.map(|files| Arc::new(Run::new(0, files))),
            totals: Totals::default(),
            move_costs: MoveCosts::default(),
            quarantine: Arc::default(),
            movable_sums: MovableSums::default(),
        };
        version.totals = Totals::of(version.files());
        version.measure_all_moves();
        version
    }

    /// This version with `edit` applied. The caller must have checked the edit with
    /// [`ManifestState::check_edit`]. A moved file keeps its handle, unless its location or the
    /// length of its tail has changed. This visits all files of the levels from which files are
    /// removed; a [`super::VersionSet`] knows where they are.
    ///
    /// # Errors
    /// `Corruption` if the version does not have a removed file.
    pub fn with(&self, edit: &Edit, source: &Arc<FileSource>) -> Result<Self> {
        let ids: HashMap<u64, u8> = edit
            .removed
            .iter()
            .map(|&(level, id)| (id, level))
            .collect();
        let mut removed = Vec::new();
        for level in 0..LEVELS as u8 {
            for run in self.runs(level) {
                let gone = |file: &&Arc<FileHandle>| ids.get(&file.file_id) == Some(&level);
                let files = run.files.iter().filter(gone);
                removed.extend(files.map(|file| (level, run.number, Arc::clone(file.meta()))));
            }
        }
        let found = |id: u64| removed.iter().any(|(.., meta)| meta.file_id == id);
        match edit.removed.iter().find(|(_, id)| !found(*id)) {
            Some(&(level, id)) => Err(not_there(level, id)),
            None => Ok(self.with_open(edit, &removed, source, &[])?.version),
        }
    }

    /// As [`Self::with`]; an added file that has a handle in `open` keeps that handle. `removed`
    /// are the files that the edit removes, with their levels and run numbers.
    ///
    /// # Errors
    /// `Corruption` if the version does not have a removed file: then the version differs from the
    /// manifest, and an edit that is built on it could lose the file's rows or show them twice.
    pub(super) fn with_open(
        &self,
        edit: &Edit,
        removed: &[(u8, u64, Arc<FileMeta>)],
        source: &Arc<FileSource>,
        open: &[Arc<FileHandle>],
    ) -> Result<NextVersion> {
        let mut next = self.clone();
        let mut gone = Vec::with_capacity(removed.len());
        for (level, run, meta) in removed {
            let run = next.run_mut(*level, *run);
            let Some(at) = run.position(meta) else {
                return Err(not_there(*level, meta.file_id));
            };
            gone.push((*level, run.files.remove(at)));
            next.move_costs.remove(*level, at);
        }
        let all = open.iter().chain(gone.iter().map(|(_, file)| file));
        let known: HashMap<u64, &Arc<FileHandle>> = all.map(|file| (file.file_id, file)).collect();
        let mut added = Vec::with_capacity(edit.added.len());
        for (level, run, meta) in &edit.added {
            let in_place = |file: &&&Arc<FileHandle>| {
                (file.location, file.tail_len) == (meta.location, meta.tail_len)
            };
            let handle = match known.get(&meta.file_id).filter(in_place) {
                Some(file) => Arc::clone(file),
                None => FileHandle::new(Arc::new(meta.clone()), source.clone()),
            };
            let files = &mut next.run_mut(*level, *run).files;
            let at = files.partition_point(|f| f.smallest < meta.smallest);
            files.insert(at, Arc::clone(&handle));
            next.move_costs.insert(*level, at);
            added.push((*level, handle));
        }
        next.l0.retain(|run| !run.files.is_empty());
        next.totals.apply(&gone, &added);
        next.measure_moves(&gone, &added);
        next.edit_quarantine(edit);
        Ok(NextVersion {
            version: next,
            gone,
            added,
        })
    }

    /// The run of `level`, or in L0 the one with number `run`, for the caller to change.
    fn run_mut(&mut self, level: u8, run: u64) -> &mut Run {
        let slot = match level {
            0 => {
                let at = self.l0.partition_point(|newer| newer.number > run);
                if self.l0.get(at).is_none_or(|found| found.number != run) {
                    self.l0.insert(at, Arc::new(Run::new(run, Vec::new())));
                }
                &mut self.l0[at]
            }
            n => &mut self.levels[usize::from(n) - 1],
        };
        Arc::make_mut(slot)
    }

    /// Returns this version with new, unopened handles of `files`. Files that this version does not
    /// have are ignored.
    pub(super) fn with_fresh(&self, files: &[Arc<FileHandle>]) -> Self {
        let mut next = self.clone();
        for file in files {
            for slot in next.l0.iter_mut().chain(&mut next.levels) {
                if let Some(at) = slot.position(file.meta()) {
                    Arc::make_mut(slot).files.replace(at, file.fresh());
                }
            }
        }
        next
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
    ) -> impl Iterator<Item = FileSpan<'a>> {
        let runs = self.l0.iter().chain(&self.levels);
        runs.map(move |run| run.overlapping(lower, upper))
            .filter(|files| !files.is_empty())
    }

    /// Sums over the files of a level.
    pub fn level_sums(&self, level: u8) -> FileSums {
        let mut sums = FileSums::default();
        let runs = self.runs(level).iter();
        runs.for_each(|run| sums.add(&run.files.sum()));
        sums
    }

    /// Whether `level` has the file.
    pub fn has(&self, level: u8, file: &FileMeta) -> bool {
        let mut runs = self.runs(level).iter();
        runs.any(|run| run.position(file).is_some())
    }

    /// Stored bytes of a level.
    pub fn level_size(&self, level: u8) -> u64 {
        self.level_sums(level).size
    }

    /// Stored bytes of all files.
    pub fn size(&self) -> u64 {
        (0..LEVELS as u8).map(|level| self.level_size(level)).sum()
    }

    /// The largest number of L0 runs that a read of one key must search.
    pub fn l0_depth(&self) -> usize {
        self.totals.l0_depth()
    }

    /// Estimated bytes of the last level that the deletions of `level` free when they arrive there.
    pub fn reclaimable(&self, level: u8) -> u64 {
        self.totals.reclaimable(level)
    }

    /// Estimated bytes of the last level that the deletions in `file` free when they arrive there.
    pub fn reclaimable_by(&self, file: &FileMeta) -> u64 {
        let bytes = |index| self.totals.index(index).map_or(0, IndexTotals::entry_bytes);
        let deleting = file.per_index.iter().filter(|stats| stats.deletes > 0);
        let freed = deleting.map(|stats| stats.deletes.saturating_mul(bytes(stats.index)));
        freed.fold(0, u64::saturating_add)
    }

    /// The blobs that the entries of all files refer to, by blob file.
    pub fn blob_uses(&self) -> &BlobTotals {
        &self.totals.blobs
    }

    /// The files that are in the object store.
    pub fn remote(&self) -> FilesAndBytes {
        self.totals.remote
    }

    /// Statistics of an index, summed over all files; zero if no file has entries of it. The sum
    /// includes old versions and deletions, so at most `entries - deletes` rows are live.
    pub fn index_stats(&self, index: IndexId) -> IndexStats {
        let none = IndexStats {
            index,
            ..IndexStats::default()
        };
        self.totals.index(index).map_or(none, |totals| totals.stats)
    }

    /// The statistics of each index of which files have entries, summed over all files.
    pub fn all_index_stats(&self) -> impl Iterator<Item = IndexStats> {
        self.totals.indexes()
    }

    /// Whether each entry of the index is a live row: a single run has all entries, and no entry
    /// deletes or supersedes another.
    pub fn is_plain(&self, index: IndexId) -> bool {
        let Some(totals) = self.totals.index(index) else {
            return false;
        };
        let levels = totals.files.iter().filter(|files| **files > 0).count();
        totals.unclean == 0 && levels == 1 && (totals.files[0] <= 1 || self.in_one_run(index))
    }

    /// Whether at most one run of L0 has entries of `index`.
    fn in_one_run(&self, index: IndexId) -> bool {
        let has = |run: &&Arc<Run>| {
            let mut files = run.of_index(index).iter();
            files.any(|file| file.index(index).is_some())
        };
        self.l0.iter().filter(has).nth(1).is_none()
    }

    /// Bytes in blob files that the entries of `index` refer to. `holds` says whether an index may
    /// refer to blobs. The result is exact, except for files with entries of several such
    /// indexes: their bytes are split by a sample (see `blob_bytes_by_index.rs`).
    ///
    /// If a file has entries of several indexes, it has, for each of them, the first or the last
    /// entry that the run has of that index. So of the files with entries of `index`, at most two
    /// in each run have entries of other indexes, too. The totals have the sum over all others.
    pub fn out_of_line_bytes(
        &self,
        index: IndexId,
        holds: &mut impl FnMut(IndexId) -> bool,
    ) -> u64 {
        // The optimizer asks in each statement, and most databases have no blobs.
        if self.totals.blobs.is_empty() {
            return 0;
        }
        let Some(totals) = self.totals.index(index) else {
            return 0;
        };
        let mut bytes = totals.sole_blob_bytes;
        for run in self.l0.iter().chain(&self.levels) {
            let files = run.of_index(index);
            let (first, last) = (files.first(), files.last());
            let last = last.filter(|_| files.len() > 1);
            for file in first.into_iter().chain(last) {
                if file.per_index.len() > 1 && !file.blobs.is_empty() {
                    bytes += u128::from(file.blob_bytes_of(index, holds));
                }
            }
        }
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// How the totals differ from the sums over all files, in words; `None` if they do not.
    pub(super) fn totals_difference(&self) -> Option<String> {
        self.totals.difference(self.files()).or_else(|| {
            let wrong = (0..LEVELS as u8).find(|&level| {
                let mut sums = FileSums::default();
                let files = self.runs(level).iter().flat_map(|run| &run.files);
                files.for_each(|file| sums.add(&FileSums::of(file)));
                sums != self.level_sums(level)
            });
            wrong
                .map(|level| format!("L{level}: its sums are not those of its files"))
                .or_else(|| self.move_costs_difference())
        })
    }

    /// Returns the position of the first file of the last level, from position `from` on, that a
    /// rewrite improves. A rewrite improves a file of whose entries more than
    /// [`super::DEAD_SHARES`]`[share]` percent are dead for all reads at `oldest_read` or later.
    /// With `unrested`, it also improves each file that is not at rest.
    pub fn improvable(
        &self,
        from: usize,
        share: usize,
        unrested: bool,
        oldest_read: Seqno,
    ) -> Option<usize> {
        let files = &self.levels[LAST_LEVEL - 1].files;
        files.position_from(from, |sums| {
            sums.dead[share] <= oldest_read || (unrested && sums.not_at_rest > 0)
        })
    }
}

/// The error for a removed file that the version does not have.
fn not_there(level: u8, file_id: u64) -> Error {
    let what = format!("file {file_id}, which an edit removes, is not in L{level} of the version");
    Error::corruption("MANIFEST", 0, what)
}

#[cfg(test)]
mod tests;
