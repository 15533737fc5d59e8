//! Raw blocks on their way to the file.

use crate::base::{IndexId, Seqno};
use crate::sst::codec::Compressor;
use crate::sst::index::BlockStats;

/// The bytes of a block.
pub(super) enum Content {
    /// As built, to be compressed.
    Raw(Vec<u8>),
    /// As stored at this place of another file, and its raw length.
    Stored {
        bytes: Vec<u8>,
        from: (u64, u64),
        raw_len: usize,
    },
}

impl Default for Content {
    fn default() -> Self {
        Self::Raw(Vec::new())
    }
}

/// A block and what index, filter and properties will say about it.
#[derive(Default)]
pub(super) struct PendingBlock {
    pub(super) content: Content,
    pub(super) separator: Vec<u8>,
    pub(super) hashes: Vec<u64>,
    pub(super) stats: BlockStats,
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

    /// Its raw bytes, if it is to be compressed.
    pub(super) fn raw(&self) -> Option<&[u8]> {
        match &self.content {
            Content::Raw(raw) => Some(raw),
            Content::Stored { .. } => None,
        }
    }

    /// Its stored bytes, if it was copied.
    pub(super) fn stored_len(&self) -> u64 {
        match &self.content {
            Content::Raw(_) => 0,
            Content::Stored { bytes, .. } => bytes.len() as u64,
        }
    }

    /// Divides `stored` bytes among the indexes in proportion to their raw bytes; the last one gets
    /// the rounding error.
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
/// Raw bytes from which a tuning must come before other files take it over.
pub(super) const RECIPE_BYTES: usize = TUNING_BYTES;
/// One block in so many is compressed at once, to estimate the stored size of the waiting ones.
const TRIAL_STEP: usize = 16;

/// Blocks that wait until it is known how to compress them, and copied ones between them.
pub(super) struct Pending {
    blocks: Vec<PendingBlock>,
    full_bytes: usize,
    raw_bytes: usize,
    /// Stored bytes of the copied blocks that wait.
    stored_bytes: usize,
    /// Raw bytes of all copied blocks of the file.
    copied_bytes: usize,
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
            stored_bytes: 0,
            copied_bytes: 0,
            trial_raw: 0,
            trial_stored: 0,
        }
    }

    /// Whether no block waits to be compressed. Then copied blocks go straight to the file.
    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Notes a copied block of `raw_len` bytes, waiting or not.
    pub(super) fn note_copied(&mut self, raw_len: usize) {
        self.copied_bytes += raw_len;
    }

    pub(super) fn push(&mut self, block: PendingBlock, compressor: &mut Compressor) {
        match &block.content {
            Content::Raw(raw) => {
                if self.blocks.len().is_multiple_of(TRIAL_STEP) || self.trial_raw == 0 {
                    self.trial_raw += raw.len();
                    self.trial_stored += compressor.other(raw).2.len();
                }
                self.raw_bytes += raw.len();
            }
            Content::Stored { bytes, .. } => self.stored_bytes += bytes.len(),
        }
        self.blocks.push(block);
    }

    /// Whether enough blocks wait. If there is a recipe, reused blocks that do not wait count as
    /// well: once they are the majority, the recipe is used.
    pub(super) fn is_full(&self, recipe: bool) -> bool {
        let copied = match recipe {
            true => self.copied_bytes,
            false => self.stored_bytes,
        };
        self.raw_bytes + copied >= self.full_bytes
    }

    /// Whether more was copied than is to be compressed.
    pub(super) fn is_mostly_copied(&self) -> bool {
        self.copied_bytes > self.raw_bytes
    }

    /// Stored size of the waiting blocks, roughly.
    pub(super) fn estimated_size(&self) -> u64 {
        let ratio = self.trial_stored as f64 / self.trial_raw.max(1) as f64;
        (self.raw_bytes as f64 * ratio) as u64 + self.stored_bytes as u64
    }

    pub(super) fn into_blocks(self) -> Vec<PendingBlock> {
        self.blocks
    }
}
