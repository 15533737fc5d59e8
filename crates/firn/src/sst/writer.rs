//! Writing an SST.

mod buffered_blocks;
mod copied_blocks;
mod file_output;
mod recipe_choice;

use super::block::{BlockBuilder, to_stored_form};
use super::block_compression::{Codec, Compressor, Tuning};
use super::compression_recipe::Recipe;
use super::dictionary::{DICTIONARIES_MAX, Dictionary};
use super::format::{BlockKind, FOOTER_LEN, Footer, Handle, RAW_BLOCK_MAX};
use super::index::{BlockEntry, IndexBuilder, separator, top_index};
use super::index_stats::IndexStats;
use super::options::{BlockLayout, SstOptions};
use super::properties::Properties;
use super::recipe_offers::RecipeOffers;
use super::sketches::SketchBuilder;
use crate::base::blob_ref::{BlobUse, BlobUses};
use crate::base::key::{INDEX_ID_LEN, SEQNO_COMMITTED_MAX, index_id_of};
use crate::base::prefix_extractor::PrefixExtractors;
use crate::base::value::{ENTRY_BYTES_MAX, check_entry};
use crate::base::{Error, IndexId, InternalKey, Kind, Result, Seqno, Value, checksum};
use crate::env::AppendFile;
use buffered_blocks::{BufferedBlock, BufferedBlocks, Content};
use file_output::Output;
use std::cmp::Ordering;
use std::sync::Arc;

/// Facts about a finished SST, which the manifest stores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SstSummary {
    /// Id of the file.
    pub file_id: u64,
    /// Size in bytes.
    pub size: u64,
    /// Bytes of the tail, that is, of all that stands behind the data blocks.
    pub tail_len: u64,
    /// XXH3-64 of the whole file.
    pub checksum: u64,
    /// Smallest user key.
    pub smallest: Vec<u8>,
    /// Largest user key.
    pub largest: Vec<u8>,
    /// Smallest seqno.
    pub min_seqno: Seqno,
    /// Largest seqno.
    pub max_seqno: Seqno,
    /// Number of entries of all kinds.
    pub entries: u64,
    /// Number of entries that are tombstones.
    pub deletes: u64,
    /// Number of tombstones in those data blocks in which at least three quarters of the entries
    /// are tombstones.
    pub dense_deletes: u64,
    /// Bytes of user keys and values.
    pub raw_bytes: u64,
    /// Counts per index, ascending.
    pub per_index: Vec<IndexStats>,
    /// References of the entries to blob files, ascending by file.
    pub blobs: Vec<BlobUse>,
    /// Whether the writer tried tunings and trained a dictionary.
    pub recipe_tried: bool,
    /// Whether the file's recipe is that of another file.
    pub recipe_inherited: bool,
}

/// Writes one SST from start to end.
///
/// Steps: entries gather in a block. A full block is passed on as raw bytes, with its separator and
/// the hashes of its keys. Under ZSTD the first raw blocks wait in memory (at most 8 MiB) until
/// trials have shown how they compress best and the dictionary is trained. From then on, each block
/// is compressed and appended as it becomes full. `finish` writes filters, index, dictionaries,
/// properties and footer, and syncs.
///
/// A block of another file may be copied in stored form ([`Self::copy`]). Copying ends the
/// unfinished block. The copied block, too, waits until the next key is known, from which its
/// separator is made. Its dictionary is copied with it. If more bytes were copied than wait to be
/// compressed, the recipe (tuning and dictionary) of the copied blocks is offered to the waiting
/// ones, which lie among the copied ones and resemble them. Otherwise the file may inherit a recipe
/// that [`Self::with_recipe_offers`] has named.
///
/// Invariants: keys ascend strictly in internal order. Entries with an uncommitted seqno, as the
/// entries of a write set have, are refused, except in files written [`Self::with_external_seqno`].
/// The caller puts all versions of a user key into one file. After an error, neither the writer nor
/// its file can be used any more.
///
/// Rejected: the dictionary of a neighbouring file in any case, which may compress clearly worse.
/// Rejected: a filter for each block instead of one for each index partition. A point read would
/// miss the processor's cache once more in each file, and the filters would be no smaller.
pub struct SstWriter {
    options: SstOptions,
    output: Output,
    block: BlockBuilder,
    open_block: BufferedBlock,
    compressor: Compressor,
    buffered: Option<BufferedBlocks>,
    /// The block that was copied last. It is appended to the file once the next key is known,
    /// because its separator must lie below that key.
    copied: Option<BufferedBlock>,
    /// The recipe of the compressed block that was copied last, if its file has a tuning.
    copied_recipe: Option<Recipe>,
    /// Recipes of other files, which this file may inherit.
    offers: Option<Arc<RecipeOffers>>,
    /// See [`SstSummary`].
    recipe_tried: bool,
    recipe_inherited: bool,
    /// All dictionaries that blocks of the file need.
    dictionaries: Vec<Arc<Dictionary>>,
    index: IndexBuilder,
    properties: Properties,
    sketches: SketchBuilder,
    blobs: BlobUses,
    last_seqno: Seqno,
}

