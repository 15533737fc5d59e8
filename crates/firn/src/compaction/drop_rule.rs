//! Decides which versions of a key a compaction keeps. This module does no I/O.
//!
//! The live snapshots divide the seqnos into stripes: stripe 0 ends at the oldest snapshot, the
//! last stripe ends at the newest visible seqno. Reads happen only at the end of a stripe, so of
//! each user key they see at most the newest version in each stripe. Versions above the last stripe
//! are all kept, because a snapshot may yet be taken there. If versions are retained for reads in
//! the past, the last stripe ends at the oldest seqno at which such reads may happen.
//!
//! Example: the snapshots are 10 and 20, the newest visible seqno is 30. Of the versions 35 33 28
//! 24 18 9 5 the rule keeps 35 and 33 (above the stripes), 28 (in 21..=30), 18 (in 11..=20) and 9
//! (in 0..=10).

use crate::base::key::{SEQNO_COMMITTED_MAX, index_id_of};
use crate::base::{Error, ErrorKind, IndexId, InternalKey, Kind, Result, Seqno};
use crate::sst::BlockInfo;
use std::collections::BTreeMap;

/// The dropped indexes, each with the seqno at which it was dropped.
pub type RetiredIndexes = BTreeMap<IndexId, Seqno>;

/// The versions that a compaction keeps for reads in the past, in addition to those that live
/// snapshots need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Retention {
    /// No further versions.
    #[default]
    Nothing,
    /// All versions that a read at this seqno or at a later one sees.
    Since(Seqno),
}

/// The seqnos at which reads may happen.
#[derive(Debug, Clone)]
pub struct Snapshots {
    /// The last seqno of each stripe, ascending, not empty. The last stripe ends at the newest
    /// visible seqno, or at the oldest retained seqno if versions are retained.
    bounds: Vec<Seqno>,
}

impl Snapshots {
    /// Makes the list from the newest visible seqno and the live snapshots, in any order.
    ///
    /// Choose the inputs of the job first, then read `visible`, then copy the list of snapshots. A
    /// snapshot that is taken in between has a seqno of `visible` or above, and the rule keeps all
    /// that it sees. In the reverse order the rule could miss a snapshot below `visible`.
    pub fn new(visible: Seqno, live: impl IntoIterator<Item = Seqno>) -> Self {
        Self::retaining(visible, live, Retention::Nothing)
    }

    /// As [`Self::new`], with retention. The last stripe ends at the oldest retained seqno. So the
    /// rule keeps every version above it, and the newest version at or below it.
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

    /// The oldest seqno at which a read may happen.
    pub fn oldest(&self) -> Seqno {
        self.bounds[0]
    }

    /// The number of the stripe that contains `seqno`; `None` if it is above the last stripe.
    fn stripe(&self, seqno: Seqno) -> Option<usize> {
        let stripe = self.bounds.partition_point(|&bound| bound < seqno);
        (stripe < self.bounds.len()).then_some(stripe)
    }
}

/// Why an entry was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropReason {
    /// A newer version of the same key hides the entry from every read.
    Shadowed,
    /// The entry is a deletion, and no older version is left that it hides.
    Tombstone,
    /// The index of the entry was dropped.
    Retired,
}

/// The decision on one entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropDecision {
    /// The entry is kept, with this seqno.
    Keep(Seqno),
    /// The entry is dropped.
    Drop(DropReason),
}

/// Decides which entries of a job to keep. It is called for each entry, in the order of internal
/// keys.
///
/// The rule drops a version if a newer version in the same stripe, or the same entry, came before
/// it. It drops a deletion of stripe 0 if no level below the output may hold the key: the versions
/// in the inputs that the deletion hides are in stripe 0 too, and are dropped as well. A put of
/// stripe 0 gets seqno 0 if it is written to the last level and nothing lies below: every read sees
/// the put, and equal seqnos compress well.
///
/// Rejected: dropping a deletion above stripe 0 when no older version of its key follows in the
/// inputs. That would need lookahead. It is also unnecessary, because a later compaction drops the
/// deletion once the snapshot is released.
pub struct DropRule<'a> {
    snapshots: &'a Snapshots,
    retired: &'a RetiredIndexes,
    into_last_level: bool,
    user_key: Vec<u8>,
    /// Seqno and stripe of the entry with the key `user_key` on which the rule decided last.
    /// Entries of a key come newest first, so this one is newer than those that follow.
    newer: Option<(Seqno, Option<usize>)>,
    /// The index id of the entry on which the rule decided last, and whether all entries of that
    /// index can be dropped because the index is retired.
    index: Option<(IndexId, bool)>,
}

impl<'a> DropRule<'a> {
    /// The rule for one job. `into_last_level` says whether the output level is the last one.
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

    /// Decides on the next entry. `nothing_below` says whether no level below the output can hold
    /// the user key; it is called only if the decision depends on it.
    ///
    /// # Errors
    /// `ShutDown` for an entry that only a bug can produce: one with an uncommitted seqno, or one
    /// that is out of order. `Unsupported` for a range deletion.
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
            // Two entries with the same key and seqno are the same entry, which a replay of the log
            // may have flushed a second time. Keep one of them.
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

    /// Whether puts of this seqno get seqno 0, provided that no level below the output holds their
    /// keys. They do if the output is the last level and the seqno is in stripe 0.
    pub fn zeroes(&self, seqno: Seqno) -> bool {
        self.into_last_level && self.snapshots.stripe(seqno) == Some(0)
    }

    /// Whether the rule keeps each entry of a stored block unchanged, including the seqno, provided
    /// that no other input has a key in the block's range. `first` is the first user key of the
    /// block. `superseded` is the number of entries in the block's file that have a newer version
    /// in that file.
    ///
    /// If this is not certain, the answer is no, and the block is merged. It is no for every block
    /// with a deletion or with entries of several indexes. The rule accepts two kinds of blocks, in
    /// both of which no user key occurs twice: blocks whose seqnos are all 0, and blocks of a file
    /// without superseded entries whose seqnos would not become 0.
    pub fn keeps_all(&mut self, first: &[u8], block: &BlockInfo<'_>, superseded: u64) -> bool {
        let one_index =
            index_id_of(first).is_some_and(|id| index_id_of(block.separator) == Some(id));
        let without_seqnos = block.max_seqno == 0;
        let unchanged = !self.into_last_level || block.min_seqno > self.snapshots.oldest();
        block.deletes == 0
            && one_index
            && (without_seqnos || (superseded == 0 && unchanged))
            && block.max_seqno <= SEQNO_COMMITTED_MAX
            && (self.newer.is_none() || self.user_key.as_slice() < first)
            && !self.is_retired(first)
    }

    /// Tells the rule that a block was copied, whose last user key is `last`. No version of this
    /// key may follow.
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

/// Whether `index` was dropped and every read happens at or after the drop, so that all its entries
/// can be removed.
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
