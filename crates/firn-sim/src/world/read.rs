//! Reads, each compared with the model.

use super::blob_values::Stored;
use super::session::OpenScan;
use super::{StepEnd, World};
use crate::ensure;
use crate::model::{Moment, Writes};
use firn::base::value::OwnedValue;
use firn::base::{IndexId, InternalIterator, Result};
use firn::env::ReadClass;
use firn::iter::{MergeIter, MvccIter, ReadAt};
use firn::read::{ReadPoint, ScanRange, ScanSource, scan_sources};
use firn::txn::{Isolation, WriteSetIter};
use rand::Rng;
use std::collections::BTreeMap;

/// Entries in key order.
pub(super) type Entries = BTreeMap<Vec<u8>, OwnedValue>;

/// A cursor over `range` at `point`, built in the same way as the cursors of tables.
pub(super) fn cursor(
    point: &ReadPoint,
    range: &ScanRange,
    own: Option<WriteSetIter>,
    read_at: ReadAt,
) -> MvccIter<MergeIter<ScanSource>> {
    let own = own.map(|own| Box::new(own) as Box<dyn InternalIterator + Send>);
    let sources = scan_sources(&point.super_version, range, ReadClass::Range, own);
    let mut entries = MvccIter::new(MergeIter::new(sources), read_at);
    entries.set_bounds(Some(&range.lower), range.upper.as_deref());
    entries
}

pub(super) fn entry(
    point: &ReadPoint,
    entries: &MvccIter<MergeIter<ScanSource>>,
) -> Result<(Vec<u8>, OwnedValue)> {
    let stored = Stored::of(entries.kind(), entries.value());
    let value = stored.read(&point.super_version.blobs)?;
    Ok((entries.user_key().to_vec(), value))
}

/// All entries of `range` at `point`, without own writes.
pub(super) fn read_all(point: &ReadPoint, range: &ScanRange, forward: bool) -> Result<Entries> {
    let mut entries = cursor(point, range, None, ReadAt::snapshot(point.seqno));
    let mut all = Entries::new();
    let mut on = match forward {
        true => entries.first()?,
        false => entries.last()?,
    };
    while on {
        let (key, value) = entry(point, &entries)?;
        all.insert(key, value);
        on = match forward {
            true => entries.next()?,
            false => entries.prev()?,
        };
    }
    Ok(all)
}

/// The range of a whole index.
pub(super) fn range_of(index: IndexId) -> ScanRange {
    ScanRange {
        lower: index.to_be_bytes().to_vec(),
        upper: Some((index + 1).to_be_bytes().to_vec()),
    }
}

impl World {
    /// The model's entries of a range at moment `at`, overlaid with `own`.
    pub(super) fn expected(&self, range: &ScanRange, at: Moment, own: &Writes) -> Entries {
        let lower = &range.lower;
        let upper = range.upper.as_ref().expect("bounded");
        let mut entries: Entries = self
            .history
            .range(lower, upper, at)
            .map(|(key, value)| (key.to_vec(), value.clone()))
            .collect();
        for (key, value) in own.range(lower.clone()..upper.clone()) {
            match value {
                Some(value) => entries.insert(key.clone(), value.clone()),
                None => entries.remove(key),
            };
        }
        entries
    }

    /// The session's read point for consistent reads, and the moment that it must show.
    fn read_point(&mut self, at: usize) -> (ReadPoint, Moment) {
        let now = self.history.now();
        let session = &mut self.sessions[at];
        let point = session.txn.read_point();
        let moment = match (session.point, session.snapshot) {
            (Some(moment), _) | (None, Some(moment)) => moment,
            (None, None) => {
                if session.isolation == Isolation::RepeatableRead && !session.autocommit {
                    session.snapshot = Some(now);
                }
                now
            }
        };
        session.point = Some(moment);
        (point, moment)
    }

    /// As [`Self::read_point`], but in a fifth of the cases returns the latest read point, which
    /// locking reads use.
    fn any_point(&mut self, at: usize) -> (ReadPoint, Moment) {
        match self.lucky(20) {
            true => (self.sessions[at].txn.latest_point(), self.history.now()),
            false => self.read_point(at),
        }
    }

    /// Whether the index was not yet dropped at `moment`.
    fn readable(&self, index: IndexId, moment: Moment) -> bool {
        let dropped = self.history.side().dropped.get(&index);
        dropped.is_none_or(|dropped| moment < *dropped)
    }

    pub(super) fn get(&mut self, at: usize) -> Result<(), StepEnd> {
        let key = self.random_key();
        let (point, moment) = self.any_point(at);
        let session = &self.sessions[at];
        let found = session
            .txn
            .get(&point, &key, ReadClass::Point, |internal, value| {
                let stored = || Stored::of(internal.kind, value);
                internal.kind.is_put().then(stored)
            })?;
        let found = found
            .flatten()
            .map(|stored| stored.read(&point.super_version.blobs));
        let found = found.transpose()?;
        let own = session.own.iter().rfind(|(own, _)| *own == key);
        let expected = match own {
            Some((_, value)) => value.clone(),
            None => self.history.get(&key, moment).cloned(),
        };
        self.stats.compared += 1;
        ensure!(
            found == expected,
            "get {key:?} at moment {moment} (seqno {}) gave {found:?}, expected {expected:?}",
            point.seqno
        );
        Ok(())
    }

