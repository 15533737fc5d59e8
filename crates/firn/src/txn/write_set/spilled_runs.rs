//! The spilled runs of a write set.

use super::rolled_back::RolledBackPositions;
use crate::base::key::{SEQNO_MAX, UNCOMMITTED_BIT};
use crate::base::{IndexId, InternalIterator, InternalKey, Result, Seqno, Value};
use crate::cache::KeyHash;
use crate::env::ReadClass;
use crate::ingest::{NewFiles, RunFactory};
use crate::iter::ConcatIter;
use crate::read::RunFiles;
use crate::version::{FileHandle, FileMeta, Run};
use std::ops::Bound;
use std::sync::Arc;

/// The range of user keys that a cursor's caller needs: from `lower`, inclusive, to `upper`,
/// exclusive.
#[derive(Default)]
pub(super) struct Bounds {
    pub(super) lower: Vec<u8>,
    pub(super) upper: Option<Vec<u8>>,
}

/// A spilled run, which one spill or a merge of several runs has written: sorted files whose
/// entries have seqnos `UNCOMMITTED_BIT | position`.
pub(super) struct SpilledRun {
    /// Owns the files: a drop of the run removes them from disk.
    pub(super) files: NewFiles,
    pub(super) run: Arc<Run>,
    /// Smallest position in the run.
    pub(super) first: u64,
    /// Largest position in the run.
    pub(super) last: u64,
    /// Number of merges that the run's entries went through.
    pub(super) tier: u32,
}

fn position(seqno: Seqno) -> u64 {
    seqno & !UNCOMMITTED_BIT
}

/// Smallest and largest position in a file.
pub(super) fn positions(meta: &FileMeta) -> (u64, u64) {
    (position(meta.min_seqno), position(meta.max_seqno))
}

impl SpilledRun {
    /// The run of `files`; opens new handles for them.
    pub(super) fn new(ingest: &RunFactory, files: NewFiles, tier: u32) -> Self {
        let source = ingest.versions().source();
        let handle = |meta: &FileMeta| FileHandle::new(Arc::new(meta.clone()), Arc::clone(source));
        let handles = files.files().iter().map(handle).collect();
        Self::of_handles(files, handles, tier)
    }

    /// The run of `files`, read through `handles`, which are in the order of their keys.
    pub(super) fn of_handles(files: NewFiles, handles: Vec<Arc<FileHandle>>, tier: u32) -> Self {
        let ends = || files.files().iter().map(positions);
        Self {
            first: ends().map(|(first, _)| first).min().unwrap_or(u64::MAX),
            last: ends().map(|(_, last)| last).max().unwrap_or(0),
            run: Arc::new(Run::new(0, handles)),
            files,
            tier,
        }
    }
}

/// The spilled runs of a write set.
///
/// Each write has a position in the write set, which counts up. Invariant: the runs stand in the
/// order in which they were spilled, and all positions in a run are greater than those in the runs
/// before it. So of two versions of a key, the later run has the newer one.
#[derive(Default)]
pub(super) struct SpilledRuns {
    /// Oldest first.
    pub(super) list: Vec<SpilledRun>,
    /// The positions of spilled writes that were rolled back. A rollback replaces this value; a
    /// cursor shares the value that was current when the cursor was made, and keeps it.
    pub(super) dead: Arc<RolledBackPositions>,
}

impl SpilledRuns {
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether there is neither a run nor a dead position.
    pub(super) fn is_new(&self) -> bool {
        self.list.is_empty() && self.dead.is_empty()
    }

    /// The largest spilled position; 0 if there is no run.
    pub(super) fn last(&self) -> u64 {
        self.list.last().map_or(0, |run| run.last)
    }

    /// Forgets every write after `mark`, and removes runs that hold no other writes.
    pub(super) fn forget_after(&mut self, mark: u64) {
        while self.list.last().is_some_and(|run| run.first > mark) {
            self.list.pop();
        }
        let last = self.last();
        let dead = Arc::make_mut(&mut self.dead);
        dead.cut(last);
        if mark < last {
            dead.add(mark, last);
            let dead = &*dead;
            self.list.retain(|run| !dead.covers(run.first, run.last));
        }
    }

