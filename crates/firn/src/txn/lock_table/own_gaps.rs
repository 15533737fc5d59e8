//! The ranges of keys in which one owner has locked the gaps.

use crate::base::IndexId;
use crate::base::key::index_id_of;
use std::collections::BTreeMap;
use std::ops::Bound;

/// The ranges of keys that one owner has locked, in which it has joined ranges that overlap or
/// adjoin. Only the thread of the owner changes them.
#[derive(Default)]
pub(super) struct OwnGaps {
    /// Upper bounds by lower bounds. No range reaches beyond one index. No two ranges of an index
    /// overlap or adjoin.
    pub(super) ranges: BTreeMap<Box<[u8]>, Vec<u8>>,
    /// One bit for each slot with a lock of the owner.
    pub(super) slots: u64,
}

/// How a gap lock was granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GapGrant {
    /// The owner had locked the whole range before.
    Before,
    /// The owner had locked some keys of the range before, but not all.
    Partly,
    /// The owner had locked no key of the range before.
    Newly,
}

/// The index of `key`. Keys of user tables always have one.
pub(super) fn index_of(key: &[u8]) -> IndexId {
    index_id_of(key).unwrap_or_default()
}

/// The ranges with which a new range is joined.
pub(super) struct Joined {
    pub(super) grant: GapGrant,
    /// Lower bound of the range that the new one continues.
    pub(super) continued: Option<Box<[u8]>>,
    /// Lower bounds of the ranges that the new one swallows.
    pub(super) swallowed: Vec<Box<[u8]>>,
    /// Upper bound of all of them together.
    pub(super) upper: Vec<u8>,
}

impl OwnGaps {
    /// Whether the owner has locked all keys of the range.
    pub(super) fn has_all(&self, lower: &[u8], upper: &[u8]) -> bool {
        let before = self.before(lower);
        before.is_some_and(|(_, end)| upper <= end)
    }

    /// The range that ends at `lower`, if the range from there to `upper` only makes it longer: it
    /// lies in the same index, and no other range overlaps or adjoins the new part.
    pub(super) fn continued_only(
        &mut self,
        lower: &[u8],
        upper: &[u8],
    ) -> Option<(&[u8], &mut Vec<u8>)> {
        let behind = (Bound::Excluded(lower), Bound::Included(upper));
        if self.ranges.range::<[u8], _>(behind).next().is_some() {
            return None;
        }
        let until = (Bound::Unbounded, Bound::Included(lower));
        let (start, end) = self.ranges.range_mut::<[u8], _>(until).next_back()?;
        (end[..] == *lower && index_of(start) == index_of(lower)).then_some((&start[..], end))
    }

    /// The last range that begins at `lower` or before.
    fn before(&self, lower: &[u8]) -> Option<(&[u8], &[u8])> {
        let until = (Bound::Unbounded, Bound::Included(lower));
        let (start, end) = self.ranges.range::<[u8], _>(until).next_back()?;
        Some((start, end))
    }

    /// Finds the ranges that overlap or adjoin a new one. The owner must not have locked all keys
    /// of the new one. Ranges of two indexes do not adjoin, although the end of one index equals
    /// the start of the next.
    pub(super) fn joined(&self, lower: &[u8], upper: &[u8]) -> Joined {
        let mut joined = Joined {
            grant: GapGrant::Newly,
            continued: None,
            swallowed: Vec::new(),
            upper: upper.to_vec(),
        };
        let index = index_of(lower);
        if let Some((start, end)) = self.before(lower)
            && end >= lower
            && index_of(start) == index
        {
            if end > lower {
                joined.grant = GapGrant::Partly;
            }
            debug_assert!(end < upper, "the owner has the whole range");
            joined.continued = Some(start.into());
        }
        let behind = (Bound::Excluded(lower), Bound::Included(upper));
        for (start, end) in self.ranges.range::<[u8], _>(behind) {
            if index_of(start) != index {
                break;
            }
            if start[..] < *upper {
                joined.grant = GapGrant::Partly;
            }
            if end[..] > joined.upper[..] {
                joined.upper.clone_from(end);
            }
            joined.swallowed.push(start.clone());
        }
        joined
    }

    /// The ranges that share a key with the given one, as lower and upper bounds.
    pub(super) fn overlapping(&self, lower: &[u8], upper: &[u8]) -> Vec<(Box<[u8]>, Vec<u8>)> {
        let first = self.before(lower).filter(|(_, end)| *end > lower);
        let first = first.map(|(start, end)| (Box::from(start), end.to_vec()));
        let behind = (Bound::Excluded(lower), Bound::Excluded(upper));
        let behind = self.ranges.range::<[u8], _>(behind);
        let behind = behind.map(|(start, end)| (start.clone(), end.clone()));
        first.into_iter().chain(behind).collect()
    }
}