impl SstWriter {
    /// Creates a writer into the empty `file`, whose id is `file_id`. `created_micros` is the wall
    /// clock time in microseconds since 1970.
    pub fn new(
        file: Box<dyn AppendFile>,
        file_id: u64,
        options: SstOptions,
        created_micros: u64,
    ) -> Self {
        let buffered = match options.codec {
            Codec::Zstd { dictionary, .. } => Some(BufferedBlocks::new(dictionary)),
            _ => None,
        };
        Self {
            output: Output::new(file, file_id),
            block: BlockBuilder::new(options.layout == BlockLayout::Sectioned, options.hash_index),
            open_block: BufferedBlock::default(),
            compressor: Compressor::new(options.codec, Tuning::default()),
            buffered,
            copied: None,
            copied_recipe: None,
            offers: None,
            recipe_tried: false,
            recipe_inherited: false,
            dictionaries: Vec::new(),
            index: IndexBuilder::new(options.index_partition_size, options.filter_bits_per_key),
            properties: Properties {
                file_id,
                created_micros,
                block_size: options.block_size as u64,
                codec: format!("{:?}", options.codec),
                min_seqno: Seqno::MAX,
                ..Properties::default()
            },
            sketches: SketchBuilder::default(),
            blobs: BlobUses::default(),
            last_seqno: 0,
            options,
        }
    }

    /// Makes the file store sketches of all indexes that `prefix_extractors` knows. Must be called
    /// before the first entry is added.
    pub fn with_prefix_extractors(mut self, prefix_extractors: Arc<dyn PrefixExtractors>) -> Self {
        self.sketches = SketchBuilder::new(prefix_extractors);
        self
    }

    /// Declares that the seqnos of the entries are 0 or those of a write set. The properties record
    /// this, and the file must be read with the seqno of the commit that makes it visible. Must be
    /// called before the first entry is added.
    pub fn with_external_seqno(mut self) -> Self {
        self.properties.external_seqno = true;
        self
    }

    /// Records in the properties that a bulk load wrote the file. Must be called before the first
    /// entry is added.
    pub fn with_loaded(mut self) -> Self {
        self.properties.loaded = true;
        self
    }

    /// Lets the file inherit one of the recipes `offers`, if it fits. Must be called before the
    /// first entry is added.
    pub fn with_recipe_offers(mut self, offers: Arc<RecipeOffers>) -> Self {
        self.offers = Some(offers);
        self
    }

    /// Stores `value` under `name` in the file's properties.
    #[cfg(test)]
    pub fn set_user_property(&mut self, name: &str, value: &[u8]) {
        self.properties.user.insert(name.to_owned(), value.to_vec());
    }

    /// Adds an entry, which must lie above all entries added before.
    ///
    /// # Errors
    /// Invalid argument if the key is out of order, has no index id or has an uncommitted seqno;
    /// `TooLarge` if key and value are too long; those of writing: `Io`, `NoSpace`.
    pub fn add(&mut self, key: InternalKey<'_>, value: Value<'_>) -> Result<()> {
        let raw_len = key.user_key.len() + value.len();
        let index = self.check(key, raw_len)?;
        if self.block.size() >= self.options.block_size {
            self.end_block(Some(key.user_key))?;
        } else if self.copied.is_some() {
            self.end_copied(Some(key.user_key))?;
        }
        self.count(index, key, value)?;
        let delete = matches!(key.kind, Kind::Delete | Kind::RangeDelete);
        self.open_block.add(index, key.seqno, delete, raw_len);
        let hash = checksum::xxh3(key.user_key);
        self.block.add(key, value, hash);
        self.last_seqno = key.seqno;
        Ok(())
    }

