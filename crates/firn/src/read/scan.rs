//! The sources of a range read: own writes, memtables, and runs of files.
//!
//! A source that cannot contain the range is never opened. The bounds of its files exclude most
//! runs, and the index of the range excludes memtables without entries of that index. A run is one
//! source however many files it has, and opens them one after the other, so the width of the merge
//! is the number of runs and not of files.

use super::super_version::SuperVersion;
use crate::base::key::index_id_of;
use crate::base::{IndexId, InternalIterator, Result, Seqno};
use crate::env::ReadClass;
use crate::iter::{ChildOpener, ConcatIter, iterator_of_variants};
use crate::memtable::{Memtable, MemtableIter};
use crate::sst::SstIter;
use crate::version::{Flushable, Run};
use std::ops::Bound;
use std::sync::Arc;

/// A range of user keys: from `lower`, inclusive, to `upper`, exclusive.
#[derive(Debug, Clone, Default)]
pub struct ScanRange {
    /// First key that may be returned.
    pub lower: Vec<u8>,
    /// First key beyond the range; `None` for no bound.
    pub upper: Option<Vec<u8>>,
}

/// The files of one run, opened when a scan reaches them.
pub struct RunFiles {
    run: Arc<Run>,
    class: ReadClass,
    fill_cache: bool,
}

impl RunFiles {
    /// The files of `run`, read for the purpose `class`. With `fill_cache` the blocks read stay in
    /// the block cache.
    pub fn new(run: Arc<Run>, class: ReadClass, fill_cache: bool) -> Self {
        Self {
            run,
            class,
            fill_cache,
        }
    }
}

impl ChildOpener for RunFiles {
    type Iter = SstIter;

    fn len(&self) -> usize {
        self.run.files.len()
    }

    fn smallest(&self, child: usize) -> &[u8] {
        &self.run.files[child].smallest
    }

    fn largest(&self, child: usize) -> &[u8] {
        &self.run.files[child].largest
    }

    fn open(&self, child: usize) -> Result<SstIter> {
        let reader = self.run.files[child].reader()?;
        Ok(reader.iter(self.class, self.fill_cache))
    }

    fn prefetch_seek(&self, child: usize, user_key: &[u8], begin: bool) -> bool {
        // The seek reports an error.
        let reader = self.run.files[child].reader();
        reader.is_ok_and(|reader| reader.prefetch_seek(user_key, begin))
    }
}

/// One source of a merge.
#[allow(clippy::large_enum_variant)] // Most are runs, and a box would be an allocation a scan.
pub enum ScanSource {
    /// The transaction's own writes.
    Own(Box<dyn InternalIterator + Send>),
    /// A memtable.
    Memtable(MemtableIter),
    /// A run of files.
    Run(ConcatIter<RunFiles>),
}

impl ScanSource {
    /// The files of `run`, for keys `lower ≤ key < upper`, read for the purpose `class`.
    pub fn of_run(run: &Arc<Run>, lower: &[u8], upper: Option<&[u8]>, class: ReadClass) -> Self {
        let files = RunFiles::new(Arc::clone(run), class, true);
        Self::Run(ConcatIter::bounded(files, Some(lower), upper))
    }

    /// Whether the source may have gained entries of commits after `seqno` since it was opened.
    pub fn grew_after(&self, seqno: Seqno) -> bool {
        match self {
            Self::Memtable(memtable) => memtable.memtable().last_commit() > seqno,
            Self::Own(_) | Self::Run(_) => false,
        }
    }

    fn reads(&self, memtable: &Arc<Memtable>) -> bool {
        matches!(self, Self::Memtable(source) if Arc::ptr_eq(source.memtable(), memtable))
    }
}

/// Whether `sources`, which were opened from `super_version` for one index, can also serve reads
/// that see commits after `seqno`. They cannot if a memtable has gained its first entries of the
/// index since `sources` was opened, because that memtable is not among them. Nor can they if a
/// file may hold a commit after `seqno`: a scan may have passed entries of that commit while they
/// were not visible yet.
pub fn still_complete(
    super_version: &SuperVersion,
    index: IndexId,
    seqno: Seqno,
    sources: &[ScanSource],
) -> bool {
    if super_version.has_files_after(seqno) {
        return false;
    }
    let mut grown = super_version
        .memtables()
        .filter(|m| m.last_commit() > seqno);
    grown.all(|memtable| {
        sources.iter().any(|source| source.reads(memtable))
            || memtable.index_counts(index).entries == 0
    })
}

/// The sources of `super_version` that may hold keys of `range`, newest first. The transaction's
/// own writes `own` are the first source. `class` is the purpose of the reads of files.
pub fn scan_sources(
    super_version: &SuperVersion,
    range: &ScanRange,
    class: ReadClass,
    own: Option<Box<dyn InternalIterator + Send>>,
) -> Vec<ScanSource> {
    let mut sources = Vec::new();
    push_sources(
        super_version,
        &range.lower,
        range.upper.as_deref(),
        class,
        own,
        &mut sources,
    );
    sources
}

/// As [`scan_sources`], for keys `lower ≤ key < upper`; appends the sources to a vector.
pub fn push_sources(
    super_version: &SuperVersion,
    lower: &[u8],
    upper: Option<&[u8]>,
    class: ReadClass,
    own: Option<Box<dyn InternalIterator + Send>>,
    sources: &mut Vec<ScanSource>,
) {
    sources.extend(own.map(ScanSource::Own));
    let index = index_id_of(lower);
    let push_memtable = |memtable: &Arc<Memtable>, sources: &mut Vec<ScanSource>| {
        // A bounded range lies in one index, and a memtable counts its entries by index. The active
        // memtable may gain its first entry of the index later, but a pinned read does not see that
        // entry.
        let elsewhere = || index.is_some_and(|index| memtable.index_counts(index).entries == 0);
        if !(memtable.is_empty() || upper.is_some() && elsewhere()) {
            sources.push(ScanSource::Memtable(memtable.iter()));
        }
    };
    let bound = upper.map_or(Bound::Unbounded, Bound::Excluded);
    let push_run = |run: &Arc<Run>, sources: &mut Vec<ScanSource>| {
        if !run.overlapping(lower, bound).is_empty() {
            sources.push(ScanSource::of_run(run, lower, upper, class));
        }
    };
    push_memtable(&super_version.active, sources);
    for queued in &super_version.frozen {
        match queued {
            Flushable::Memtable(memtable) => push_memtable(memtable, sources),
            Flushable::Run(run) => push_run(run.run(), sources),
        }
    }
    for run in super_version
        .version
        .l0
        .iter()
        .chain(&super_version.version.levels)
    {
        push_run(run, sources);
    }
}

iterator_of_variants!(ScanSource: Own, Memtable, Run);
