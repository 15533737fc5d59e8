//! Data blocks that one file takes over from another as they are stored.
//!
//! The new file also needs the dictionary that the block was compressed with (the header names it,
//! and a file may carry several), the keys for its filter, and the counts for index and properties.
//! Keys and counts need a decoded block, so a reused block is decoded once, as it is read; block
//! reuse saves merging, building and compressing.

use super::block::Block;
use super::block_frame::{self, StoredHeader};
use super::codec::Tuning;
use super::dictionary::Dictionary;
use super::format::Handle;
use super::index::BlockStats;
use super::reader::SstReader;
use crate::base::Result;
use crate::cache::BlockKey;
use std::sync::Arc;

/// A data block as stored in some file, checked, with its counts there.
pub struct StoredBlock<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) header: StoredHeader,
    /// The same, decoded.
    pub(super) block: Arc<Block>,
    pub(super) dictionary: Option<Arc<Dictionary>>,
    /// Its counts in the index of its file.
    pub(super) stats: BlockStats,
    /// Block size that its writer aimed at.
    pub(super) block_size: u64,
    /// How its file compresses.
    pub(super) tuning: Option<Tuning>,
    pub(super) reader: &'a SstReader,
    pub(super) handle: Handle,
}

impl<'a> StoredBlock<'a> {
    /// The block that lies at `handle` as `bytes`, and decoded is `block`.
    pub(super) fn new(
        reader: &'a SstReader,
        handle: Handle,
        stats: BlockStats,
        bytes: &'a [u8],
        block: Arc<Block>,
    ) -> Result<Self> {
        let place = (reader.file_id(), handle.offset);
        let (header, _) =
            block_frame::check(bytes, place).map_err(|damage| reader.damaged(damage, handle))?;
        let dictionary = header.dictionary.and_then(|id| reader.dictionary(id));
        Ok(Self {
            bytes,
            header,
            block,
            dictionary: dictionary.cloned(),
            stats,
            block_size: reader.properties().block_size,
            tuning: reader.properties().tuning,
            reader,
            handle,
        })
    }

    /// Stored bytes.
    pub fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Never: a stored block has a header.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Entries of all kinds.
    pub fn entries(&self) -> u64 {
        self.stats.entries
    }

    /// Its name in the cache.
    pub fn key(&self) -> BlockKey {
        BlockKey {
            file_id: self.reader.file_id(),
            offset: self.handle.offset,
        }
    }
}
