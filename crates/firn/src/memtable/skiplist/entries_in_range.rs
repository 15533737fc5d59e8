//! Estimates the number of entries in a range, and splits ranges, without counting all entries.

use super::{BRANCHING, Skiplist, walk};
use crate::base::Kind;
use crate::memtable::node::Probe;
use std::cmp::Ordering;
use std::sync::atomic::Ordering::Relaxed;

/// The number of entries in a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RangeEntries {
    /// Number of entries of all kinds.
    pub entries: u64,
    /// Number of entries that are deletions.
    pub deletes: u64,
    /// The number of entries that each counted entry stands for; 1 if the numbers are exact. An
    /// estimate of n has a standard error of √(n · each).
    pub each: u64,
}

impl RangeEntries {
    /// Whether the numbers were counted, not estimated.
    pub fn is_exact(&self) -> bool {
        self.each == 1
    }

    /// An upper bound of the true number, where `n` is `entries` or `deletes`: two standard errors
    /// above `n`, which the true number exceeds in about one case of forty.
    pub fn most(&self, n: u64) -> u64 {
        if self.is_exact() {
            return n;
        }
        let variance = n.saturating_add(self.each).saturating_mul(self.each);
        n.saturating_add(2 * variance.isqrt())
    }
}

/// An estimate of the entries in a range of the memtable is precise enough if its standard error is
/// at most (estimate + `others`) / `PRECISION`. `others` is the number of entries that other
/// sources have in the range; the caller adds both.
const PRECISION: u64 = 8;

/// The search for split keys goes down level by level. It ends at the first level on which it
/// visits at least this many nodes per requested key.
const VISITS_A_KEY: usize = 16;

impl Skiplist {
    /// The number of entries with `lo ≤ user key < hi` (no upper bound: `None`).
    ///
    /// Each level holds about a quarter of the nodes of the level below. So this counts the nodes
    /// of the range at the highest level, then one level down, and so on, until the count is
    /// precise enough, or it is that of level 0 and exact. A count n at level l stands for n · 4^l
    /// entries with a standard error of √n · 4^l. The caller adds the result to `others`, so the
    /// count is precise enough if that error is at most an eighth of the sum of both. If `others`
    /// is 0, this takes a level with about 66 nodes in the range; the larger `others`, the fewer
    /// nodes suffice. A level without a node in the range never ends the search: the level below
    /// costs only a few steps then, and the caller learns of most ranges without an entry that
    /// there is none.
    pub(in crate::memtable) fn estimate(
        &self,
        lo: &[u8],
        hi: Option<&[u8]>,
        others: u64,
    ) -> RangeEntries {
        let lo = Probe::new(lo, u64::MAX);
        let hi = hi.map(|hi| Probe::new(hi, u64::MAX));
        let mut before = self.head;
        for level in (0..self.height.load(Relaxed)).rev() {
            let (last, mut at) = walk(before, level, &lo);
            before = last;
            let (mut count, mut deletes) = (0, 0);
            while let Some(node) = at.filter(|node| below(*node, hi.as_ref())) {
                count += 1;
                deletes += u64::from(node.key().kind == Kind::Delete);
                at = node.next(level);
            }
            let each = BRANCHING.pow(level as u32);
            let found = RangeEntries {
                entries: count * each,
                deletes: deletes * each,
                each,
            };
            let sum = u128::from(others.saturating_add(found.entries));
            let error = u128::from(PRECISION * each);
            let precise = count > 0 && error * error * u128::from(count + 1) <= sum * sum;
            if level == 0 || precise {
                return found;
            }
        }
        unreachable!("a list has a level 0")
    }

    /// User keys with `lo ≤ key < hi`, ascending, with about equally many entries between
    /// neighbours: the keys that the highest level with at least `count` keys of the range has.
    /// Returns fewer if the range has fewer, or if keys have very many versions: the number of
    /// visited nodes is bounded by `count`.
    pub(in crate::memtable) fn split_keys(
        &self,
        lo: &[u8],
        hi: Option<&[u8]>,
        count: usize,
    ) -> Vec<Vec<u8>> {
        self.split_keys_visiting(lo, hi, count).0
    }

    /// Also returns the number of nodes visited.
    fn split_keys_visiting(
        &self,
        lo: &[u8],
        hi: Option<&[u8]>,
        count: usize,
    ) -> (Vec<Vec<u8>>, usize) {
        let mut all = 0;
        let lo = Probe::new(lo, u64::MAX);
        let hi = hi.map(|hi| Probe::new(hi, u64::MAX));
        let mut before = self.head;
        let mut keys: Vec<Vec<u8>> = Vec::new();
        for level in (0..self.height.load(Relaxed)).rev() {
            let (last, mut at) = walk(before, level, &lo);
            before = last;
            keys.clear();
            let mut visited = 0;
            while let Some(node) = at.filter(|node| below(*node, hi.as_ref())) {
                if keys.last().is_none_or(|key| key != node.user_key()) {
                    keys.push(node.user_key().to_vec());
                }
                visited += 1;
                at = node.next(level);
            }
            all += visited;
            // If many visited nodes have few distinct keys, the keys have many versions. The lower
            // levels of the skiplist would mostly show more versions of the same keys, so stop
            // here.
            if keys.len() >= count || visited >= VISITS_A_KEY * count {
                break;
            }
        }
        (keys, all)
    }
}

fn below(node: crate::memtable::node::NodeRef<'_>, hi: Option<&Probe<'_>>) -> bool {
    hi.is_none_or(|hi| node.compare(hi) == Ordering::Less)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::{InternalKey, Value};
    use crate::memtable::Memtable;

    #[test]
    fn keys_with_very_many_versions_cost_no_more_than_others() {
        let memtable = Memtable::with_capacity(1, 1, 0);
        let mut inserter = memtable.inserter();
        for seqno in 1..=50_000 {
            let key = format!("0001{}", seqno % 10);
            let key = InternalKey::new(key.as_bytes(), seqno, Kind::Put);
            inserter.insert(key, Value::whole(b"v"));
        }
        drop(inserter);
        let (keys, visited) = memtable.list.split_keys_visiting(b"0001", None, 64);
        assert!(!keys.is_empty() && keys.len() <= 10, "{}", keys.len());
        // The search ends at the first level on which it visits 16 nodes per requested key
        // (`VISITS_A_KEY`). On the level above it visited fewer, and a level has about four times
        // as many nodes as the one above. So it visits less than 4 · 16 nodes per key on the last
        // level, and less than 8 · 16 on all levels.
        assert!(visited < 8 * VISITS_A_KEY * 64, "{visited} nodes");
    }
}
