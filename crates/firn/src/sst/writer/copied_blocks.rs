//! Block reuse: data blocks of another file are copied in stored form into the file being written.

use super::buffered_blocks::{BufferedBlock, Content};
use super::{BlockLayout, SstWriter};
use crate::base::{Kind, Result, checksum};
use crate::sst::block::BlockIter;
use crate::sst::block_compression::{Codec, StoredCodec};
use crate::sst::decode_error::DecodeError;
use crate::sst::dictionary::{DICTIONARIES_MAX, Dictionary};
use crate::sst::format::BlockKind;
use crate::sst::stored_block::StoredBlock;
use std::sync::Arc;

/// A block whose dictionary this file does not have yet is copied only if the block's file has at
/// least this many bytes of data blocks from that block on. The following blocks will probably be
/// copied too, so the dictionary adds at most a tenth to the bytes copied.
const BYTES_PER_DICTIONARY: u64 = 160 << 10;

/// A block of fewer raw bytes than the block size divided by this is not reused, but merged with
/// its neighbours.
const PART_MIN: usize = 2;

/// To copy a stored block of an input (block reuse), the writer must end its unfinished block. If
/// the unfinished block is still small, the writer copies the input's block only if it can probably
/// copy many blocks after it, too: their stored bytes together must be at least this many times
/// those of the first copied block.
const BLOCKS_PER_SCRAP: u64 = 8;

impl SstWriter {
    /// Whether [`Self::copy`] may take `block`. The block must have the layout, codec and block
    /// size of this file, and must not be small. This file must have the block's dictionary
    /// already, or the dictionary must be worth copying. `ahead` is the number of stored bytes of
    /// blocks that may be reused from here on: unless it is large, the writer's unfinished block
    /// must not be small. Under ZSTD, the file of `block` must have a tuning. Small files are
    /// written without a trial, and if their blocks were reused again and again, they would never
    /// be tuned. For the same reason, the block's recipe must not be due for a comparison.
    pub fn takes(&self, block: &StoredBlock<'_>, ahead: u64) -> bool {
        let kind = match self.options.layout {
            BlockLayout::RowWise => BlockKind::RowWise,
            BlockLayout::Sectioned => BlockKind::Sectioned,
        };
        let codec = match (self.options.codec, block.header.codec) {
            (_, StoredCodec::None) => true,
            (Codec::Lz4, StoredCodec::Lz4) => true,
            (Codec::Zstd { .. }, StoredCodec::Zstd) => true,
            (Codec::Zstd { .. }, StoredCodec::ZstdDictionary) => {
                // Leave one place free for the dictionary that this file may still train for
                // itself.
                let places = DICTIONARIES_MAX - usize::from(self.buffered.is_some());
                let left = block.reader.data_end() - block.handle.offset;
                block.dictionary.as_ref().is_some_and(|dictionary| {
                    self.carries(dictionary)
                        || (self.dictionaries.len() < places
                            && left >= BYTES_PER_DICTIONARY
                            && !self.has_dictionary_id(dictionary.id()))
                })
            }
            _ => false,
        };
        let size = self.options.block_size;
        let scrap = !self.block.is_empty() && self.block.size() < size / PART_MIN;
        let made_well = match self.options.codec {
            Codec::Zstd { .. } if block.header.codec == StoredCodec::None => block.tuning.is_some(),
            Codec::Zstd { .. } => block.tuning.is_some() && !block.recipe_is_due(),
            _ => true,
        };
        block.header.kind == kind
            && made_well
            && codec
            && block.block_size == size as u64
            && block.header.raw_len >= size / PART_MIN
            && (!scrap || ahead >= BLOCKS_PER_SCRAP * block.len())
    }

    /// Ids are short, so two dictionaries may have the same one. A file must not hold both.
    fn has_dictionary_id(&self, id: u32) -> bool {
        self.dictionaries.iter().any(|d| d.id() == id)
    }

    pub(super) fn carries(&self, dictionary: &Dictionary) -> bool {
        self.dictionaries.iter().any(|d| **d == *dictionary)
    }

    /// Adds all entries of `block` by copying its stored bytes. The entries must lie above all
    /// entries added before. Returns the last user key of the block.
    ///
    /// # Errors
    /// As [`Self::add`]; `Corruption` if the entries contradict the block's counts in the index of
    /// its file.
    pub fn copy(&mut self, block: &StoredBlock<'_>) -> Result<Vec<u8>> {
        let damaged = |damage| block.reader.damaged(damage, block.handle);
        let mut cursor = BlockIter::default();
        cursor.enter(Arc::clone(&block.block));
        let mut on = cursor.seek_to_first().map_err(damaged)?;
        if on && !self.block.is_empty() {
            self.end_block(Some(cursor.key().user_key))?;
        }
        let mut copied = BufferedBlock::default();
        while on {
            let (key, value) = (cursor.key(), cursor.value());
            let raw_len = key.user_key.len() + value.len();
            let index = self.check(key, raw_len)?;
            if copied.stats.entries == 0 {
                self.end_copied(Some(key.user_key))?;
            }
            let delete = matches!(key.kind, Kind::Delete | Kind::RangeDelete);
            self.count(index, key, value)?;
            copied.add(index, key.seqno, delete, raw_len);
            if key.user_key != self.block.last_key() || copied.hashes.is_empty() {
                copied.hashes.push(checksum::xxh3(key.user_key));
                self.block.pass(key.user_key);
            }
            self.last_seqno = key.seqno;
            on = cursor.next().map_err(damaged)?;
        }
        if copied.stats != block.stats {
            return Err(damaged(DecodeError::Corrupt(
                "block contradicts its index entry",
            )));
        }
        copied.content = Content::Stored {
            bytes: block.bytes.to_vec(),
            from: (block.reader.file_id(), block.handle.offset),
            raw_len: block.header.raw_len,
        };
        if let Some(dictionary) = &block.dictionary
            && !self.carries(dictionary)
        {
            self.dictionaries.push(Arc::clone(dictionary));
        }
        if block.header.codec != StoredCodec::None {
            self.copied_recipe = block.recipe();
            self.record_copied_recipe();
        }
        self.copied = Some(copied);
        Ok(self.block.last_key().to_vec())
    }

    /// Passes on the block copied last, which waited for the user key after it (`None`: the file
    /// ends) to get its separator.
    pub(super) fn end_copied(&mut self, next: Option<&[u8]>) -> Result<()> {
        match self.copied.take() {
            Some(copied) => self.hand_on(copied, next),
            None => Ok(()),
        }
    }
}
