//! The table of fingerprints: which blocks are probably in the pool.
//!
//! A cuckoo filter. A block has a fingerprint of 16 bits and two buckets of four places; the other
//! bucket follows from either one and the fingerprint, so fingerprints can move without their
//! names. Unlike a Bloom filter it forgets what is removed. With 95 of 100 places taken it has 2.1
//! bytes a block, and one of 8,000 unknown names seems known.
//!
//! A table is full at 95 of 100 places: then [`Fingerprints::insert`] refuses, because the search
//! for
//! a place would move ever more fingerprints; [`crate::known`] begins another one.
//!
//! A bucket is one atomic word, so lookups take no lock. While a fingerprint moves, a lookup may
//! miss it, which costs a read of the local file.
//!
//! Rejected: a power of two of buckets, which wastes up to half of the table. The other bucket is
//! `(hash(fingerprint) − bucket) mod buckets`, which is its own inverse for any number.

use crate::random::mixed;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Places of a bucket.
pub const WAYS: usize = 4;
/// Fingerprints that move for one that comes, before one is dropped.
const MOVES_MAX: usize = 256;
/// Places of 100 that may be taken.
const FULL_PERCENT: u64 = 95;

/// A table.
#[derive(Default)]
pub struct Fingerprints {
    buckets: Box<[AtomicU64]>,
    len: AtomicU64,
    moves: AtomicU64,
}

impl Fingerprints {
    /// A table with room for `blocks`, none if there is no memory for it.
    pub fn new(blocks: u64) -> Option<Self> {
        Self::with_buckets(Self::buckets_for(blocks))
    }

    /// A table of so many buckets, none if there is no memory for it.
    pub fn with_buckets(count: u64) -> Option<Self> {
        let count = usize::try_from(count).ok()?;
        let mut buckets = Vec::new();
        buckets.try_reserve_exact(count).ok()?;
        buckets.resize_with(count, AtomicU64::default);
        Some(Self {
            buckets: buckets.into(),
            ..Self::default()
        })
    }

    /// Buckets of a table with room for `blocks`.
    pub fn buckets_for(blocks: u64) -> u64 {
        (blocks.saturating_mul(20) / 19 / WAYS as u64 + 1).max(64)
    }

    /// Number of buckets. Tables of one number understand each other's images.
    pub fn buckets(&self) -> u64 {
        self.buckets.len() as u64
    }

