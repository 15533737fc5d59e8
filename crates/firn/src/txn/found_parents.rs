//! Remembers referenced values that the checks of foreign keys have found and locked.

use crate::base::IndexId;
use crate::base::key::index_id_of;

/// Number of values that are remembered. An index uses the slot of its id modulo this number.
const VALUES_KEPT: usize = 4;

/// The longest key that is remembered, in bytes.
const KEY_BYTES_MAX: usize = 64;

/// The keys of referenced values that checks have found: for each of a few indexes, the last one.
///
/// Rows that a statement inserts often refer to the same row as the row before. While the
/// transaction holds the shared lock of the value, no other transaction removes the value, so a
/// second check needs neither lock nor search. The transaction itself may remove the value or give
/// the lock back: whatever does that [clears](Self::clear) the keys.
#[derive(Default)]
pub(super) struct FoundParents {
    /// Empty for no key.
    keys: [Vec<u8>; VALUES_KEPT],
    /// Whether a key is remembered.
    any: bool,
}

impl FoundParents {
    fn slot(key: &[u8]) -> usize {
        let index: IndexId = index_id_of(key).unwrap_or_default();
        index as usize % VALUES_KEPT
    }

    /// Whether `key` was found and has not been cleared since then.
    pub(super) fn contains(&self, key: &[u8]) -> bool {
        self.any && !key.is_empty() && self.keys[Self::slot(key)] == key
    }

    /// Remembers that the value with `key` exists and that its lock is held.
    pub(super) fn add(&mut self, key: &[u8]) {
        if key.len() <= KEY_BYTES_MAX {
            let slot = &mut self.keys[Self::slot(key)];
            slot.clear();
            slot.extend_from_slice(key);
            self.any = true;
        }
    }

    /// Forgets all keys. The buffers, which are short, stay.
    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.any) {
            self.keys.iter_mut().for_each(Vec::clear);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(index: u32, value: u8, len: usize) -> Vec<u8> {
        [&index.to_be_bytes()[..], &vec![value; len]].concat()
    }

    #[test]
    fn the_last_value_of_each_index_is_known_until_the_values_are_cleared() {
        let mut found = FoundParents::default();
        assert!(!found.contains(&key(7, 1, 4)) && !found.contains(&[]));
        found.add(&key(7, 1, 4));
        found.add(&key(8, 1, 4));
        assert!(found.contains(&key(7, 1, 4)) && found.contains(&key(8, 1, 4)));
        assert!(!found.contains(&key(7, 1, 3)) && !found.contains(&key(7, 2, 4)));
        found.add(&key(7, 2, 4));
        assert!(!found.contains(&key(7, 1, 4)) && found.contains(&key(7, 2, 4)));
        // Another index in the same slot.
        found.add(&key(7 + VALUES_KEPT as u32, 2, 4));
        assert!(!found.contains(&key(7, 2, 4)));
        found.add(&key(7, 1, KEY_BYTES_MAX));
        assert!(!found.contains(&key(7, 1, KEY_BYTES_MAX)));
        found.clear();
        assert!(!found.contains(&key(8, 1, 4)) && !found.contains(&[]));
        // A value that is added for index 9 after `clear` must not bring back the value of index 8
        // that was known before `clear`.
        found.add(&key(9, 1, 4));
        assert!(found.contains(&key(9, 1, 4)) && !found.contains(&key(8, 1, 4)));
    }
}
