//! Complete data blocks that the writer has not appended to the file yet.

use crate::base::{IndexId, Seqno};
use crate::sst::block_compression::Compressor;
use crate::sst::index::BlockStats;

/// The content of a block.
pub(super) enum Content {
    /// Raw bytes, still to be compressed.
    Raw(Vec<u8>),
    /// A block copied from another file, in stored form. `from` is its file id and offset there.
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

/// A block, with the facts about it that index, filter and properties will store.
#[derive(Default)]
pub(super) struct BufferedBlock {
    pub(super) content: Content,
    pub(super) separator: Vec<u8>,
    pub(super) hashes: Vec<u64>,
    pub(super) stats: BlockStats,
    /// Raw bytes of the block per index, ascending.
    by_index: Vec<(IndexId, u64)>,
}

impl BufferedBlock {
    pub(super) fn add(&mut self, index: IndexId, seqno: Seqno, delete: bool, raw_len: usize) {
        self.stats.add_entry(seqno, delete);
        match self.by_index.last_mut() {
            Some((last, bytes)) if *last == index => *bytes += raw_len as u64,
            _ => self.by_index.push((index, raw_len as u64)),
        }
    }

    /// The raw bytes, unless the block was copied in stored form.
    pub(super) fn raw(&self) -> Option<&[u8]> {
        match &self.content {
            Content::Raw(raw) => Some(raw),
            Content::Stored { .. } => None,
        }
    }

    /// Number of stored bytes if the block was copied, else 0.
    pub(super) fn stored_len(&self) -> u64 {
        match &self.content {
            Content::Raw(_) => 0,
            Content::Stored { bytes, .. } => bytes.len() as u64,
        }
    }

    /// Divides `stored` bytes of the block among its indexes in proportion to their raw bytes. The
    /// last index gets the rounding error.
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

/// Raw bytes that the writer collects in memory before it trains a dictionary.
const DICTIONARY_BUFFER_BYTES: usize = 8 << 20;
/// Raw bytes to collect if only the tuning is wanted.
const TUNING_BUFFER_BYTES: usize = 256 << 10;
/// The tuning of a file says how its blocks are compressed; a trial with the first blocks chooses
/// it. The file's properties store the tuning only if these blocks have at least this many raw
/// bytes, because block reuse passes a stored tuning on to other files.
pub(super) const RECIPE_BYTES: usize = TUNING_BUFFER_BYTES;
/// One in this many of the collected raw blocks is compressed at once, only to estimate the stored
/// size of all of them.
const TRIAL_STEP: usize = 16;

/// Blocks that wait until a trial has shown how to compress them, and the copied blocks between
/// them.
pub(super) struct BufferedBlocks {
    blocks: Vec<BufferedBlock>,
    full_bytes: usize,
    raw_bytes: usize,
    /// Stored bytes of the copied blocks that wait.
    stored_bytes: usize,
    /// Raw bytes of all copied blocks of the file, those already appended included.
    copied_bytes: usize,
    trial_raw: usize,
    trial_stored: usize,
}

impl BufferedBlocks {
    /// `trains` says whether a dictionary is wanted, which needs more raw bytes than tuning alone.
    pub(super) fn new(trains: bool) -> Self {
        Self {
            blocks: Vec::new(),
            full_bytes: if trains {
                DICTIONARY_BUFFER_BYTES
            } else {
                TUNING_BUFFER_BYTES
            },
            raw_bytes: 0,
            stored_bytes: 0,
            copied_bytes: 0,
            trial_raw: 0,
            trial_stored: 0,
        }
    }

    /// Whether no block waits. If so, a copied block is appended to the file at once.
    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Counts a copied block of `raw_len` raw bytes, whether it waits or not.
    pub(super) fn note_copied(&mut self, raw_len: usize) {
        self.copied_bytes += raw_len;
    }

    pub(super) fn push(&mut self, block: BufferedBlock, compressor: &mut Compressor) {
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

    /// Whether enough bytes are collected to choose the tuning (how the file's blocks are
    /// compressed) and the dictionary. `recipe` says whether the files from which blocks were
    /// copied have stored a tuning that this file can use. If so, all copied blocks count as
    /// collected bytes, also those already appended: once they are the majority, the file uses
    /// their tuning and needs no more raw blocks for a trial. Otherwise only the copied blocks that
    /// wait count.
    pub(super) fn is_full(&self, recipe: bool) -> bool {
        let copied = match recipe {
            true => self.copied_bytes,
            false => self.stored_bytes,
        };
        self.raw_bytes + copied >= self.full_bytes
    }

    /// Whether the copied blocks have more raw bytes than the blocks that wait to be compressed.
    pub(super) fn is_mostly_copied(&self) -> bool {
        self.copied_bytes > self.raw_bytes
    }

    /// Approximate stored size in bytes of the waiting blocks.
    pub(super) fn estimated_size(&self) -> u64 {
        let ratio = self.trial_stored as f64 / self.trial_raw.max(1) as f64;
        (self.raw_bytes as f64 * ratio) as u64 + self.stored_bytes as u64
    }

    pub(super) fn into_blocks(self) -> Vec<BufferedBlock> {
        self.blocks
    }
}
