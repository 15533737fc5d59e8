//! Building data blocks.

use super::header::{BlockHeader, HEAD_LEN_SAME, KEYS_FIXED, TAIL_LEN_SAME, TRAILER_SAME};
use super::{BUCKET_ABSENT, BUCKET_COLLISION, HASHED_RESTARTS_MAX, RESTART_INTERVAL, bucket_of};
use crate::base::{InternalKey, Value, varint};

fn shared_len(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

#[derive(Clone, Copy)]
struct AddedEntry {
    key_len: u32,
    head_len: u32,
    tail_len: u32,
    trailer: u64,
    hash: u64,
}

/// A finished raw block, and the hashes of its keys for the filter.
pub(in crate::sst) struct BuiltBlock {
    pub(in crate::sst) raw: Vec<u8>,
    /// One hash per distinct user key.
    pub(in crate::sst) hashes: Vec<u64>,
}

/// Collects the entries of one block and encodes them at the end, when it is known what they have
/// in common.
pub(in crate::sst) struct BlockBuilder {
    sectioned: bool,
    hash_index: bool,
    added: Vec<AddedEntry>,
    keys: Vec<u8>,
    heads: Vec<u8>,
    tails: Vec<u8>,
    last_key: Vec<u8>,
    /// Number of key bytes that prefix compression leaves out, because the previous key starts with
    /// them.
    shared: usize,
}

/// With fewer restarts than this, a hash index is no faster than a binary search of the restarts,
/// and is left out.
const HASHED_RESTARTS_MIN: usize = 3;
const ENTRY_OVERHEAD: usize = 3;

impl BlockBuilder {
    pub(in crate::sst) fn new(sectioned: bool, hash_index: bool) -> Self {
        Self {
            sectioned,
            hash_index,
            added: Vec::new(),
            keys: Vec::new(),
            heads: Vec::new(),
            tails: Vec::new(),
            last_key: Vec::new(),
            shared: 0,
        }
    }

    pub(in crate::sst) fn is_empty(&self) -> bool {
        self.added.is_empty()
    }

    /// Approximate size in bytes of the raw block so far.
    pub(in crate::sst) fn size(&self) -> usize {
        let keys = self.keys.len() - self.shared;
        keys + self.heads.len() + self.tails.len() + self.added.len() * ENTRY_OVERHEAD
    }

    /// The user key added last.
    pub(in crate::sst) fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    /// Sets the key that the next entry must lie above to `last_key`, the last user key of the data
    /// blocks that block reuse has just copied into the file. The builder must be empty.
    pub(in crate::sst) fn pass(&mut self, last_key: &[u8]) {
        self.last_key.clear();
        self.last_key.extend_from_slice(last_key);
    }

    /// Adds an entry, which must lie above all entries added before. `hash` is the hash of its user
    /// key.
    pub(in crate::sst) fn add(&mut self, key: InternalKey<'_>, value: Value<'_>, hash: u64) {
        if !self.added.is_empty() {
            self.shared += shared_len(&self.last_key, key.user_key);
        }
        self.keys.extend_from_slice(key.user_key);
        self.heads.extend_from_slice(value.head);
        self.tails.extend_from_slice(value.tail);
        self.added.push(AddedEntry {
            key_len: key.user_key.len() as u32,
            head_len: value.head.len() as u32,
            tail_len: value.tail.len() as u32,
            trailer: key.trailer(),
            hash,
        });
        self.last_key.clear();
        self.last_key.extend_from_slice(key.user_key);
    }

    /// Encodes the block and empties the builder; at least one entry must have been added.
    pub(in crate::sst) fn finish(&mut self) -> BuiltBlock {
        let mut header = self.header();
        let mut body = Vec::with_capacity(self.size() + self.size() / 4);
        let mut restarts = Vec::new();
        if header.has(KEYS_FIXED) {
            self.put_fixed_keys(&header, &mut body);
        } else {
            self.put_entries(&header, &mut body, &mut restarts);
            header.keys_len = body.len() as u32;
        }
        if self.sectioned {
            self.put_arrays(&header, &mut body);
            body.extend_from_slice(&self.heads);
        }
        for at in &restarts {
            body.extend_from_slice(&u32::to_le_bytes(*at));
        }
        if !header.has(KEYS_FIXED) {
            let buckets = self.hash_buckets();
            header.buckets_len = buckets.len() as u32;
            body.extend_from_slice(&buckets);
        }
        if self.sectioned {
            body.extend_from_slice(&self.tails);
        }
        let mut raw = Vec::with_capacity(body.len() + 32);
        header.put(&mut raw);
        raw.append(&mut body);
        let mut hashes: Vec<u64> = self.added.iter().map(|a| a.hash).collect();
        hashes.dedup();
        self.added.clear();
        self.keys.clear();
        self.heads.clear();
        self.tails.clear();
        self.shared = 0;
        BuiltBlock { raw, hashes }
    }

    /// The header, except for the sizes that are known only after encoding.
    fn header(&self) -> BlockHeader {
        let first = self.added[0];
        let all =
            |same: fn(&AddedEntry, &AddedEntry) -> bool| self.added.iter().all(|a| same(a, &first));
        let fixed = self.sectioned && all(|a, b| a.key_len == b.key_len);
        let mut flags = 0;
        for (same, flag) in [
            (all(|a, b| a.trailer == b.trailer), TRAILER_SAME),
            (all(|a, b| a.head_len == b.head_len), HEAD_LEN_SAME),
            (all(|a, b| a.tail_len == b.tail_len), TAIL_LEN_SAME),
            (fixed, KEYS_FIXED),
        ] {
            flags |= if same { flag } else { 0 };
        }
        let first_key = &self.keys[..first.key_len as usize];
        let prefix_len = shared_len(first_key, &self.last_key) as u32;
        BlockHeader {
            sectioned: self.sectioned,
            flags,
            entries: self.added.len() as u32,
            restart_interval: if fixed { 0 } else { RESTART_INTERVAL as u32 },
            trailer_base: self.added.iter().map(|a| a.trailer).min().unwrap_or(0),
            head_len: first.head_len,
            tail_len: first.tail_len,
            prefix_len: if fixed { prefix_len } else { 0 },
            key_width: if fixed { first.key_len - prefix_len } else { 0 },
            heads_len: self.heads.len() as u32,
            tails_len: self.tails.len() as u32,
            ..BlockHeader::default()
        }
    }

    fn put_fixed_keys(&self, header: &BlockHeader, body: &mut Vec<u8>) {
        let prefix = header.prefix_len as usize;
        body.extend_from_slice(&self.keys[..prefix]);
        // Split `keys` by the length of a whole key, which is never 0. The suffixes may be empty:
        // if all entries are versions of one key, the common prefix is the whole key.
        let len = self.added[0].key_len as usize;
        for key in self.keys.chunks_exact(len) {
            body.extend_from_slice(&key[prefix..]);
        }
    }

    /// Appends the prefix-compressed keys; in a row-wise block each key is followed by its value.
    fn put_entries(&self, header: &BlockHeader, body: &mut Vec<u8>, restarts: &mut Vec<u32>) {
        let mut keys = &self.keys[..];
        let mut heads = &self.heads[..];
        let mut tails = &self.tails[..];
        let mut last: &[u8] = &[];
        fn take<'a>(bytes: &mut &'a [u8], len: u32) -> &'a [u8] {
            let (front, rest) = bytes.split_at(len as usize);
            *bytes = rest;
            front
        }
        for (i, a) in self.added.iter().enumerate() {
            let key = take(&mut keys, a.key_len);
            let mut shared = shared_len(last, key);
            if i % RESTART_INTERVAL == 0 {
                restarts.push(body.len() as u32);
                shared = 0;
            }
            last = key;
            varint::put_u64(body, shared as u64);
            varint::put_u64(body, (key.len() - shared) as u64);
            if self.sectioned {
                body.extend_from_slice(&key[shared..]);
                continue;
            }
            if !header.has(TRAILER_SAME) {
                varint::put_u64(body, a.trailer - header.trailer_base);
            }
            if !header.has(HEAD_LEN_SAME) {
                varint::put_u64(body, u64::from(a.head_len));
            }
            if !header.has(TAIL_LEN_SAME) {
                varint::put_u64(body, u64::from(a.tail_len));
            }
            body.extend_from_slice(&key[shared..]);
            body.extend_from_slice(take(&mut heads, a.head_len));
            body.extend_from_slice(take(&mut tails, a.tail_len));
        }
    }

    /// Appends the trailers and value lengths of a sectioned block, except those that are the same
    /// for all entries and so stand in the header.
    fn put_arrays(&self, header: &BlockHeader, body: &mut Vec<u8>) {
        if !header.has(TRAILER_SAME) {
            for a in &self.added {
                body.extend_from_slice(&(a.trailer - header.trailer_base).to_le_bytes());
            }
        }
        if !header.has(HEAD_LEN_SAME) {
            for a in &self.added {
                body.extend_from_slice(&a.head_len.to_le_bytes());
            }
        }
        if !header.has(TAIL_LEN_SAME) {
            for a in &self.added {
                body.extend_from_slice(&a.tail_len.to_le_bytes());
            }
        }
    }

    fn hash_buckets(&self) -> Vec<u8> {
        let restarts = self.added.len().div_ceil(RESTART_INTERVAL);
        if !self.hash_index || !(HASHED_RESTARTS_MIN..=HASHED_RESTARTS_MAX).contains(&restarts) {
            return Vec::new();
        }
        // Four buckets for three entries: a load factor of 0.75.
        let mut buckets = vec![BUCKET_ABSENT; self.added.len() * 4 / 3 + 1];
        for (i, a) in self.added.iter().enumerate() {
            let restart = (i / RESTART_INTERVAL) as u8;
            let at = bucket_of(a.hash, buckets.len());
            let bucket = &mut buckets[at];
            // A bucket has the number of the restart interval in which the keys of the bucket lie.
            // If keys of two intervals fall into one bucket, or versions of one key lie in two
            // intervals, the bucket is marked as a collision.
            *bucket = match *bucket {
                BUCKET_ABSENT => restart,
                same if same == restart => restart,
                _ => BUCKET_COLLISION,
            };
        }
        buckets
    }
}
