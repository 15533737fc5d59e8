//! Reading an SST.

use super::SstBlockCache;
use super::block::{Block, Found};
use super::damage::{Damage, Decoded};
use super::dictionary::{DICTIONARIES_MAX, Dictionary};
use super::filter::Filter;
use super::format::{BlockKind, FOOTER_LEN, Footer, Handle};
use super::frame;
use super::index::{Index, Spot, decode_top};
use super::properties::Properties;
use crate::base::{Error, InternalKey, Result, Seqno, Value, checksum};
use crate::cache::{BlockKey, KeyHash};
use crate::env::ReadFile;
use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

/// A data block as the index sees it.
#[derive(Debug, Clone, Copy)]
pub struct BlockInfo<'a> {
    /// A key at or above all keys of the block, below all of the next but for further versions of
    /// this very key.
    pub separator: &'a [u8],
    /// Stored bytes.
    pub bytes: u64,
    /// Entries of all kinds.
    pub entries: u64,
    /// Entries that delete.
    pub deletes: u64,
    /// Smallest seqno.
    pub min_seqno: Seqno,
    /// Largest seqno.
    pub max_seqno: Seqno,
}

/// An open SST.
///
/// Everything but the data blocks is in memory: properties, dictionaries, the whole index, all
/// filters ([`Self::memory_bytes`] says how much). Data blocks come through the shared cache.
///
/// Invariants: the file never changes, so a reader is shared freely between threads; blocks are
/// named (file id, offset) in the cache, so one reader may follow another of the same file.
///
/// A point read searches the index for the only block where the key can begin, asks the filter,
/// then the block. If the block ends among versions newer than asked for, and the separator says
/// that the key goes on, it looks into the next one.
///
/// Rejected for this version: index and filter partitions loaded on demand. They are a percent of
/// the data; the partitions in the format leave the way open.
pub struct SstReader {
    file: Arc<dyn ReadFile>,
    file_id: u64,
    name: String,
    size: u64,
    cache: Arc<SstBlockCache>,
    dictionaries: Vec<Arc<Dictionary>>,
    properties: Properties,
    index: Index,
    data_end: u64,
    memory: u64,
}

/// The end of the file, from the first byte after the data blocks.
pub(super) struct Meta<'a> {
    bytes: &'a [u8],
    start: u64,
    file_id: u64,
    name: &'a str,
}

impl Meta<'_> {
    /// Opens the block at `handle` and decodes it; errors name the block.
    fn block<T>(
        &self,
        kind: BlockKind,
        handle: Handle,
        decode: impl FnOnce(&[u8]) -> Decoded<T>,
    ) -> Result<T> {
        let range = handle
            .offset
            .checked_sub(self.start)
            .and_then(|start| Some(start as usize..start.checked_add(handle.len.into())? as usize));
        let stored = range
            .and_then(|range| self.bytes.get(range))
            .ok_or(Damage::Corrupt("handle outside the file"));
        let place = (self.file_id, handle.offset);
        stored
            .and_then(|stored| frame::open_as(kind, stored, &[], place))
            .and_then(|raw| decode(&raw))
            .map_err(|damage| damage.at(self.name, handle.offset))
    }
}

impl SstReader {
    /// Opens `file`, which must have id `file_id`. `name` is what errors call the file.
    ///
    /// # Errors
    /// Corruption if any byte after the data blocks is damaged; unsupported if a newer version
    /// wrote the file; those of the file system.
    pub fn open(
        file: Arc<dyn ReadFile>,
        file_id: u64,
        name: String,
        cache: Arc<SstBlockCache>,
    ) -> Result<Arc<Self>> {
        let size = file.size()?;
        let Some(footer_offset) = size.checked_sub(FOOTER_LEN as u64) else {
            return Err(Damage::Corrupt("file shorter than an SST footer").at(&name, 0));
        };
        let mut footer = [0; FOOTER_LEN];
        file.read_exact_at(footer_offset, &mut footer)?;
        let footer = Footer::decode(&footer, file_id, size)
            .map_err(|damage| damage.at(&name, footer_offset))?;
        let mut bytes = vec![0; (footer_offset - footer.meta_offset) as usize];
        file.read_exact_at(footer.meta_offset, &mut bytes)?;
        let meta = Meta {
            bytes: &bytes,
            start: footer.meta_offset,
            file_id,
            name: &name,
        };
        let properties = meta.block(BlockKind::Properties, footer.properties, |raw| {
            let properties = Properties::decode(raw)?;
            if properties.file_id != file_id || properties.dictionaries.len() > DICTIONARIES_MAX {
                return Err(Damage::Corrupt("properties contradict the footer"));
            }
            Ok(properties)
        })?;
        let mut dictionaries = Vec::new();
        for &(id, handle) in &properties.dictionaries {
            dictionaries.push(meta.block(BlockKind::Dictionary, handle, |raw| {
                let dictionary = Dictionary::new(raw.to_vec())?;
                if dictionary.id() != id {
                    return Err(Damage::Corrupt("dictionary of another id"));
                }
                Ok(Arc::new(dictionary))
            })?);
        }
        let index = load_index(&meta, footer.top_index, &properties)?;
        let memory = size_of::<Self>()
            + index.memory()
            + dictionaries.iter().map(|d| d.memory()).sum::<usize>();
        Ok(Arc::new(Self {
            file,
            file_id,
            size,
            cache,
            dictionaries,
            properties,
            index,
            data_end: footer.meta_offset,
            memory: memory as u64,
            name,
        }))
    }