    fn check(&self, key: InternalKey<'_>, raw_len: usize) -> Result<IndexId> {
        let index = index_id_of(key.user_key)
            .ok_or_else(|| Error::invalid(format_args!("user key under {INDEX_ID_LEN} bytes")))?;
        if key.seqno > SEQNO_COMMITTED_MAX && !self.properties.external_seqno {
            return Err(Error::invalid("uncommitted entry on its way into an SST"));
        }
        const { assert!(ENTRY_BYTES_MAX as usize <= RAW_BLOCK_MAX / 2) };
        check_entry(raw_len, ENTRY_BYTES_MAX)?;
        let order = match self.properties.entries {
            0 => Ordering::Less,
            _ => self
                .block
                .last_key()
                .cmp(key.user_key)
                .then_with(|| key.seqno.cmp(&self.last_seqno)),
        };
        if order == Ordering::Less {
            Ok(index)
        } else {
            Err(Error::invalid(format_args!(
                "SST entries out of order in index {index}: seqno {} after {}",
                key.seqno, self.last_seqno
            )))
        }
    }

    /// Counts an entry in properties, sketches and references to blobs.
    fn count(&mut self, index: IndexId, key: InternalKey<'_>, value: Value<'_>) -> Result<()> {
        let value_len = value.len();
        if key.kind == Kind::PutBlobs {
            self.blobs.add_tail(value.tail)?;
        }
        let p = &mut self.properties;
        if p.entries == 0 {
            p.smallest = key.user_key.to_vec();
        }
        let delete = matches!(key.kind, Kind::Delete | Kind::RangeDelete);
        p.entries += 1;
        p.deletes += u64::from(delete);
        p.raw_key_bytes += key.user_key.len() as u64;
        p.raw_value_bytes += value_len as u64;
        p.min_seqno = p.min_seqno.min(key.seqno);
        p.max_seqno = p.max_seqno.max(key.seqno);
        let stats = self.index_stats(index);
        stats.entries += 1;
        stats.deletes += u64::from(delete);
        stats.raw_bytes += (key.user_key.len() + value_len) as u64;
        self.sketches.add(index, key);
        Ok(())
    }

    fn index_stats(&mut self, index: IndexId) -> &mut IndexStats {
        let all = &mut self.properties.per_index;
        if all.last().is_none_or(|s| s.index != index) {
            all.push(IndexStats {
                index,
                ..IndexStats::default()
            });
        }
        all.last_mut().expect("just pushed")
    }

    /// Number of blob files to which the entries refer.
    pub fn blob_files(&self) -> usize {
        self.blobs.files()
    }

    /// Approximate size in bytes that the file would have if it were finished now.
    pub fn estimated_size(&self) -> u64 {
        let waiting = self
            .buffered
            .as_ref()
            .map_or(0, BufferedBlocks::estimated_size);
        let copied = self.copied.as_ref().map_or(0, BufferedBlock::stored_len);
        let block = self.block.size() as u64;
        let index = self.index.size() as u64;
        self.output.offset() + waiting + copied + block + index
    }

    /// Number of entries added so far.
    pub fn entries(&self) -> u64 {
        self.properties.entries
    }

    /// Ends the unfinished block; `next` is the user key that follows it (`None`: the file ends).
    fn end_block(&mut self, next: Option<&[u8]>) -> Result<()> {
        let mut block = std::mem::take(&mut self.open_block);
        let built = self.block.finish();
        block.content = Content::Raw(built.raw);
        block.hashes = built.hashes;
        self.hand_on(block, next)
    }

    /// Sets the separator of a complete block, and appends the block to the file or lets it wait.
    /// The last key of `block` is the key added last. `next` is the user key that follows (`None`:
    /// the file ends).
    fn hand_on(&mut self, mut block: BufferedBlock, next: Option<&[u8]>) -> Result<()> {
        block.separator = match next {
            Some(next) => separator(self.block.last_key(), next),
            None => self.block.last_key().to_vec(),
        };
        let Some(buffered) = &mut self.buffered else {
            return self.write_data(&block);
        };
        if let Content::Stored { raw_len, .. } = block.content {
            buffered.note_copied(raw_len);
            if buffered.is_empty() {
                return self.write_data(&block);
            }
        }
        buffered.push(block, &mut self.compressor);
        if buffered.is_full(self.copied_recipe.is_some()) {
            self.append_buffered()
        } else {
            Ok(())
        }
    }

