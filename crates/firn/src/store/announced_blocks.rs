//! Blocks that came from the memory pool before their reader needs them.

use super::block_pool::BlockName;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::atomic::{AtomicUsize, Ordering};

const SHARDS: usize = 16;
/// Bytes that each shard keeps. Older announcements go first: their reader has probably given up.
const SHARD_BYTES: usize = 2 << 20;
/// Bytes that an announcement takes beside those of its block.
const OVERHEAD: usize = 64;

/// Blocks that a batch has brought, until each is read. They are not in the block cache, because a
/// block there would count as used twice. Also blocks whose files are being read for a batch: their
/// readers go to the file at once, and the rest of the time that they wait says nothing about it.
#[derive(Default)]
pub(super) struct AnnouncedBlocks {
    shards: [Mutex<Shard>; SHARDS],
    /// While it is 0, nobody takes a lock.
    blocks: AtomicUsize,
}

/// Where an announced block comes from.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AnnouncedFrom {
    /// From the pool: the bytes.
    Pool(Box<[u8]>),
    /// From its file.
    File,
}

impl AnnouncedFrom {
    fn bytes(&self) -> usize {
        OVERHEAD
            + match self {
                Self::Pool(stored) => stored.len(),
                Self::File => 0,
            }
    }
}

#[derive(Default)]
struct Shard {
    blocks: VecDeque<(BlockName, AnnouncedFrom)>,
    bytes: usize,
}

impl AnnouncedBlocks {
    fn shard(&self, name: &BlockName) -> &Mutex<Shard> {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(name);
        &self.shards[hash as usize % SHARDS]
    }

    /// Keeps an announcement for the reader that will ask for the block.
    pub(super) fn keep(&self, name: BlockName, from: AnnouncedFrom) {
        let mut shard = self.shard(&name).lock();
        if shard.blocks.iter().any(|(other, _)| *other == name) {
            return;
        }
        shard.bytes += from.bytes();
        shard.blocks.push_back((name, from));
        self.blocks.fetch_add(1, Ordering::Relaxed);
        while shard.bytes > SHARD_BYTES
            && let Some((_, oldest)) = shard.blocks.pop_front()
        {
            shard.bytes -= oldest.bytes();
            self.blocks.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Takes the announcement of a block away, if there is one.
    pub(super) fn take(&self, name: &BlockName) -> Option<AnnouncedFrom> {
        if self.blocks.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut shard = self.shard(name).lock();
        let at = shard.blocks.iter().position(|(other, _)| other == name)?;
        let (_, from) = shard.blocks.remove(at)?;
        shard.bytes -= from.bytes();
        drop(shard);
        self.blocks.fetch_sub(1, Ordering::Relaxed);
        Some(from)
    }

    /// Forgets all announcements.
    pub(super) fn clear(&self) {
        for shard in &self.shards {
            let gone = std::mem::take(&mut *shard.lock());
            self.blocks.fetch_sub(gone.blocks.len(), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests;