    /// Fingerprints in the table.
    pub fn len(&self) -> u64 {
        self.len.load(Relaxed)
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> u64 {
        self.buckets() * 8
    }

    /// Whether the block with this [`crate::name::Name::short`] is probably in the pool.
    pub fn contains(&self, short: u64) -> bool {
        let (fingerprint, bucket) = self.home(short);
        self.has(bucket, fingerprint) || self.has(self.other(bucket, fingerprint), fingerprint)
    }

    /// Adds a block. A block that seems to be there already is not added again. Returns false, and
    /// adds nothing, if the table is full.
    pub fn insert(&self, short: u64) -> bool {
        if self.is_full() {
            return self.contains(short);
        }
        let (fingerprint, bucket) = self.home(short);
        self.insert_at(bucket, fingerprint);
        true
    }

    /// Adds a block if one of its buckets has room: a few instructions in any case.
    pub fn insert_if_room(&self, short: u64) {
        let (fingerprint, bucket) = self.home(short);
        self.insert_into(bucket, fingerprint);
    }

    fn is_full(&self) -> bool {
        self.len() * 100 >= self.buckets() * WAYS as u64 * FULL_PERCENT
    }

    /// Removes a block, or one of the same fingerprint. Returns whether there was one.
    pub fn remove(&self, short: u64) -> bool {
        let (fingerprint, bucket) = self.home(short);
        [bucket, self.other(bucket, fingerprint)]
            .into_iter()
            .any(|bucket| self.replace(bucket, fingerprint, 0))
    }

    /// Appends the buckets from `first` on, at most `count` of them, to `out`, 8 bytes each.
    pub fn write_image(&self, first: u64, count: u64, out: &mut Vec<u8>) {
        for bucket in self
            .buckets
            .iter()
            .skip(first as usize)
            .take(count as usize)
        {
            out.extend_from_slice(&bucket.load(Relaxed).to_le_bytes());
        }
    }

    /// Adds what [`Self::write_image`] of a table with as many buckets has written, as far as
    /// there is
    /// room without moving others.
    pub fn add_image(&self, first: u64, image: &[u8]) {
        for (bucket, bytes) in (first as usize..self.buckets.len()).zip(image.chunks_exact(8)) {
            let word = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
            for fingerprint in places(word).filter(|fingerprint| *fingerprint != 0) {
                self.insert_into(bucket, fingerprint);
            }
        }
    }

    /// The fingerprint, never 0, and a bucket of a block.
    fn home(&self, short: u64) -> (u16, usize) {
        let fingerprint = (short >> 48) as u16;
        let scaled = (u128::from(short << 16) * u128::from(self.buckets())) >> 64;
        (fingerprint.max(1), scaled as usize)
    }

    fn other(&self, bucket: usize, fingerprint: u16) -> usize {
        let hash = mixed(u64::from(fingerprint)) % self.buckets();
        ((hash + self.buckets() - bucket as u64) % self.buckets()) as usize
    }

    fn has(&self, bucket: usize, fingerprint: u16) -> bool {
        places(self.buckets[bucket].load(Relaxed)).any(|place| place == fingerprint)
    }

    /// Returns whether the fingerprint is in one of its buckets now.
    fn insert_into(&self, bucket: usize, fingerprint: u16) -> bool {
        let other = self.other(bucket, fingerprint);
        self.has(bucket, fingerprint)
            || self.has(other, fingerprint)
            || self.replace(bucket, 0, fingerprint)
            || self.replace(other, 0, fingerprint)
    }

    fn insert_at(&self, bucket: usize, fingerprint: u16) {
        if self.insert_into(bucket, fingerprint) {
            return;
        }
        let (mut bucket, mut fingerprint) = (bucket, fingerprint);
        for _ in 0..MOVES_MAX {
            let way = mixed(self.moves.fetch_add(1, Relaxed)) as usize % WAYS;
            fingerprint = self.exchange(bucket, way, fingerprint);
            if fingerprint == 0 {
                // Another thread has emptied the place meanwhile.
                self.len.fetch_add(1, Relaxed);
                return;
            }
            bucket = self.other(bucket, fingerprint);
            if self.replace(bucket, 0, fingerprint) {
                return;
            }
        }
        // The last one is forgotten, and the table is as long as before.
    }

    /// Replaces one `old` of a bucket, if there is one. Keeps count of what is not 0.
    fn replace(&self, bucket: usize, old: u16, new: u16) -> bool {
        let change = |word| {
            let way = places(word).position(|place| place == old)?;
            Some(with_place(word, way, new))
        };
        let done = self.buckets[bucket]
            .fetch_update(Relaxed, Relaxed, change)
            .is_ok();
        if done && old == 0 {
            self.len.fetch_add(1, Relaxed);
        } else if done && new == 0 {
            self.len.fetch_sub(1, Relaxed);
        }
        done
    }

    /// Puts a fingerprint into a place, and returns what was there.
    fn exchange(&self, bucket: usize, way: usize, fingerprint: u16) -> u16 {
        let change = |word| Some(with_place(word, way, fingerprint));
        match self.buckets[bucket].fetch_update(Relaxed, Relaxed, change) {
            Ok(word) | Err(word) => (word >> (16 * way)) as u16,
        }
    }
}

fn places(word: u64) -> impl Iterator<Item = u16> {
    (0..WAYS).map(move |way| (word >> (16 * way)) as u16)
}

fn with_place(word: u64, way: usize, fingerprint: u16) -> u64 {
    word & !(0xffff << (16 * way)) | u64::from(fingerprint) << (16 * way)
}

#[cfg(test)]
mod tests;
