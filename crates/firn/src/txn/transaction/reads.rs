//! Reads of a transaction: the read point, and reads that look into its own writes first and then
//! at the read point.

use super::*;
use crate::base::InternalIterator;
use crate::base::key::SEQNO_MAX;

impl Transaction {
    /// Fixes the snapshot now, for START TRANSACTION WITH CONSISTENT SNAPSHOT. At READ COMMITTED
    /// it does nothing, since each statement takes a read point of its own.
    pub fn fix_snapshot(&mut self) {
        if self.isolation.repeats_reads() {
            self.take_snapshot();
        }
    }

    pub(super) fn take_snapshot(&mut self) {
        if self.snapshot.is_none() {
            let super_versions = &self.cx.super_versions;
            let snapshot = self.cx.snapshots.acquire(|| super_versions.visible());
            self.entry.set_snapshot(snapshot.seqno());
            self.snapshot = Some(snapshot);
        }
        self.point = None;
    }

    /// Pins the read point of the current statement's consistent reads, and returns a clone of it.
    pub fn read_point(&mut self) -> ReadPoint {
        self.pin();
        self.pinned().clone()
    }

    /// Pins the read point of the current statement's consistent reads, unless it is pinned.
    pub fn pin(&mut self) {
        if self.point.is_none() {
            self.point = Some(self.new_point());
        }
    }

    /// Lets the current statement's later reads see everything committed by now. Only for a session
    /// that alone changes the tables that it reads.
    pub fn renew_point(&mut self) {
        if self.point.is_some() {
            self.point = Some(self.new_point());
        }
    }

    /// The read point that [`Self::pin`] pinned. Borrowing a read point, unlike cloning it, does
    /// not change its reference count, whose cache line all sessions share.
    ///
    /// # Panics
    /// If no read point is pinned.
    pub fn pinned(&self) -> &ReadPoint {
        self.point.as_ref().expect("pinned before it is read")
    }

    pub(super) fn new_point(&mut self) -> ReadPoint {
        if self.isolation.repeats_reads() && !self.autocommit {
            self.take_snapshot();
        }
        match &self.snapshot {
            Some(snapshot) => {
                pause_points::at(PausePoint::SnapshotTaken);
                ReadPoint {
                    seqno: snapshot.seqno(),
                    super_version: self.cx.super_versions.pin(),
                }
            }
            // Wait for a complete point, which contains every commit up to its seqno: the
            // validation later searches only for commits above the point.
            None if self.oldest_read.is_some() => self.cx.super_versions.latest_complete(),
            None => self.cx.super_versions.latest(),
        }
    }

    /// Takes a new read point, which sees everything that is committed by now. Locking reads use
    /// it.
    pub fn latest_point(&self) -> ReadPoint {
        self.cx.super_versions.latest()
    }

    /// The snapshot's seqno, if the transaction has fixed one.
    pub fn snapshot_seqno(&self) -> Option<Seqno> {
        self.snapshot.as_ref().map(Snapshot::seqno)
    }

    /// Calls `f` with the newest own version of `user_key`; if there is none, with its newest
    /// version at `point`. Either may be a deletion. `None` if there is neither. `class` is the
    /// purpose of the reads of files.
    ///
    /// # Errors
    /// Those of reading files: `Corruption`, `Unsupported`, `Io`.
    pub fn get<R>(
        &self,
        point: &ReadPoint,
        user_key: &[u8],
        class: ReadClass,
        f: impl FnOnce(InternalKey<'_>, Value<'_>) -> R,
    ) -> Result<Option<R>> {
        self.get_in(user_key, f, |f| {
            read::get(&point.super_version, user_key, point.seqno, class, f)
        })
    }

