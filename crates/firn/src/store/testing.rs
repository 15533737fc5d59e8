//! A memory pool of a map, for tests of its callers.

use super::block_pool::{BlockName, BlockPool, PoolOutlook, WantedBlock};
use crate::env::ReadClass;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A pool that has what was put, and takes what it is offered.
#[derive(Default)]
pub struct MapPool {
    blocks: Mutex<HashMap<BlockName, Vec<u8>>>,
    calls: Mutex<Vec<PoolCall>>,
    /// Bytes come back with a flipped bit.
    pub lies: AtomicBool,
    /// Nothing comes back, although it seems to be there.
    pub hangs: AtomicBool,
    /// Blocks with these last digits of their offset are on a node that is not asked.
    pub down: Mutex<Vec<u64>>,
    /// Asking does not pay.
    pub slow: AtomicBool,
    /// Asking does not pay, and each get of one block is a try.
    pub tried: AtomicBool,
    /// The next puts that find no room.
    pub full: AtomicUsize,
    /// Reads of the pool whose time was noted.
    pub pool_reads: AtomicUsize,
    /// Reads of files whose time was noted.
    pub file_reads: AtomicUsize,
}

/// A call of a [`MapPool`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolCall {
    /// A get of so many blocks, of which so many came back.
    Get(ReadClass, usize, usize),
    /// A block that was read from a file.
    Offer(ReadClass),
    /// A block of the output of a compaction.
    Put,
    /// A block that was there.
    Delete,
}

impl MapPool {
    /// The calls since the last call of this function.
    pub fn take_calls(&self) -> Vec<PoolCall> {
        std::mem::take(&mut self.calls.lock())
    }

    fn is_down(&self, name: &BlockName) -> bool {
        let BlockName::Block { offset, .. } = *name else {
            return false;
        };
        self.down.lock().contains(&(offset % 10))
    }

    /// Number of blocks.
    pub fn len(&self) -> usize {
        self.blocks.lock().len()
    }

    /// Changes the bytes of all blocks.
    pub fn change(&self, mut f: impl FnMut(&BlockName, &mut Vec<u8>)) {
        self.blocks
            .lock()
            .iter_mut()
            .for_each(|(name, stored)| f(name, stored));
    }

    /// Forgets blocks for which `keep` returns false; it gets their numbers, in no order.
    pub fn retain(&self, mut keep: impl FnMut(usize) -> bool) {
        let mut number = 0;
        self.blocks.lock().retain(|_, _| {
            number += 1;
            keep(number - 1)
        });
    }
}

impl BlockPool for MapPool {
    fn probably_has(&self, name: &BlockName) -> bool {
        self.blocks.lock().contains_key(name)
    }

    fn outlook(&self, name: &BlockName, _: ReadClass, _: bool) -> PoolOutlook {
        if !self.probably_has(name) || self.is_down(name) {
            PoolOutlook::Passes
        } else if self.slow.load(Ordering::Relaxed) || self.tried.load(Ordering::Relaxed) {
            PoolOutlook::Tries
        } else {
            PoolOutlook::Asks
        }
    }

    fn get(
        &self,
        blocks: &[WantedBlock],
        class: ReadClass,
        is_right: &dyn Fn(usize, &[u8]) -> bool,
        found: &mut dyn FnMut(usize, &[u8]),
    ) {
        let mut came = 0;
        for (number, block) in blocks.iter().enumerate() {
            let stored = self.blocks.lock().get(&block.name).cloned();
            let silent = self.hangs.load(Ordering::Relaxed)
                || self.tried.load(Ordering::Relaxed) && blocks.len() > 1
                || self.slow.load(Ordering::Relaxed)
                || self.is_down(&block.name);
            let Some(mut stored) = stored.filter(|_| !silent) else {
                continue;
            };
            if self.lies.load(Ordering::Relaxed) {
                stored[block.len / 2] ^= 1;
            }
            if stored.len() == block.len && is_right(number, &stored) {
                found(number, &stored);
                came += 1;
            } else {
                self.delete(&block.name);
            }
        }
        self.calls
            .lock()
            .push(PoolCall::Get(class, blocks.len(), came));
    }

    fn offer(&self, name: &BlockName, class: ReadClass, stored: &[u8]) {
        self.calls.lock().push(PoolCall::Offer(class));
        self.blocks.lock().insert(*name, stored.to_vec());
    }

    fn put(&self, name: &BlockName, stored: &[u8]) -> bool {
        let less = |full: usize| full.checked_sub(1);
        let full = self
            .full
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        if full.is_ok() {
            return false;
        }
        self.calls.lock().push(PoolCall::Put);
        self.blocks.lock().insert(*name, stored.to_vec());
        true
    }

    fn delete(&self, name: &BlockName) {
        if self.blocks.lock().remove(name).is_some() {
            self.calls.lock().push(PoolCall::Delete);
        }
    }

    fn note_pool_read(&self, _: ReadClass, _: u64) {
        self.pool_reads.fetch_add(1, Ordering::Relaxed);
    }

    fn note_file_read(&self, _: ReadClass, _: u64) {
        self.file_reads.fetch_add(1, Ordering::Relaxed);
    }
}
