//! Which versions of a key a compaction keeps. Pure.
//!
//! The live snapshots divide the seqnos into stripes: stripe 0 ends at the oldest snapshot, the
//! last stripe ends at the newest visible seqno. No read stands inside a stripe, so reads see at
//! most the newest version of a user key in each stripe. Above the last stripe every version stays,
//! because a snapshot may yet be taken there. Retention for reads in the past ends the last stripe
//! earlier.
//!
//! Example: snapshots 10 and 20, visible 30. Of versions 35 33 28 24 18 9 5 the rule keeps
//! 35 and 33 (above the stripes), 28 (in 21..=30), 18 (in 11..=20), 9 (in 0..=10).

use crate::base::key::{SEQNO_COMMITTED_MAX, index_id_of};
use crate::base::{Error, ErrorKind, IndexId, InternalKey, Kind, Result, Seqno};
use crate::sst::BlockInfo;
use std::collections::BTreeMap;

/// The dropped indexes, each with the seqno of the drop.
pub type RetiredIndexes = BTreeMap<IndexId, Seqno>;

/// Versions to keep, besides those that live snapshots need, for reads in the past.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Retention {
    /// None.
    #[default]
    Nothing,
    /// All versions that a read at this seqno or a later one sees.
    Since(Seqno),
}

/// The seqnos at which a read may stand.
#[derive(Debug, Clone)]
pub struct Snapshots {
    /// Ascending, not empty. The last one is the newest visible seqno, or where retention begins.
    bounds: Vec<Seqno>,
}

impl Snapshots {
    /// Snapshots from the newest visible seqno and the live snapshots, in any order.
    ///
    /// Fix the inputs of the job first, then read `visible`, then copy the list of snapshots. A
    /// snapshot taken in between stands at or above `visible`, where every version stays. In the
    /// reverse order the rule would miss it.
    pub fn new(visible: Seqno, live: impl IntoIterator<Item = Seqno>) -> Self {
        Self::retaining(visible, live, Retention::Nothing)
    }

    /// As [`Self::new`], with retention. The last stripe ends where retention begins, so the rule
    /// keeps every later version, and the one that was the newest at that seqno.
    pub fn retaining(
        visible: Seqno,
        live: impl IntoIterator<Item = Seqno>,
        retention: Retention,
    ) -> Self {
        let end = match retention {
            Retention::Nothing => visible,
            Retention::Since(seqno) => seqno.min(visible),
        };
        let mut bounds: Vec<Seqno> = live.into_iter().filter(|s| *s < end).collect();
        bounds.push(end);
        bounds.sort_unstable();
        bounds.dedup();
        Self { bounds }
    }

    /// The oldest seqno at which a read may stand.
    pub fn oldest(&self) -> Seqno {
        self.bounds[0]
    }

    /// The stripe of a seqno; `None` above the last one.
    fn stripe(&self, seqno: Seqno) -> Option<usize> {
        let stripe = self.bounds.partition_point(|&bound| bound < seqno);
        (stripe < self.bounds.len()).then_some(stripe)
    }
}

/// Why an entry was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropReason {
    /// A newer version hides the entry from every read.
    Shadowed,
    /// A deletion that hides no older version any more.
    Tombstone,
    /// The index of the entry was dropped.
    Retired,
}

/// The decision on an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropDecision {
    /// The entry stays, with this seqno.
    Keep(Seqno),
    /// The entry is dropped.
    Drop(DropReason),
}

/// Decides which entries to keep, one by one, in internal order.
///
/// The rule drops a version if a newer one of the same stripe, or the same entry again, came before
/// it. It drops a deletion of stripe 0 if no level under the output may hold the key: the versions
/// that it hides in the inputs are in stripe 0 too and are dropped as well. A put of stripe 0 that
/// goes into the last level gets seqno 0, if nothing lies below: every read sees it, and equal
/// numbers compress.
///
/// Rejected: dropping a deletion above stripe 0 when no older version follows in the inputs. That
/// needs lookahead, and a later compaction drops the deletion once the snapshot is gone.
pub struct DropRule<'a> {
    snapshots: &'a Snapshots,
    retired: &'a RetiredIndexes,
    into_last_level: bool,
    user_key: Vec<u8>,
    /// Seqno and stripe of the version of `user_key` seen last.
    newer: Option<(Seqno, Option<usize>)>,
    /// The index of the last entry, and whether it is droppable.
    index: Option<(IndexId, bool)>,
}

impl<'a> DropRule<'a> {
    /// The rule of one job.
    pub fn new(
        snapshots: &'a Snapshots,
        retired: &'a RetiredIndexes,
        into_last_level: bool,
    ) -> Self {
        Self {
            snapshots,
            retired,
            into_last_level,
            user_key: Vec::new(),
            newer: None,
            index: None,
        }
    }

