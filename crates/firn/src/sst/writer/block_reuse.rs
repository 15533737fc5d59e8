//! Block reuse: data blocks of another file go into this one as they are stored.

use super::pending::{Content, PendingBlock};
use super::{BlockLayout, SstWriter};
use crate::base::{Kind, Result, checksum};
use crate::sst::block::BlockIter;
use crate::sst::codec::{Codec, StoredCodec};
use crate::sst::decode_error::DecodeError;
use crate::sst::dictionary::{DICTIONARIES_MAX, Dictionary};
use crate::sst::format::BlockKind;
use crate::sst::stored_block::StoredBlock;
use std::sync::Arc;

/// A new dictionary is taken over if so many stored bytes may be reused from here on: it then adds
/// a tenth to the file at most.
const BYTES_PER_DICTIONARY: u64 = 160 << 10;

/// Divisor of the block size: smaller blocks are not reused, but merged with their neighbours.
const PART_MIN: usize = 2;

/// A block whose reuse would end the unfinished block early is reused only if this many times its
/// bytes may be reused from there on.
const BLOCKS_PER_SCRAP: u64 = 8;

impl SstWriter {
    /// Whether [`Self::copy`] may take `block`: it has the form of this file's blocks, leaves no
    /// small block behind, and its dictionary fits. Under ZSTD its file must have a tuning: blocks
    /// of small files, which are written without trials, would otherwise never be tuned. `ahead`:
    /// stored bytes of blocks that may be reused from here on.
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
                // One of the places may be needed for the file's own dictionary.
                let places = DICTIONARIES_MAX - usize::from(self.pending.is_some());
                let left = block.reader.data_end() - block.handle.offset;
                block.dictionary.as_ref().is_some_and(|dictionary| {
                    self.carries(dictionary)
                        || (self.dictionaries.len() < places && left >= BYTES_PER_DICTIONARY)
                })
            }
            _ => false,
        };
        let size = self.options.block_size;
        let scrap = !self.block.is_empty() && self.block.size() < size / PART_MIN;
        let made_well = block.tuning.is_some() || !matches!(self.options.codec, Codec::Zstd { .. });
        block.header.kind == kind
            && made_well
            && codec
            && block.block_size == size as u64
            && block.header.raw_len >= size / PART_MIN
            && (!scrap || ahead >= BLOCKS_PER_SCRAP * block.len())
    }

    pub(super) fn carries(&self, dictionary: &Dictionary) -> bool {
        self.dictionaries.iter().any(|d| d.id() == dictionary.id())
    }

    /// Adds all entries of `block`, which lie above all added before, by taking over its stored
    /// bytes. Returns its last user key.
    ///
    /// # Errors
    /// As [`Self::add`]; corruption, if the block contradicts the index of its file.
    pub fn copy(&mut self, block: &StoredBlock<'_>) -> Result<Vec<u8>> {
        let damaged = |damage| block.reader.damaged(damage, block.handle);
        let mut cursor = BlockIter::default();
        cursor.enter(Arc::clone(&block.block));
        let mut on = cursor.seek_to_first().map_err(damaged)?;
        if on && !self.block.is_empty() {
            self.end_block(Some(cursor.key().user_key))?;
        }
        let mut copied = PendingBlock::default();
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
            self.recipe = block
                .tuning
                .map(|tuning| (tuning, block.dictionary.clone()));
        }
        self.copied = Some(copied);
        Ok(self.block.last_key().to_vec())
    }

    /// Passes on the block reused last, if it waits for the next key.
    pub(super) fn end_copied(&mut self, next: Option<&[u8]>) -> Result<()> {
        match self.copied.take() {
            Some(copied) => self.hand_on(copied, next),
            None => Ok(()),
        }
    }
}
