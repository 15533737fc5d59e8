//! Stored data blocks that a compaction copies from one file to another without compressing them
//! again.
//!
//! The new file also needs the dictionary that the block was compressed with (the block's header
//! has its id, and a file may hold several), the hashes of its keys for the filter, and its counts
//! for the index and the properties. The keys are known only after decoding, so a reused block is
//! decoded once. Block reuse saves merging, building and compressing.

use super::block::Block;
use super::block_compression::Tuning;
use super::block_frame::{self, StoredHeader};
use super::compression_recipe::{RAW_BYTES_MIN, Recipe, StoredRecipe};
use super::dictionary::Dictionary;
use super::format::Handle;
use super::index::BlockStats;
use super::reader::SstReader;
use crate::base::Result;
use crate::cache::BlockKey;
use crate::env::ReadClass;
use std::sync::Arc;

/// A data block as it is stored in a file, with its checksum verified, and its counts from the
/// file's index.
pub struct StoredBlock<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) header: StoredHeader,
    /// The decoded block.
    pub(super) block: Arc<Block>,
    pub(super) dictionary: Option<Arc<Dictionary>>,
    /// Counts of the block in the index of its file.
    pub(super) stats: BlockStats,
    /// Number of raw bytes at which the writer of the block's file ended a block.
    pub(super) block_size: u64,
    /// The ZSTD tuning in the properties of the block's file.
    pub(super) tuning: Option<Tuning>,
    pub(super) reader: &'a SstReader,
    pub(super) handle: Handle,
}

impl<'a> StoredBlock<'a> {
    /// Verifies the checksum of a block. `bytes` are the stored bytes that the file has at
    /// `handle`, and `block` is the decoded form of that block.
    ///
    /// `dictionaries` are those that the caller has copied blocks with so far; the one that this
    /// block needs is added.
    pub(super) fn new(
        reader: &'a SstReader,
        handle: Handle,
        stats: BlockStats,
        bytes: &'a [u8],
        block: Arc<Block>,
        dictionaries: &mut Vec<Arc<Dictionary>>,
    ) -> Result<Self> {
        let place = (reader.file_id(), handle.offset);
        let (header, _) =
            block_frame::check(bytes, place).map_err(|damage| reader.damaged(damage, handle))?;
        let dictionary = match header.dictionary {
            Some(id) => find_or_read(reader, id, dictionaries)?,
            None => None,
        };
        Ok(Self {
            bytes,
            header,
            block,
            dictionary,
            stats,
            block_size: reader.properties().block_size,
            tuning: reader.properties().tuning,
            reader,
            handle,
        })
    }

    /// How the block was compressed. `None` if its file has no tuning.
    pub(super) fn recipe(&self) -> Option<Recipe> {
        let stored = self.stored_recipe();
        Some(Recipe {
            tuning: stored.map_or(self.tuning, |stored| Some(stored.tuning))?,
            dictionary: self.dictionary.clone(),
            trial: stored.map(|stored| stored.trial),
        })
    }

    /// Whether the block should be compressed again instead of copied, so that its recipe is
    /// compared with a new one: the recipe was handed on often enough, or no trial has judged it,
    /// although the file is large enough for one.
    pub(super) fn recipe_is_due(&self) -> bool {
        match self.stored_recipe() {
            Some(stored) => stored.trial.is_due(),
            None => self.reader.properties().raw_block_bytes >= RAW_BYTES_MIN as u64,
        }
    }

    /// The recipe of the block in the properties of its file. A file has at most one recipe with
    /// each dictionary, and one without.
    fn stored_recipe(&self) -> Option<&StoredRecipe> {
        let id = self.header.dictionary.unwrap_or(0);
        let mut stored = self.reader.properties().recipes.iter();
        stored.find(|stored| stored.dictionary == id)
    }

    /// Length of the block in bytes, as stored.
    pub fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Always false, because a stored block has a header.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Number of entries of all kinds.
    pub fn entries(&self) -> u64 {
        self.stats.entries
    }

    /// The key of the block in the block cache.
    pub fn key(&self) -> BlockKey {
        BlockKey {
            file_id: self.reader.file_id(),
            offset: self.handle.offset,
        }
    }
}

fn find_or_read(
    reader: &SstReader,
    id: u32,
    dictionaries: &mut Vec<Arc<Dictionary>>,
) -> Result<Option<Arc<Dictionary>>> {
    if let Some(known) = dictionaries.iter().find(|known| known.id() == id) {
        return Ok(Some(Arc::clone(known)));
    }
    let read = reader
        .read_dictionary(id, ReadClass::Compaction)?
        .map(Arc::new);
    dictionaries.extend(read.clone());
    Ok(read)
}
