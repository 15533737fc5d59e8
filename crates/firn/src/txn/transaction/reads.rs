//! Reads of a transaction: its read point, own writes, and rows under both.

use super::*;

impl Transaction {
    /// Fixes the snapshot now, for START TRANSACTION WITH CONSISTENT SNAPSHOT. At READ COMMITTED
    /// there is none to fix: the next statement reads at a point of its own.
    pub fn fix_snapshot(&mut self) {
        if self.isolation == Isolation::RepeatableRead {
            self.take_snapshot();
        }
    }

    pub(super) fn take_snapshot(&mut self) {
        let super_versions = &self.cx.super_versions;
        self.snapshot
            .get_or_insert_with(|| self.cx.snapshots.acquire(|| super_versions.visible()));
        self.point = None;
    }

    /// Where the current statement's consistent reads read.
    pub fn read_point(&mut self) -> ReadPoint {
        self.pin();
        self.pinned().clone()
    }

    /// Pins what the current statement's consistent reads read, unless it is pinned.
    pub fn pin(&mut self) {
        if self.point.is_none() {
            self.point = Some(self.new_point());
        }
    }

    /// The read point that [`Self::pin`] pinned. Borrowing it avoids a reference count, whose cache
    /// line all sessions would share.
    ///
    /// # Panics
    /// If nothing is pinned.
    pub fn pinned(&self) -> &ReadPoint {
        self.point.as_ref().expect("pinned before it is read")
    }

    pub(super) fn new_point(&mut self) -> ReadPoint {
        if self.isolation == Isolation::RepeatableRead && !self.autocommit {
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
            None => self.cx.super_versions.latest(),
        }
    }

    /// Where locking reads read: everything committed by now.
    pub fn latest_point(&self) -> ReadPoint {
        self.cx.super_versions.latest()
    }

    /// The snapshot's seqno, if the transaction has fixed one.
    pub fn snapshot_seqno(&self) -> Option<Seqno> {
        self.snapshot.as_ref().map(Snapshot::seqno)
    }

    /// Newest own version of `user_key`, else the newest at `point`; deletions are hits.
    ///
    /// # Errors
    /// Those of reading: `Corruption`, `Unsupported`, `Io`.
    pub fn get<R>(
        &self,
        point: &ReadPoint,
        user_key: &[u8],
        f: impl FnOnce(InternalKey<'_>, Value<'_>) -> R,
    ) -> Result<Option<R>> {
        if !self.wrote {
            return read::get(&point.super_version, user_key, point.seqno, f);
        }
        let mut f = Some(f);
        let own = {
            let writes = self.writes.lock();
            writes.get(user_key, |key, value| f.take().map(|f| f(key, value)))?
        };
        if let Some(result) = own.flatten() {
            return Ok(Some(result));
        }
        match f {
            Some(f) => read::get(&point.super_version, user_key, point.seqno, f),
            None => Ok(None),
        }
    }

    /// Whether it has written, or deleted, the key.
    ///
    /// # Errors
    /// Those of reading what was spilled.
    pub fn has_written(&self, user_key: &[u8]) -> Result<bool> {
        if !self.wrote {
            return Ok(false);
        }
        let found = self.writes.lock().get(user_key, |_, _| ())?;
        Ok(found.is_some())
    }

    /// As [`Self::get`] for each of `keys`, in any order; the blocks that several keys need are
    /// read at the same time. Results are in the order of the keys; `f` gets the number of the key
    /// too. An error is that of its key alone.
    pub fn multi_get<R>(
        &self,
        point: &ReadPoint,
        keys: &[&[u8]],
        mut f: impl FnMut(usize, InternalKey<'_>, Value<'_>) -> R,
    ) -> Vec<Result<Option<R>>> {
        let mut results: Vec<_> = keys.iter().map(|_| Ok(None)).collect();
        read::in_batches(&point.super_version, keys, point.seqno, |i| {
            results[i] = self.get(point, keys[i], |key, value| f(i, key, value));
        });
        results
    }

    /// Own writes as a source for scans; it sees those that follow, too.
    pub fn own_writes(&self) -> WriteSetIter {
        self.writes.iter()
    }

    /// As [`Self::own_writes`], for scans from `lower` to below `upper`.
    pub fn own_writes_within(&self, lower: &[u8], upper: Option<&[u8]>) -> WriteSetIter {
        self.writes.iter_within(lower, upper)
    }

    /// Whether the own writes touch `index`.
    pub fn writes_touch(&self, index: IndexId) -> bool {
        self.wrote && self.writes.lock().touches(index)
    }

    /// Whether any row is hidden.
    pub fn hides_any(&self) -> bool {
        !self.hidden.is_empty()
    }

    /// Whether the snapshot's version of this row is hidden.
    pub fn hides(&self, row_key: &[u8]) -> bool {
        self.hidden.contains_key(row_key)
    }
}
