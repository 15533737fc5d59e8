//! Ranges of user keys.

/// The smallest key above all keys that start with `prefix`; `None` if there is none.
pub fn prefix_successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let end = prefix.iter().rposition(|&b| b != 0xff)?;
    let mut key = prefix[..=end].to_vec();
    key[end] += 1;
    Some(key)
}

/// Changes `key` to the smallest key above all keys that start with it. Returns false, and leaves
/// `key` empty, if there is none.
pub fn make_successor(key: &mut Vec<u8>) -> bool {
    while key.pop_if(|last| *last == 0xff).is_some() {}
    match key.last_mut() {
        Some(last) => {
            *last += 1;
            true
        }
        None => false,
    }
}

/// Ranges that share no key, ascending.
#[derive(Debug, Default)]
pub struct DisjointRanges(Vec<KeyRange>);

impl DisjointRanges {
    /// The ranges, ascending.
    pub fn as_slice(&self) -> &[KeyRange] {
        &self.0
    }

    /// The positions of the ranges that share a key with those from `smallest` to `largest`; `None`
    /// if there are none.
    pub fn find(&self, smallest: &[u8], largest: &[u8]) -> Option<std::ops::Range<usize>> {
        let from = self.0.partition_point(|r| r.largest.as_slice() < smallest);
        let to = self.0.partition_point(|r| r.smallest.as_slice() <= largest);
        (from < to).then_some(from..to)
    }

    /// Adds a range, joined with those that share a key with it.
    pub fn add(&mut self, mut range: KeyRange) {
        let over = self.find(&range.smallest, &range.largest);
        let over = over.unwrap_or_else(|| {
            let at = self.0.partition_point(|r| r.largest < range.smallest);
            at..at
        });
        self.0[over.clone()].iter().for_each(|r| range.extend(r));
        self.0.splice(over, [range]);
    }
}

/// A closed range of user keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRange {
    /// Smallest key, inclusive.
    pub smallest: Vec<u8>,
    /// Largest key, inclusive.
    pub largest: Vec<u8>,
}

impl KeyRange {
    /// Whether the two ranges share a key.
    pub fn overlaps(&self, other: &KeyRange) -> bool {
        self.smallest <= other.largest && other.smallest <= self.largest
    }

    /// Whether `key` lies inside.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.smallest.as_slice() <= key && key <= self.largest.as_slice()
    }

    /// Grows to include `other`.
    pub fn extend(&mut self, other: &KeyRange) {
        if other.smallest < self.smallest {
            self.smallest.clone_from(&other.smallest);
        }
        if other.largest > self.largest {
            self.largest.clone_from(&other.largest);
        }
    }
}
