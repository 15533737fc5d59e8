//! Blocks that came from the memory pool before their reader needs them.

use super::block_pool::BlockName;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::atomic::{AtomicUsize, Ordering};

const SHARDS: usize = 16;
/// Bytes of blocks that each shard keeps. Older ones go first: their reader has probably given up.
const SHARD_BYTES: usize = 2 << 20;

/// Blocks that a batch has brought, until each is read. They are not in the block cache, because a
/// block there would count as used twice.
#[derive(Default)]
pub(super) struct AnnouncedBlocks {
    shards: [Mutex<Shard>; SHARDS],
    /// While it is 0, nobody takes a lock.
    blocks: AtomicUsize,
}

#[derive(Default)]
struct Shard {
    blocks: VecDeque<(BlockName, Box<[u8]>)>,
    bytes: usize,
}

impl AnnouncedBlocks {
    fn shard(&self, name: &BlockName) -> &Mutex<Shard> {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(name);
        &self.shards[hash as usize % SHARDS]
    }

    /// Keeps a block for the reader that will ask for it.
    pub(super) fn keep(&self, name: BlockName, stored: &[u8]) {
        let mut shard = self.shard(&name).lock();
        if shard.blocks.iter().any(|(other, _)| *other == name) {
            return;
        }
        shard.bytes += stored.len();
        shard.blocks.push_back((name, stored.into()));
        self.blocks.fetch_add(1, Ordering::Relaxed);
        while shard.bytes > SHARD_BYTES
            && let Some((_, oldest)) = shard.blocks.pop_front()
        {
            shard.bytes -= oldest.len();
            self.blocks.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Fills `stored` with a block that came ahead, and forgets the block. Returns whether there
    /// was one of this name and length.
    pub(super) fn take(&self, name: &BlockName, stored: &mut [u8]) -> bool {
        if self.blocks.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let mut shard = self.shard(name).lock();
        let at = shard.blocks.iter().position(|(other, _)| other == name);
        let Some((_, block)) = at.and_then(|at| shard.blocks.remove(at)) else {
            return false;
        };
        shard.bytes -= block.len();
        drop(shard);
        self.blocks.fetch_sub(1, Ordering::Relaxed);
        let fits = block.len() == stored.len();
        if fits {
            stored.copy_from_slice(&block);
        }
        fits
    }

    /// Forgets all blocks.
    pub(super) fn clear(&self) {
        for shard in &self.shards {
            let gone = std::mem::take(&mut *shard.lock());
            self.blocks.fetch_sub(gone.blocks.len(), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests;
