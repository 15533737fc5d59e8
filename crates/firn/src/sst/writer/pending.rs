//! Raw blocks on their way to the file.

use crate::base::{IndexId, Seqno};
use crate::sst::codec::Compressor;
use crate::sst::index::Stats;

/// A raw block and what index, filter and properties will say about it.
#[derive(Default)]
pub(super) struct PendingBlock {
    pub(super) raw: Vec<u8>,
    pub(super) separator: Vec<u8>,
    pub(super) hashes: Vec<u64>,
    pub(super) stats: Stats,
    /// Raw bytes per index, ascending.
    by_index: Vec<(IndexId, u64)>,
}

impl PendingBlock {
    pub(super) fn add(&mut self, index: IndexId, seqno: Seqno, delete: bool, raw_len: usize) {
        self.stats.add_entry(seqno, delete);
        match self.by_index.last_mut() {
            Some((last, bytes)) if *last == index => *bytes += raw_len as u64,
            _ => self.by_index.push((index, raw_len as u64)),
        }
    }

    /// Deals `stored` bytes out to the indexes in proportion to their raw bytes; the last one gets
    /// what rounding left over.
    pub(super) fn shares(&self, stored: u64) -> impl Iterator<Item = (IndexId, u64)> {
        let total: u64 = self.by_index.iter().map(|(_, bytes)| bytes).sum();
        let (mut raw_left, mut stored_left) = (total, stored);
        self.by_index.iter().map(move |&(index, bytes)| {
            let share = (u128::from(stored_left) * u128::from(bytes))
                .checked_div(u128::from(raw_left))
                .unwrap_or(0) as u64;
            raw_left -= bytes;
            stored_left -= share;
            (index, share)
        })
    }
}

/// Training takes this many raw bytes at most, and holds that much memory.
const TRAINING_BYTES: usize = 8 << 20;
/// Tuning alone does with less.
const TUNING_BYTES: usize = 256 << 10;
/// Every so many blocks one is compressed, to know how large the waiting ones will be.
const TRIAL_STEP: usize = 16;

/// Blocks that wait until it is known how to compress them.
pub(super) struct Pending {
    blocks: Vec<PendingBlock>,
    full_bytes: usize,
    raw_bytes: usize,
    trial_raw: usize,
    trial_stored: usize,
}

impl Pending {
    /// `trains`: whether a dictionary is wanted.
    pub(super) fn new(trains: bool) -> Self {
        Self {
            blocks: Vec::new(),
            full_bytes: if trains { TRAINING_BYTES } else { TUNING_BYTES },
            raw_bytes: 0,
            trial_raw: 0,
            trial_stored: 0,
        }
    }

    pub(super) fn push(&mut self, block: PendingBlock, compressor: &mut Compressor) {
        if self.blocks.len().is_multiple_of(TRIAL_STEP) {
            self.trial_raw += block.raw.len();
            self.trial_stored += compressor.other(&block.raw).2.len();
        }
        self.raw_bytes += block.raw.len();
        self.blocks.push(block);
    }

    pub(super) fn is_full(&self) -> bool {
        self.raw_bytes >= self.full_bytes
    }

    /// Stored size of the waiting blocks, roughly.
    pub(super) fn estimated_size(&self) -> u64 {
        let ratio = self.trial_stored as f64 / self.trial_raw.max(1) as f64;
        (self.raw_bytes as f64 * ratio) as u64
    }

    pub(super) fn into_blocks(self) -> Vec<PendingBlock> {
        self.blocks
    }
}