    /// A random range of an index that is live at `moment`. The index may have been dropped since
    /// then.
    fn random_range(&mut self, moment: Moment) -> ScanRange {
        let all = self.history.side().dropped.keys().copied();
        let ids: Vec<IndexId> = self.live_indexes().into_iter().chain(all).collect();
        let index = ids[self.rng.random_range(0..ids.len())];
        let whole = range_of(if self.readable(index, moment) {
            index
        } else {
            ids[0]
        });
        let bounds = [self.random_key(), self.random_key()];
        match self.rng.random_range(0..3) {
            0 => {
                let [a, b] = bounds;
                let (lower, upper) = (a.clone().min(b.clone()), a.max(b));
                if lower[..4] != upper[..4] {
                    return whole;
                }
                ScanRange {
                    lower,
                    upper: Some(upper),
                }
            }
            _ => whole,
        }
    }

    /// Scans a range from one end, or from a key in the middle, and compares every entry. Sometimes
    /// changes direction on the way.
    pub(super) fn scan(&mut self, at: usize) -> Result<(), StepEnd> {
        let (point, moment) = self.any_point(at);
        let range = self.random_range(moment);
        let session = &self.sessions[at];
        // Sometimes show only those own writes that came before the last savepoint. A statement
        // that must not see its own writes reads in this way.
        let early = session.savepoints.last().copied();
        let early = early.filter(|_| self.rng.random_range(0..4) == 0);
        let (read_at, own) = match early {
            Some((mark, len)) => {
                let read_at = ReadAt {
                    own_bound: mark.own_bound(),
                    ..ReadAt::snapshot(point.seqno)
                };
                (read_at, session.own_writes(len))
            }
            None => {
                let own = session.own_writes(session.own.len());
                (ReadAt::snapshot(point.seqno), own)
            }
        };
        let expected: Vec<_> = self.expected(&range, moment, &own).into_iter().collect();
        let mut entries = cursor(&point, &range, Some(session.txn.own_writes()), read_at);
        let forward = self.rng.random();
        let seek = self.random_key();
        let seek = (self.rng.random_range(0..3) == 0).then_some(seek);
        let (mut on, mut place) = match (&seek, forward) {
            (None, true) => (entries.first()?, 0),
            (None, false) => (entries.last()?, expected.len() as isize - 1),
            (Some(key), true) => {
                let place = expected.partition_point(|(k, _)| k < key);
                (entries.seek_ge(key)?, place as isize)
            }
            (Some(key), false) => {
                let place = expected.partition_point(|(k, _)| k < key) as isize - 1;
                (entries.seek_lt(key)?, place)
            }
        };
        let mut step = if forward { 1 } else { -1 };
        let mut turns = if self.lucky(30) { 3 } else { 0 };
        loop {
            let wanted = usize::try_from(place).ok().and_then(|i| expected.get(i));
            let found = on.then(|| entry(&point, &entries)).transpose()?;
            self.stats.compared += 1;
            ensure!(
                found.as_ref() == wanted,
                "scan of {range:?} from {seek:?}, step {step}, at moment {moment} (seqno {}): entry {place} is \
                 {found:?}, expected {wanted:?}",
                point.seqno
            );
            if !on {
                return Ok(());
            }
            if turns > 0 && self.rng.random_range(0..4) == 0 {
                turns -= 1;
                step = -step;
            }
            place += step;
            on = if step > 0 {
                entries.next()?
            } else {
                entries.prev()?
            };
        }
    }

    /// Continues the session's open scan, or opens one. The scan stays open while other sessions
    /// commit and background work flushes and compacts.
    pub(super) fn continue_scan(&mut self, at: usize) -> Result<(), StepEnd> {
        let Some(mut scan) = self.sessions[at].scan.take() else {
            return self.open_scan(at);
        };
        for _ in 0..self.rng.random_range(1..10) {
            let wanted = scan.expected.next();
            let on = match scan.forward {
                true => scan.entries.next()?,
                false => scan.entries.prev()?,
            };
            let found = on.then(|| entry(&scan.point, &scan.entries)).transpose()?;
            self.stats.compared += 1;
            ensure!(
                found == wanted,
                "open scan: next entry is {found:?}, expected {wanted:?}"
            );
            if !on {
                return Ok(());
            }
        }
        self.sessions[at].scan = Some(scan);
        Ok(())
    }

    fn open_scan(&mut self, at: usize) -> Result<(), StepEnd> {
        let (point, moment) = self.read_point(at);
        let range = self.random_range(moment);
        let session = &self.sessions[at];
        let own = session.own_writes(session.own.len());
        let mut expected: Vec<_> = self.expected(&range, moment, &own).into_iter().collect();
        let own = Some(session.txn.own_writes());
        let mut entries = cursor(&point, &range, own, ReadAt::snapshot(point.seqno));
        let forward = self.rng.random();
        let on = match forward {
            true => entries.first()?,
            false => {
                expected.reverse();
                entries.last()?
            }
        };
        let mut expected = expected.into_iter();
        let wanted = expected.next();
        let found = on.then(|| entry(&point, &entries)).transpose()?;
        ensure!(
            found == wanted,
            "first entry of {range:?} at moment {moment} is {found:?}, expected {wanted:?}"
        );
        self.sessions[at].scan = on.then_some(OpenScan {
            point,
            entries,
            expected,
            forward,
        });
        Ok(())
    }
}
