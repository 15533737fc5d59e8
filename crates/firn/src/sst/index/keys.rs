//! Sorted separators as the decoded index keeps them.

use crate::sst::format::RAW_BLOCK_MAX;

/// Sorted keys in one buffer. The first eight bytes of each key after the prefix that all keys
/// share are kept as an integer too, so that most steps of a search compare two integers.
#[derive(Default)]
pub(super) struct SortedKeys {
    common: usize,
    bytes: Vec<u8>,
    ends: Vec<u32>,
    heads: Vec<u64>,
}

fn head_of(key: &[u8], common: usize) -> u64 {
    let rest = key.get(common..).unwrap_or(&[]);
    match rest.first_chunk::<8>() {
        Some(eight) => u64::from_be_bytes(*eight),
        None => {
            let mut padded = [0; 8];
            padded[..rest.len()].copy_from_slice(rest);
            u64::from_be_bytes(padded)
        }
    }
}

impl SortedKeys {
    /// Adds the next key. `None` if the keys together exceed the size of the largest block.
    pub(super) fn push(&mut self, key: &[u8]) -> Option<()> {
        if self.bytes.len() + key.len() > RAW_BLOCK_MAX {
            return None;
        }
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len() as u32);
        Some(())
    }

    pub(super) fn get(&self, i: usize) -> &[u8] {
        let start = if i == 0 { 0 } else { self.ends[i - 1] as usize };
        &self.bytes[start..self.ends[i] as usize]
    }

    /// Prepares the keys for searches, after the last push. The keys must have been pushed in
    /// ascending order.
    pub(super) fn seal(&mut self) {
        let len = self.ends.len();
        if len > 0 {
            let pairs = self.get(0).iter().zip(self.get(len - 1));
            self.common = pairs.take_while(|(a, b)| a == b).count();
        }
        self.heads = (0..len)
            .map(|i| head_of(self.get(i), self.common))
            .collect();
        self.bytes.shrink_to_fit();
        self.ends.shrink_to_fit();
    }

    /// The number of the first key ≥ `key`, or the number of keys if there is none.
    #[inline]
    pub(super) fn lower_bound(&self, key: &[u8]) -> usize {
        let len = self.ends.len();
        if len == 0 {
            return 0;
        }
        let common = self.common.min(key.len());
        match key[..common].cmp(&self.bytes[..common]) {
            std::cmp::Ordering::Less => return 0,
            std::cmp::Ordering::Greater => return len,
            // A key that is a proper prefix of the common prefix lies below all keys.
            std::cmp::Ordering::Equal if common < self.common => return 0,
            std::cmp::Ordering::Equal => {}
        }
        let head = head_of(key, self.common);
        let mut at = self.heads.partition_point(|&h| h < head);
        if at < len && self.heads[at] == head {
            let same = at + self.heads[at..].partition_point(|&h| h == head);
            let (mut low, mut high) = (at, same);
            while low < high {
                let mid = low + (high - low) / 2;
                if self.get(mid) < key {
                    low = mid + 1
                } else {
                    high = mid
                }
            }
            at = low;
        }
        at
    }

    pub(super) fn memory(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * 4 + self.heads.capacity() * 8
    }
}