    /// Id of the file.
    pub fn file_id(&self) -> u64 {
        self.file_id
    }

    /// What errors call the file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Size of the file in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// What the file says about itself.
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// Memory the reader holds as long as it lives: index, filters, dictionaries. Cached blocks are
    /// counted by the cache.
    pub fn memory_bytes(&self) -> u64 {
        self.memory
    }

    pub(super) fn index(&self) -> &Index {
        &self.index
    }

    /// First byte after the data blocks.
    pub(super) fn data_end(&self) -> u64 {
        self.data_end
    }

    pub(super) fn file(&self) -> &Arc<dyn ReadFile> {
        &self.file
    }

    /// Calls `f` with the newest version of `user_key` whose seqno is at most `seqno`, a deletion
    /// included; `None` if the file has none. `hash` is that of `user_key`.
    pub fn get<R>(
        &self,
        user_key: &[u8],
        KeyHash(hash): KeyHash,
        seqno: Seqno,
        f: impl FnOnce(InternalKey<'_>, Value<'_>) -> R,
    ) -> Result<Option<R>> {
        let Some(mut spot) = self.index.find(user_key) else {
            return Ok(None);
        };
        if !self.index.may_contain(spot, hash) {
            return Ok(None);
        }
        loop {
            let block = self.block(spot, true)?;
            let found = block.get(user_key, hash, seqno);
            match found.map_err(|damage| self.damaged(damage, spot))? {
                Found::Hit(seqno, kind, value) => {
                    return Ok(Some(f(InternalKey::new(user_key, seqno, kind), value)));
                }
                Found::Absent => return Ok(None),
                Found::Older if self.index.separator(spot) != user_key => return Ok(None),
                Found::Older => match self.index.next(spot) {
                    Some(next) => spot = next,
                    None => return Ok(None),
                },
            }
        }
    }

    /// The stored bytes that a get of `user_key` would read; none if their block is cached or the
    /// key is certainly absent. `hash` is that of the key.
    pub fn bytes_to_read(&self, user_key: &[u8], KeyHash(hash): KeyHash) -> Option<Range<u64>> {
        let spot = self.index.find(user_key)?;
        if !self.index.may_contain(spot, hash) || self.cached(spot).is_some() {
            return None;
        }
        let handle = self.index.block(spot).handle;
        Some(handle.offset..handle.end())
    }

    /// Says that these bytes are about to be read.
    pub fn will_read(&self, bytes: Range<u64>) {
        self.file.will_read(bytes.start, bytes.end - bytes.start);
    }

    /// Whether the file may hold `user_key`; `false` is certain. Reads no block.
    pub fn may_contain(&self, user_key: &[u8]) -> bool {
        self.index
            .find(user_key)
            .is_some_and(|spot| self.index.may_contain(spot, checksum::xxh3(user_key)))
    }

    /// Entries and stored bytes in the blocks that lie wholly before `user_key`. Two keys of one
    /// block get the same answer.
    pub fn approximate_rank(&self, user_key: &[u8]) -> (u64, u64) {
        match self.index.find(user_key) {
            Some(spot) => (
                self.index.entries_before(spot),
                self.index.block(spot).handle.offset,
            ),
            None => (self.index.entries(), self.data_end),
        }
    }

    /// Number of entries whose user key lies before `user_key`: at least, at most. They differ by
    /// the entries of one block. Reads nothing.
    pub fn rank_bounds(&self, user_key: &[u8]) -> (u64, u64) {
        match self.index.find(user_key) {
            Some(spot) => {
                let before = self.index.entries_before(spot);
                (before, before + self.index.block(spot).stats.entries)
            }
            None => (self.index.entries(), self.index.entries()),
        }
    }

