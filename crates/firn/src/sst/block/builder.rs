//! Building data blocks.

use super::{
    BUCKET_ABSENT, BUCKET_COLLISION, FLAG_HEAD_LEN_SAME, FLAG_TAIL_LEN_SAME, FLAG_TRAILER_SAME,
    HASHED_RESTARTS_MAX, RESTART_INTERVAL, bucket_of,
};
use crate::base::{InternalKey, Value, varint};

/// A key is stored with the bytes it shares with its predecessor left out.
fn shared_len(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

struct Added {
    shared: u32,
    suffix_len: u32,
    trailer: u64,
    head_len: u32,
    tail_len: u32,
    hash: u64,
}

/// A finished raw block and what the index says about it.
pub(in crate::sst) struct Built {
    pub(in crate::sst) raw: Vec<u8>,
    /// One hash per distinct user key, for the filter.
    pub(in crate::sst) hashes: Vec<u64>,
}

/// Collects the entries of one block and encodes them at the end, when it is known what they have
/// in common.
pub(in crate::sst) struct BlockBuilder {
    sectioned: bool,
    hash_index: bool,
    added: Vec<Added>,
    suffixes: Vec<u8>,
    heads: Vec<u8>,
    tails: Vec<u8>,
    last_key: Vec<u8>,
}

/// Under this many restarts the hash index finds nothing faster than the binary search.
const HASHED_RESTARTS_MIN: usize = 3;
const ENTRY_OVERHEAD: usize = 4;

impl BlockBuilder {
    pub(in crate::sst) fn new(sectioned: bool, hash_index: bool) -> Self {
        Self {
            sectioned,
            hash_index,
            added: Vec::new(),
            suffixes: Vec::new(),
            heads: Vec::new(),
            tails: Vec::new(),
            last_key: Vec::new(),
        }
    }

    pub(in crate::sst) fn is_empty(&self) -> bool {
        self.added.is_empty()
    }

    /// Raw size so far, roughly.
    pub(in crate::sst) fn size(&self) -> usize {
        self.suffixes.len()
            + self.heads.len()
            + self.tails.len()
            + self.added.len() * ENTRY_OVERHEAD
    }

    /// The user key added last.
    pub(in crate::sst) fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    /// Adds an entry above all added before; `hash` is that of its user key.
    pub(in crate::sst) fn add(&mut self, key: InternalKey<'_>, value: Value<'_>, hash: u64) {
        let shared = if self.added.len() % RESTART_INTERVAL == 0 {
            0
        } else {
            shared_len(&self.last_key, key.user_key)
        };
        let suffix = &key.user_key[shared..];
        self.suffixes.extend_from_slice(suffix);
        self.heads.extend_from_slice(value.head);
        self.tails.extend_from_slice(value.tail);
        self.added.push(Added {
            shared: shared as u32,
            suffix_len: suffix.len() as u32,
            trailer: key.trailer(),
            head_len: value.head.len() as u32,
            tail_len: value.tail.len() as u32,
            hash,
        });
        self.last_key.clear();
        self.last_key.extend_from_slice(key.user_key);
    }

    /// Encodes the block and empties the builder; at least one entry was added.
    pub(in crate::sst) fn finish(&mut self) -> Built {
        let first = &self.added[0];
        let all = |same: fn(&Added, &Added) -> bool| self.added.iter().all(|a| same(a, first));
        let mut flags = 0;
        for (same, flag) in [
            (all(|a, b| a.trailer == b.trailer), FLAG_TRAILER_SAME),
            (all(|a, b| a.head_len == b.head_len), FLAG_HEAD_LEN_SAME),
            (all(|a, b| a.tail_len == b.tail_len), FLAG_TAIL_LEN_SAME),
        ] {
            flags |= if same { flag } else { 0 };
        }
        let trailer_base = self.added.iter().map(|a| a.trailer).min().unwrap_or(0);
        let (keys, restarts) = self.encode_keys(flags, trailer_base);
        let buckets = self.hash_buckets();

        let mut raw = Vec::with_capacity(keys.len() + self.size());
        raw.push(flags);
        varint::put_u64(&mut raw, self.added.len() as u64);
        varint::put_u64(&mut raw, RESTART_INTERVAL as u64);
        varint::put_u64(&mut raw, trailer_base);
        if flags & FLAG_HEAD_LEN_SAME != 0 {
            varint::put_u64(&mut raw, u64::from(first.head_len));
        }
        if flags & FLAG_TAIL_LEN_SAME != 0 {
            varint::put_u64(&mut raw, u64::from(first.tail_len));
        }
        varint::put_u64(&mut raw, keys.len() as u64);
        if self.sectioned {
            varint::put_u64(&mut raw, self.heads.len() as u64);
            varint::put_u64(&mut raw, self.tails.len() as u64);
        }
        varint::put_u64(&mut raw, buckets.len() as u64);
        raw.extend_from_slice(&keys);
        if self.sectioned {
            raw.extend_from_slice(&self.heads);
            raw.extend_from_slice(&self.tails);
        }
        let mut put_array = |offset: fn(&[u32; 3]) -> u32| {
            for at in &restarts {
                raw.extend_from_slice(&offset(at).to_le_bytes());
            }
        };
        put_array(|at| at[0]);
        if self.sectioned && flags & FLAG_HEAD_LEN_SAME == 0 {
            put_array(|at| at[1]);
        }
        if self.sectioned && flags & FLAG_TAIL_LEN_SAME == 0 {
            put_array(|at| at[2]);
        }
        raw.extend_from_slice(&buckets);

        let mut hashes: Vec<u64> = self.added.iter().map(|a| a.hash).collect();
        hashes.dedup();
        self.added.clear();
        self.suffixes.clear();
        self.heads.clear();
        self.tails.clear();
        Built { raw, hashes }
    }

    /// The key section, and the offsets of each restart in the three sections.
    fn encode_keys(&self, flags: u8, trailer_base: u64) -> (Vec<u8>, Vec<[u32; 3]>) {
        let mut keys = Vec::with_capacity(self.size());
        let mut restarts = Vec::new();
        let (mut suffix, mut head, mut tail) = (0, 0, 0);
        for (i, a) in self.added.iter().enumerate() {
            if i % RESTART_INTERVAL == 0 {
                restarts.push([keys.len() as u32, head as u32, tail as u32]);
            }
            varint::put_u64(&mut keys, u64::from(a.shared));
            varint::put_u64(&mut keys, u64::from(a.suffix_len));
            if flags & FLAG_TRAILER_SAME == 0 {
                varint::put_u64(&mut keys, a.trailer - trailer_base);
            }
            if flags & FLAG_HEAD_LEN_SAME == 0 {
                varint::put_u64(&mut keys, u64::from(a.head_len));
            }
            if flags & FLAG_TAIL_LEN_SAME == 0 {
                varint::put_u64(&mut keys, u64::from(a.tail_len));
            }
            let take = |bytes: &'_ [u8], at: &mut usize, len: u32, out: Option<&mut Vec<u8>>| {
                let end = *at + len as usize;
                if let Some(out) = out {
                    out.extend_from_slice(&bytes[*at..end]);
                }
                *at = end;
            };
            let inline = !self.sectioned;
            take(&self.suffixes, &mut suffix, a.suffix_len, Some(&mut keys));
            take(
                &self.heads,
                &mut head,
                a.head_len,
                inline.then_some(&mut keys),
            );
            take(
                &self.tails,
                &mut tail,
                a.tail_len,
                inline.then_some(&mut keys),
            );
        }
        (keys, restarts)
    }

    fn hash_buckets(&self) -> Vec<u8> {
        let restarts = self.added.len().div_ceil(RESTART_INTERVAL);
        if !self.hash_index || !(HASHED_RESTARTS_MIN..=HASHED_RESTARTS_MAX).contains(&restarts) {
            return Vec::new();
        }
        // Load 0.75.
        let mut buckets = vec![BUCKET_ABSENT; self.added.len() * 4 / 3 + 1];
        for (i, a) in self.added.iter().enumerate() {
            let restart = (i / RESTART_INTERVAL) as u8;
            let at = bucket_of(a.hash, buckets.len());
            let bucket = &mut buckets[at];
            // A key whose versions cross a restart collides with itself.
            *bucket = match *bucket {
                BUCKET_ABSENT => restart,
                same if same == restart => restart,
                _ => BUCKET_COLLISION,
            };
        }
        buckets
    }
}