    /// As [`Self::get`], but reads the transaction's own writes and the newest committed state.
    /// Pins the super version only for the duration of the call, without changing its reference
    /// count, whose cache line all sessions would share.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn get_latest<R>(
        &self,
        user_key: &[u8],
        f: impl FnOnce(InternalKey<'_>, Value<'_>) -> R,
    ) -> Result<Option<R>> {
        let super_versions = &self.cx.super_versions;
        self.get_in(user_key, f, |f| {
            super_versions.with_latest(|super_version, seqno| {
                read::get(super_version, user_key, seqno, ReadClass::Point, f)
            })
        })
    }

    /// Calls `f` with the newest own version of `user_key`. If there is none, passes `f` to
    /// `committed`, which searches the committed versions.
    fn get_in<R, F: FnOnce(InternalKey<'_>, Value<'_>) -> R>(
        &self,
        user_key: &[u8],
        f: F,
        committed: impl FnOnce(F) -> Result<Option<R>>,
    ) -> Result<Option<R>> {
        if !self.wrote {
            return committed(f);
        }
        let mut f = Some(f);
        let own = {
            let writes = self.writes.lock();
            writes.get(user_key, |key, value| f.take().map(|f| f(key, value)))?
        };
        match (own.flatten(), f) {
            (None, Some(f)) => committed(f),
            (own, _) => Ok(own),
        }
    }

    /// Whether the transaction has written or deleted the key.
    ///
    /// # Errors
    /// Those of reading spilled files: `Corruption`, `Unsupported`, `Io`.
    pub fn has_written(&self, user_key: &[u8]) -> Result<bool> {
        if !self.wrote {
            return Ok(false);
        }
        let found = self.writes.lock().get(user_key, |_, _| ())?;
        Ok(found.is_some())
    }

    /// The number of rows that the transaction has added to the table with clustered index
    /// `clustered`, less those that it has deleted.
    pub fn own_rows(&self, clustered: IndexId) -> i64 {
        self.row_counts.net(clustered)
    }

    /// The number of keys from `lower` to below `upper` that the transaction has written and not
    /// deleted, among the first `max` versions there; and whether there are no more versions.
    ///
    /// # Errors
    /// Those of reading spilled files: `Corruption`, `Unsupported`, `Io`.
    pub fn own_keys_within(&self, lower: &[u8], upper: &[u8], max: u64) -> Result<(u64, bool)> {
        if !self.wrote || !self.writes.lock().touches_range(lower, Some(upper)) {
            return Ok((0, true));
        }
        let mut iter = self.writes.iter_within(lower, Some(upper));
        let mut found = iter.seek(lower, SEQNO_MAX)?;
        let (mut keys, mut last) = (0, Vec::new());
        for _ in 0..max {
            if !found || iter.key().user_key >= upper {
                return Ok((keys, true));
            }
            // The first version of a key is its newest.
            if iter.key().user_key != last {
                last.clear();
                last.extend_from_slice(iter.key().user_key);
                keys += u64::from(iter.key().kind.is_put());
            }
            found = iter.next()?;
        }
        Ok((keys, false))
    }

    /// As [`Self::get`] for each of `keys`, which may be in any order. The blocks that a batch of
    /// keys needs are prefetched together. `f` also gets the position of the key in `keys`, and the
    /// results are in the order of `keys`. An error concerns its key only.
    pub fn multi_get<R>(
        &self,
        point: &ReadPoint,
        keys: &[&[u8]],
        mut f: impl FnMut(usize, InternalKey<'_>, Value<'_>) -> R,
    ) -> Vec<Result<Option<R>>> {
        let mut results: Vec<_> = keys.iter().map(|_| Ok(None)).collect();
        read::in_batches(&point.super_version, keys, point.seqno, |i| {
            results[i] = self.get(point, keys[i], ReadClass::Range, |k, v| f(i, k, v));
        });
        results
    }

    /// A cursor over the own writes, for scans. It also sees own writes made after its creation,
    /// except that a cursor over a spilled write set may skip writes since its last seek.
    pub fn own_writes(&self) -> WriteSetIter {
        self.writes.iter()
    }

    /// As [`Self::own_writes`], for scans from `lower` to below `upper`.
    pub fn own_writes_within(&self, lower: &[u8], upper: Option<&[u8]>) -> WriteSetIter {
        self.writes.iter_within(lower, upper)
    }

    /// Whether the transaction has written to `index`. May be true for an untouched index after a
    /// rollback of spilled writes.
    pub fn writes_touch(&self, index: IndexId) -> bool {
        self.wrote && self.writes.lock().touches(index)
    }

    /// Whether any row is hidden.
    pub fn hides_any(&self) -> bool {
        !self.hidden.is_empty()
    }

    /// Whether the snapshot's version of this row is hidden.
    ///
    /// # Errors
    /// As [`Self::has_written`].
    pub fn hides(&self, row_key: &[u8]) -> Result<bool> {
        Ok(self.hidden.contains(row_key) && self.has_written(row_key)?)
    }
}