    fn write_data(&mut self, block: &BufferedBlock) -> Result<()> {
        let (handle, raw_len) = match &block.content {
            Content::Stored {
                bytes,
                from,
                raw_len,
            } => (self.output.copy(bytes, *from)?, *raw_len),
            Content::Raw(raw) => {
                let sectioned = self.options.layout == BlockLayout::Sectioned;
                let kind = match sectioned {
                    false => BlockKind::RowWise,
                    true => BlockKind::Sectioned,
                };
                let shaped = to_stored_form(sectioned, raw, self.compressor.tuning().plane_layout);
                let payload = self.compressor.data(&shaped);
                let raw_len = shaped.raw.len();
                (self.output.block(kind, payload, raw_len)?, raw_len)
            }
        };
        let stored = u64::from(handle.len);
        self.properties.data_blocks += 1;
        self.properties.dense_deletes += block.stats.dense_deletes();
        self.properties.data_bytes += stored;
        self.properties.raw_block_bytes += raw_len as u64;
        for (index, share) in block.shares(stored) {
            let stats = &mut self.properties.per_index;
            if let Ok(at) = stats.binary_search_by_key(&index, |s| s.index) {
                stats[at].stored_bytes += share;
            }
        }
        let entry = BlockEntry {
            handle,
            stats: block.stats,
        };
        self.index.add(&block.separator, entry, &block.hashes);
        Ok(())
    }

    /// Writes filters, index, dictionaries, properties and footer, syncs the file and returns its
    /// summary. The caller must sync the directory. A file without entries is allowed.
    ///
    /// # Errors
    /// Those of writing and syncing: `Io`, `NoSpace`.
    pub fn finish(self) -> Result<SstSummary> {
        self.end(true)
    }

    /// As [`Self::finish`], but does not sync the file, so a power cut may lose it.
    ///
    /// # Errors
    /// Those of writing: `Io`, `NoSpace`.
    pub fn finish_unsynced(self) -> Result<SstSummary> {
        self.end(false)
    }

    fn end(mut self, synced: bool) -> Result<SstSummary> {
        if self.properties.entries > 0 {
            self.properties.largest = self.block.last_key().to_vec();
        }
        self.end_copied(None)?;
        if !self.block.is_empty() {
            self.end_block(None)?;
        }
        self.append_buffered()?;
        let meta_offset = self.output.offset();
        let mut partitions = Vec::new();
        for partition in self.index.finish() {
            let filter = match &partition.raw_filter {
                Some(raw) => self.output.raw_block(BlockKind::Filter, raw)?,
                None => Handle::default(),
            };
            let raw = &partition.raw_index;
            let payload = self.compressor.other(raw);
            let index = self
                .output
                .block(BlockKind::IndexPartition, payload, raw.len())?;
            partitions.push((partition, index, filter));
        }
        let raw = top_index(&partitions);
        let payload = self.compressor.other(&raw);
        let top_index = self.output.block(BlockKind::TopIndex, payload, raw.len())?;
        if self.dictionaries.len() > DICTIONARIES_MAX {
            return Err(Error::invalid("more dictionaries than a reader accepts"));
        }
        for dictionary in &self.dictionaries {
            let raw = dictionary.bytes();
            let payload = self.compressor.other(raw);
            let handle = self
                .output
                .block(BlockKind::Dictionary, payload, raw.len())?;
            self.properties.dictionaries.push((dictionary.id(), handle));
        }
        if self.properties.entries == 0 {
            self.properties.min_seqno = 0;
        }
        self.properties.sketches = self.sketches.finish(&self.properties.per_index);
        let raw = self.properties.encode();
        let properties = self.output.raw_block(BlockKind::Properties, &raw)?;
        let footer = Footer {
            meta_offset,
            top_index,
            properties,
            file_id: self.properties.file_id,
            file_size: self.output.offset() + FOOTER_LEN as u64,
        };
        let (size, checksum) = self.output.finish(&footer.encode(), synced)?;
        let p = self.properties;
        Ok(SstSummary {
            file_id: p.file_id,
            size,
            tail_len: size - meta_offset,
            checksum,
            smallest: p.smallest,
            largest: p.largest,
            min_seqno: p.min_seqno,
            max_seqno: p.max_seqno,
            entries: p.entries,
            deletes: p.deletes,
            dense_deletes: p.dense_deletes,
            raw_bytes: p.raw_key_bytes + p.raw_value_bytes,
            per_index: p.per_index,
            blobs: self.blobs.iter().collect(),
            recipe_tried: self.recipe_tried,
            recipe_inherited: self.recipe_inherited,
        })
    }
}
