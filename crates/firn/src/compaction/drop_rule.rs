//! Which versions of a key a compaction keeps. Pure.
//!
//! The live snapshots cut the seqnos into stripes: stripe 0 ends at the oldest snapshot, the last
//! one at the newest visible seqno. No read can stand inside a stripe, so of each user key only the
//! newest version per stripe can be seen. Above the last stripe every version stays, since a
//! snapshot may yet be taken there. Retention for reads in the past ends the last stripe earlier.
//!
//! Example: snapshots 10 and 20, visible 30. Of versions 35 33 28 24 18 9 5 the rule keeps
//! 35 and 33 (above the stripes), 28 (in 21..=30), 18 (in 11..=20), 9 (in 0..=10).

use crate::base::key::{SEQNO_COMMITTED_MAX, index_id_of};
use crate::base::{Error, ErrorKind, IndexId, InternalKey, Kind, Result, Seqno};
use crate::sst::BlockInfo;
use std::collections::BTreeMap;

/// Indexes that were dropped, with the seqno of the drop.
pub type Retired = BTreeMap<IndexId, Seqno>;

/// Which versions stay beside those that live snapshots need: for reads in the past.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Retention {
    /// None.
    #[default]
    Nothing,
    /// All that a read at this seqno, or at any later one, sees.
    Since(Seqno),
}

/// The seqnos at which a read may stand.
#[derive(Debug, Clone)]
pub struct Snapshots {
    /// Ascending, not empty; the last one is the visible seqno, or where retention begins.
    bounds: Vec<Seqno>,
}

impl Snapshots {
    /// The newest visible seqno and the live snapshots, in any order.
    ///
    /// After the inputs of the job are fixed, read `visible` first, then copy the list: a snapshot
    /// taken in between stands at or above `visible`, where every version stays. The other way
    /// round it would be missed.
    pub fn new(visible: Seqno, live: impl IntoIterator<Item = Seqno>) -> Self {
        Self::retaining(visible, live, Retention::Nothing)
    }

    /// As [`Self::new`], with reads to come in the past: as if nothing were visible yet of what came after the
    /// seqno where retention begins, so that every version from there on stays, and the one that was the newest
    /// there.
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
pub enum Reason {
    /// A newer version hides it from every read.
    Shadowed,
    /// A deletion with nothing left to delete.
    Tombstone,
    /// Its index was dropped.
    Retired,
}

/// What becomes of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It stays, with this seqno.
    Keep(Seqno),
    /// It goes.
    Drop(Reason),
}

/// Decides entry by entry, in internal order.
///
/// A version goes if a newer one of the same stripe, or the same entry again, came before it. A
/// deletion of stripe 0 goes if nothing lies below: whatever it hides in the inputs is of its own
/// stripe and goes too. A put of stripe 0 in the last level gets seqno 0, if nothing lies below:
/// every read sees it, and equal numbers compress.
///
/// Rejected: dropping a deletion above stripe 0 when no older version follows in the inputs. It
/// needs a look ahead, and the deletion goes anyway once the snapshot is gone.
pub struct DropRule<'a> {
    snapshots: &'a Snapshots,
    retired: &'a Retired,
    into_last_level: bool,
    user_key: Vec<u8>,
    /// The version of `user_key` seen last.
    newer: Option<(Seqno, Option<usize>)>,
    index: Option<(IndexId, bool)>,
}

impl<'a> DropRule<'a> {
    /// The rule of one job.
    pub fn new(snapshots: &'a Snapshots, retired: &'a Retired, into_last_level: bool) -> Self {
        Self {
            snapshots,
            retired,
            into_last_level,
            user_key: Vec::new(),
            newer: None,
            index: None,
        }
    }

    /// Decides on the next entry. `nothing_below` tells whether no level under the output may hold
    /// the user key; it is asked only where that matters.
    ///
    /// # Errors
    /// `ShutDown` for an entry that a bug let through: an uncommitted seqno, or out of order.
    /// `Unsupported` for range deletions.
    pub fn decide(
        &mut self,
        key: InternalKey<'_>,
        nothing_below: impl FnOnce(&[u8]) -> bool,
    ) -> Result<Verdict> {
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
            return Ok(Verdict::Drop(Reason::Retired));
        }
        if let Some((seqno, newer_stripe)) = newer {
            if seqno < key.seqno {
                return Err(bug("versions out of order"));
            }
            // Replay may repeat what a file already holds: the same seqno is the same entry.
            if seqno == key.seqno || (stripe.is_some() && newer_stripe == stripe) {
                return Ok(Verdict::Drop(Reason::Shadowed));
            }
        }
        if stripe != Some(0) {
            return Ok(Verdict::Keep(key.seqno));
        }
        let put = key.kind.is_put();
        if (put && !self.into_last_level) || !nothing_below(key.user_key) {
            return Ok(Verdict::Keep(key.seqno));
        }
        Ok(match put {
            true => Verdict::Keep(0),
            false => Verdict::Drop(Reason::Tombstone),
        })
    }

    /// Whether puts of this seqno get seqno 0: into the last level, under which nothing lies.
    pub fn zeroes(&self, seqno: Seqno) -> bool {
        self.into_last_level && self.snapshots.stripe(seqno) == Some(0)
    }

    /// Whether it would keep each entry of a stored block as it is, seqno included, if no other input
    /// has a key in the block's range. `first` is the block's first user key; `superseded`: entries of
    /// the file with a newer version in it.
    ///
    /// It errs on the side of rewriting: a deletion is never copied, and the block must hold one index
    /// alone. In a file without superseded entries, and among entries of seqno 0, no user key comes
    /// twice.
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

    /// A block of which it keeps all went by; `last` is its last user key, of which no older version
    /// follows.
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

/// Whether `index` was dropped, and no read stands before the drop.
pub(super) fn droppable(retired: &Retired, index: IndexId, oldest: Seqno) -> bool {
    retired
        .get(&index)
        .is_some_and(|&dropped| dropped <= oldest)
}

fn bug(what: &str) -> Error {
    Error::new(ErrorKind::ShutDown, format!("bug: compaction met {what}"))
}

#[cfg(test)]
mod tests;