    /// Decides on the next entry. `nothing_below` says whether no level under the output may hold
    /// the user key; the rule calls it only where the answer matters.
    ///
    /// # Errors
    /// `ShutDown` for an entry that only a bug can produce: an uncommitted seqno, or an entry out
    /// of order. `Unsupported` for a range deletion.
    pub fn decide(
        &mut self,
        key: InternalKey<'_>,
        nothing_below: impl FnOnce(&[u8]) -> bool,
    ) -> Result<DropDecision> {
        if key.seqno > SEQNO_COMMITTED_MAX {
            return Err(bug("uncommitted seqno"));
        }
        if key.kind == Kind::RangeDelete {
            return Err(Error::unsupported("a range deletion in a compaction"));
        }
        let stripe = self.snapshots.stripe(key.seqno);
        if self.newer.is_none() || self.user_key != key.user_key {
            if self.newer.is_some() && self.user_key.as_slice() > key.user_key {
                return Err(bug("user keys out of order"));
            }
            self.user_key.clear();
            self.user_key.extend_from_slice(key.user_key);
            self.newer = None;
        }
        let newer = self.newer.replace((key.seqno, stripe));
        if self.is_retired(key.user_key) {
            return Ok(DropDecision::Drop(DropReason::Retired));
        }
        if let Some((seqno, newer_stripe)) = newer {
            if seqno < key.seqno {
                return Err(bug("versions out of order"));
            }
            // Replay may repeat what a file already holds: the same seqno is the same entry.
            if seqno == key.seqno || (stripe.is_some() && newer_stripe == stripe) {
                return Ok(DropDecision::Drop(DropReason::Shadowed));
            }
        }
        if stripe != Some(0) {
            return Ok(DropDecision::Keep(key.seqno));
        }
        let put = key.kind.is_put();
        if (put && !self.into_last_level) || !nothing_below(key.user_key) {
            return Ok(DropDecision::Keep(key.seqno));
        }
        Ok(match put {
            true => DropDecision::Keep(0),
            false => DropDecision::Drop(DropReason::Tombstone),
        })
    }

    /// Whether puts of this seqno get seqno 0, provided that nothing lies below: the output is the
    /// last level and the seqno is in stripe 0.
    pub fn zeroes(&self, seqno: Seqno) -> bool {
        self.into_last_level && self.snapshots.stripe(seqno) == Some(0)
    }

    /// Whether the rule keeps each entry of a stored block unchanged, seqno included, provided that
    /// no other input has a key in the block's range. `first` is the block's first user key;
    /// `superseded` counts the entries of the file that have a newer version in it.
    ///
    /// It errs on the side of rewriting: it refuses a block with a deletion or with several
    /// indexes. It accepts two kinds of blocks, in which no user key comes twice: blocks whose
    /// seqnos are all 0, and blocks of a file without superseded entries whose seqnos would not
    /// become 0.
    pub fn keeps_all(&mut self, first: &[u8], block: &BlockInfo<'_>, superseded: u64) -> bool {
        let one_index =
            index_id_of(first).is_some_and(|id| index_id_of(block.separator) == Some(id));
        let settled = block.max_seqno == 0;
        let unchanged = !self.into_last_level || block.min_seqno > self.snapshots.oldest();
        block.deletes == 0
            && one_index
            && (settled || (superseded == 0 && unchanged))
            && block.max_seqno <= SEQNO_COMMITTED_MAX
            && (self.newer.is_none() || self.user_key.as_slice() < first)
            && !self.is_retired(first)
    }

    /// Notes that a block was copied. `last` is its last user key; no older version of it follows.
    pub fn passed(&mut self, last: &[u8]) {
        self.user_key.clear();
        self.user_key.extend_from_slice(last);
        self.newer = Some((0, None));
    }

    fn is_retired(&mut self, user_key: &[u8]) -> bool {
        let Some(index) = index_id_of(user_key) else {
            return false;
        };
        match self.index {
            Some((known, retired)) if known == index => retired,
            _ => {
                let retired = droppable(self.retired, index, self.snapshots.oldest());
                self.index = Some((index, retired));
                retired
            }
        }
    }
}

/// Whether `index` was dropped and every read stands at or after the drop.
pub(super) fn droppable(retired: &RetiredIndexes, index: IndexId, oldest: Seqno) -> bool {
    retired
        .get(&index)
        .is_some_and(|&dropped| dropped <= oldest)
}

fn bug(what: &str) -> Error {
    Error::new(ErrorKind::ShutDown, format!("bug: compaction met {what}"))
}

#[cfg(test)]
mod tests;
