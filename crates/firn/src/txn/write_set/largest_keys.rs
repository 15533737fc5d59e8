//! The largest key that a write set has in each index.

use crate::base::IndexId;
use crate::base::key::index_id_of;

/// Length of the prefix of a key that is kept and compared. A shorter prefix would give the answer
/// "perhaps written" more often, and never a wrong "not written".
const KEPT: usize = 40;

/// Number of indexes whose largest key is kept. A statement seldom writes to more indexes.
const INDEXES: usize = 8;

/// The largest key written to each index, as a filter for point reads: a key is "not written" or
/// "perhaps written".
///
/// A statement that writes in key order looks each key up before it writes it. The key is greater
/// than all written ones, so one comparison saves the search of memory, frozen memory and every
/// run. A rollback does not lower the largest keys.
#[derive(Default)]
pub(super) struct LargestKeys {
    list: Vec<LargestKey>,
    /// Whether a key was written to an index that is not in the list.
    others: bool,
}

/// The first bytes of a key, at most [`KEPT`].
struct LargestKey {
    index: Option<IndexId>,
    len: usize,
    bytes: [u8; KEPT],
}

impl LargestKey {
    fn new(index: Option<IndexId>, kept: &[u8]) -> Self {
        let mut top = Self {
            index,
            len: 0,
            bytes: [0; KEPT],
        };
        top.set(kept);
        top
    }

    fn set(&mut self, kept: &[u8]) {
        self.len = kept.len();
        self.bytes[..kept.len()].copy_from_slice(kept);
    }

    fn kept(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The bytes of a key that are compared. If they are greater than those of another key, the whole
/// key is greater: either the keys differ in these bytes, or the other key is a proper prefix.
fn kept(user_key: &[u8]) -> &[u8] {
    &user_key[..user_key.len().min(KEPT)]
}

impl LargestKeys {
    /// Forgets all keys. The list, which is short, keeps its memory.
    pub(super) fn clear(&mut self) {
        self.list.clear();
        self.others = false;
    }

    /// Records that `user_key` is written.
    pub(super) fn note(&mut self, user_key: &[u8]) {
        let (index, key) = (index_id_of(user_key), kept(user_key));
        let is_full = self.list.len() == INDEXES;
        match self.list.iter_mut().find(|top| top.index == index) {
            Some(top) if key > top.kept() => top.set(key),
            Some(_) => {}
            None if is_full => self.others = true,
            None => self.list.push(LargestKey::new(index, key)),
        }
    }

    /// Whether `user_key` may have been written.
    pub(super) fn may_have(&self, user_key: &[u8]) -> bool {
        let index = index_id_of(user_key);
        match self.list.iter().find(|top| top.index == index) {
            Some(top) => kept(user_key) <= top.kept(),
            None => self.others,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};
    use std::collections::BTreeSet;

    fn random_key(rng: &mut StdRng, indexes: u32) -> Vec<u8> {
        let mut key = rng.random_range(0..indexes).to_be_bytes().to_vec();
        // Vary only the last byte, so that keys of one index which are longer than [`KEPT`] are
        // equal in the bytes that are kept.
        key.resize(rng.random_range(2..2 * KEPT), 0);
        if let Some(last) = key.last_mut() {
            *last = rng.random_range(0..4);
        }
        key
    }

    #[test]
    fn what_is_written_is_never_denied() {
        let (mut denied, mut beyond) = (0, 0);
        for seed in 0..300 {
            let mut rng = StdRng::seed_from_u64(seed);
            let indexes = rng.random_range(1..2 * INDEXES as u32);
            let mut tops = LargestKeys::default();
            let mut written = BTreeSet::new();
            for _ in 0..60 {
                let key = random_key(&mut rng, indexes);
                tops.note(&key);
                written.insert(key);
                let asked = random_key(&mut rng, indexes);
                assert!(written.iter().all(|key| tops.may_have(key)), "seed {seed}");
                let index = index_id_of(&asked);
                let mut same = written.iter().filter(|key| index_id_of(key) == index);
                beyond += u32::from(same.all(|key| *key < asked));
                denied += u32::from(!tops.may_have(&asked));
            }
        }
        assert!(
            denied * 10 > beyond * 7,
            "{denied} denied, {beyond} lie beyond all that is written"
        );
    }

    #[test]
    fn a_key_beyond_is_denied_whatever_its_length() {
        let mut tops = LargestKeys::default();
        let key = |last: u8, len: usize| [&[0, 0, 0, 7][..], &vec![last; len]].concat();
        assert!(!tops.may_have(&key(1, 8)));
        for len in [8, KEPT - 4, KEPT, 3 * KEPT] {
            tops.note(&key(1, len));
            assert!(tops.may_have(&key(1, len)) && tops.may_have(&key(0, len)));
            assert!(!tops.may_have(&key(2, len)) && !tops.may_have(&key(2, 1)));
        }
        assert!(!tops.may_have(&[0, 0, 0, 8]) && !tops.may_have(&[0, 0, 0, 6]));
    }
}