    /// Calls `f` with the newest version of `user_key` that was not rolled back and was not written
    /// after `bound`. In spilled runs the seqno of a version has its position in the write set.
    ///
    /// # Errors
    /// Those of reading the files: `Corruption`, `Unsupported`, `Io`.
    pub(super) fn get<R>(
        &self,
        user_key: &[u8],
        bound: Seqno,
        f: impl FnOnce(InternalKey<'_>, Value<'_>) -> R,
    ) -> Result<Option<R>> {
        let mut f = Some(f);
        let mut hash = None;
        for run in self.list.iter().rev() {
            let Some(file) = run.run.find(user_key) else {
                continue;
            };
            let hash = *hash.get_or_insert_with(|| KeyHash::of(user_key));
            let mut bound = bound;
            loop {
                let found =
                    file.reader()?
                        .get(user_key, hash, bound, ReadClass::Point, |key, value| {
                            if self.dead.contains(position(key.seqno)) {
                                return Err(key.seqno);
                            }
                            Ok(f.take().map(|f| f(key, value)))
                        })?;
                match found {
                    None => break,
                    Some(Ok(result)) => return Ok(result),
                    // `dead` has the positions of the writes that were rolled back, and this
                    // version is one of them. The run may hold an older version of the key that was
                    // not rolled back, so search for that one.
                    Some(Err(dead)) => bound = dead - 1,
                }
            }
        }
        Ok(None)
    }

    /// Whether a run may hold entries of the index.
    pub(super) fn may_touch(&self, index: IndexId) -> bool {
        let mut files = self.list.iter().flat_map(|run| &run.run.files);
        files.any(|file| file.index(index).is_some())
    }

    /// Whether a run may hold a user key `k` with `lower ≤ k < upper`.
    pub(super) fn may_touch_range(&self, lower: &[u8], upper: Option<&[u8]>) -> bool {
        let upper = upper.map_or(Bound::Unbounded, Bound::Excluded);
        let mut runs = self.list.iter();
        runs.any(|run| !run.run.overlapping(lower, upper).is_empty())
    }

    /// A cursor over each run that may hold keys within the bounds, newest first.
    pub(super) fn cursors(&self, bounds: &Bounds) -> impl Iterator<Item = SpilledRunIter> {
        let (lower, upper) = (&bounds.lower, bounds.upper.as_deref());
        let end = upper.map_or(Bound::Unbounded, Bound::Excluded);
        let runs = self.list.iter().rev();
        let runs = runs.filter(move |run| !run.run.overlapping(lower, end).is_empty());
        runs.map(move |run| {
            let class = ReadClass::Range;
            SpilledRunIter::bounded(&run.run, Some(lower), upper, class, true, &self.dead)
        })
    }
}

/// A cursor over the entries of a run that are not dead.
pub(super) struct SpilledRunIter {
    inner: ConcatIter<RunFiles>,
    dead: Arc<RolledBackPositions>,
}

impl SpilledRunIter {
    /// A cursor over a run that is merged: what it reads does not go into the block cache.
    pub(super) fn merging(run: &Arc<Run>, dead: &Arc<RolledBackPositions>) -> Self {
        Self::bounded(run, None, None, ReadClass::Load, false, dead)
    }

    fn bounded(
        run: &Arc<Run>,
        lower: Option<&[u8]>,
        upper: Option<&[u8]>,
        class: ReadClass,
        fill_cache: bool,
        dead: &Arc<RolledBackPositions>,
    ) -> Self {
        let files = RunFiles::new(Arc::clone(run), class, fill_cache);
        Self {
            inner: ConcatIter::bounded(files, lower, upper),
            dead: Arc::clone(dead),
        }
    }

    /// Whether the entry under the cursor is dead.
    fn is_dead(&self) -> bool {
        self.dead.contains(position(self.inner.key().seqno))
    }

    /// Moves forward past dead entries. `on` says whether the cursor stands on an entry; the result
    /// says the same after the move.
    fn forward(&mut self, mut on: bool) -> Result<bool> {
        while on && self.is_dead() {
            on = self.inner.next()?;
        }
        Ok(on)
    }

    /// As [`Self::forward`], backwards.
    fn backward(&mut self, mut on: bool) -> Result<bool> {
        while on && self.is_dead() {
            on = self.inner.prev()?;
        }
        Ok(on)
    }
}

impl InternalIterator for SpilledRunIter {
    fn seek_to_first(&mut self) -> Result<bool> {
        let on = self.inner.seek_to_first()?;
        self.forward(on)
    }

    fn seek_to_last(&mut self) -> Result<bool> {
        let on = self.inner.seek_to_last()?;
        self.backward(on)
    }

    fn seek(&mut self, user_key: &[u8], seqno: Seqno) -> Result<bool> {
        debug_assert!(seqno <= SEQNO_MAX);
        let on = self.inner.seek(user_key, seqno)?;
        self.forward(on)
    }

    fn seek_before(&mut self, user_key: &[u8]) -> Result<bool> {
        let on = self.inner.seek_before(user_key)?;
        self.backward(on)
    }

    fn next(&mut self) -> Result<bool> {
        let on = self.inner.next()?;
        self.forward(on)
    }

    fn prev(&mut self) -> Result<bool> {
        let on = self.inner.prev()?;
        self.backward(on)
    }

    fn valid(&self) -> bool {
        self.inner.valid()
    }

    fn key(&self) -> InternalKey<'_> {
        self.inner.key()
    }

    fn value(&self) -> Value<'_> {
        self.inner.value()
    }
}