    /// Number of entries whose user key lies before `user_key`, exactly; reads up to one block.
    pub fn rank(self: &Arc<Self>, user_key: &[u8]) -> Result<u64> {
        let mut iter = self.iter(true);
        Ok(match iter.seek_ranked(user_key)? {
            Some((spot, ordinal)) => self.index.entries_before(spot) + u64::from(ordinal),
            None => self.index.entries(),
        })
    }

    /// The data blocks in key order, from the index alone.
    pub fn blocks(&self) -> impl Iterator<Item = BlockInfo<'_>> {
        self.index.spots().map(|spot| {
            let entry = self.index.block(spot);
            BlockInfo {
                separator: self.index.separator(spot),
                bytes: u64::from(entry.handle.len),
                entries: entry.stats.entries,
                deletes: entry.stats.deletes,
                min_seqno: entry.stats.min_seqno,
                max_seqno: entry.stats.max_seqno,
            }
        })
    }

    /// The data block of `spot`, from the cache or the file.
    pub(super) fn block(&self, spot: Spot, fill: bool) -> Result<Arc<Block>> {
        let (key, handle) = self.named(spot);
        self.cache.get_or_load(key, fill, || self.read(handle))
    }

    /// The data block of `spot` if the cache has it.
    pub(super) fn cached(&self, spot: Spot) -> Option<Arc<Block>> {
        self.cache.peek(self.named(spot).0)
    }

    fn named(&self, spot: Spot) -> (BlockKey, Handle) {
        let handle = self.index.block(spot).handle;
        let key = BlockKey {
            file_id: self.file_id,
            offset: handle.offset,
        };
        (key, handle)
    }

    /// Drops the cached blocks of the file, which nobody will ask for again.
    pub fn forget_cached(&self) {
        let spots = self.index.spots();
        spots.for_each(|spot| self.cache.remove(self.named(spot).0));
    }

    /// Loads into the cache each block of which at least half of the entries have numbers in
    /// `entries`: ascending, apart, counted from 0 through the file. Counts as no use.
    ///
    /// # Errors
    /// The first of the file system, or corruption.
    pub fn warm(&self, entries: &[Range<u64>]) -> Result<()> {
        let mut ranges = entries.iter().peekable();
        let mut start = 0;
        for spot in self.index.spots() {
            let block = start..start + self.index.block(spot).stats.entries;
            start = block.end;
            let mut inside = 0;
            while let Some(range) = ranges.peek() {
                let (from, to) = (range.start.max(block.start), range.end.min(block.end));
                inside += to.saturating_sub(from);
                if range.end > block.end {
                    break;
                }
                ranges.next();
            }
            let (key, handle) = self.named(spot);
            if inside > 0 && 2 * inside >= block.end - block.start && self.cache.peek(key).is_none()
            {
                self.cache.insert(key, Arc::new(self.read(handle)?));
            }
        }
        Ok(())
    }

    fn read(&self, handle: Handle) -> Result<Block> {
        thread_local! {
            static STORED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
        }
        STORED.with_borrow_mut(|stored| {
            stored.resize(handle.len as usize, 0);
            self.file.read_exact_at(handle.offset, stored)?;
            self.decode(stored, handle)
        })
    }

    /// Checks and decodes a stored data block.
    pub(super) fn decode(&self, stored: &[u8], handle: Handle) -> Result<Block> {
        frame::open(stored, &self.dictionaries, (self.file_id, handle.offset))
            .and_then(|(kind, raw)| Block::new(kind, raw))
            .map_err(|damage| damage.at(&self.name, handle.offset))
    }

    /// The error for damage found in the block of `spot`.
    #[cold]
    pub(super) fn damaged(&self, damage: Damage, spot: Spot) -> Error {
        damage.at(&self.name, self.index.block(spot).handle.offset)
    }
}

fn load_index(meta: &Meta<'_>, top: Handle, properties: &Properties) -> Result<Index> {
    let entries = meta.block(BlockKind::TopIndex, top, decode_top)?;
    let mut index = Index::default();
    for entry in &entries {
        let filter = match entry.filter.len {
            0 => None,
            _ => Some(meta.block(BlockKind::Filter, entry.filter, Filter::decode)?),
        };
        meta.block(BlockKind::IndexPartition, entry.index, |raw| {
            index.push(entry, raw, filter)
        })?;
    }
    index.seal();
    if index.data_end() != meta.start || index.entries() != properties.entries {
        let damage = Damage::Corrupt("index contradicts properties or footer");
        return Err(damage.at(meta.name, top.offset));
    }
    Ok(index)
}
