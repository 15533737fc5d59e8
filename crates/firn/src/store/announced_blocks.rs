//! Blocks that came from the memory pool before their reader needs them.

use super::block_pool::BlockName;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::atomic::{AtomicUsize, Ordering};

const SHARDS: usize = 16;
/// Bytes that each shard keeps. Older announcements go first: their reader has probably given up.
const SHARD_BYTES: usize = 2 << 20;
/// Bytes that an announcement takes beside those of its block, with the entries of map and queue.
const OVERHEAD: usize = 256;
/// How long an announcement is kept. Many have no reader: a get stops at the first run that has its
/// key, a statement is killed, another session has cached the block meanwhile.
const KEPT_US: u64 = 1_000_000;

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
pub enum AnnouncedFrom {
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

/// Announcements, each of which costs the same however many there are.
#[derive(Default)]
struct Shard {
    /// With the number of the announcement.
    blocks: HashMap<BlockName, (u64, AnnouncedFrom)>,
    /// Number and time of each announcement, ascending, with some that were taken.
    order: VecDeque<(u64, u64, BlockName)>,
    next: u64,
    bytes: usize,
}

impl Shard {
    fn remove(&mut self, name: &BlockName) -> Option<AnnouncedFrom> {
        let (_, from) = self.blocks.remove(name)?;
        self.bytes -= from.bytes();
        Some(from)
    }

    /// Drops what is too old or too much.
    fn tidy(&mut self, now_us: u64) {
        while let Some((number, at_us, name)) = self.order.front() {
            let is_kept = self.blocks.get(name).is_some_and(|(n, _)| n == number);
            let expired = now_us.saturating_sub(*at_us) > KEPT_US;
            if is_kept && !expired && self.bytes <= SHARD_BYTES {
                break;
            }
            if let Some((_, _, name)) = self.order.pop_front()
                && is_kept
            {
                self.remove(&name);
            }
        }
        // Those in the middle that were taken: seldom, so that each costs little.
        if self.order.len() > 2 * self.blocks.len() + SHARDS {
            let blocks = &self.blocks;
            self.order.retain(|(number, _, name)| {
                blocks.get(name).is_some_and(|(kept, _)| kept == number)
            });
        }
    }
}

impl AnnouncedBlocks {
    fn shard(&self, name: &BlockName) -> &Mutex<Shard> {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(name);
        &self.shards[hash as usize % SHARDS]
    }

    /// Does something with a shard, and corrects the number of blocks.
    fn with<T>(&self, shard: &mut Shard, f: impl FnOnce(&mut Shard) -> T) -> T {
        let before = shard.blocks.len();
        let done = f(shard);
        let after = shard.blocks.len();
        self.blocks
            .fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
        done
    }

    /// Keeps an announcement for the reader that will ask for the block.
    pub(super) fn keep(&self, name: BlockName, from: AnnouncedFrom, now_us: u64) {
        let mut shard = self.shard(&name).lock();
        self.with(&mut shard, |shard| {
            if !shard.blocks.contains_key(&name) {
                let number = shard.next;
                shard.next += 1;
                shard.bytes += from.bytes();
                shard.blocks.insert(name, (number, from));
                shard.order.push_back((number, now_us, name));
            }
            shard.tidy(now_us);
        });
    }

    /// Takes the announcement of a block away, if there is one.
    pub(super) fn take(&self, name: &BlockName) -> Option<AnnouncedFrom> {
        if self.blocks.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut shard = self.shard(name).lock();
        self.with(&mut shard, |shard| shard.remove(name))
    }

    /// Forgets all announcements.
    pub(super) fn clear(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            self.with(&mut shard, std::mem::take);
        }
    }
}

#[cfg(test)]
mod tests;
