//! Reading an SST.

mod open;
mod split_keys;

use super::block::{Block, BlockGet};
use super::block_frame;
use super::decode_error::DecodeError;
use super::dictionary::Dictionary;
use super::filter::Filter;
use super::format::{BlockKind, Handle};
use super::index::{BlockPosition, Index, Partition};
use super::properties::Properties;
use super::{CachedBlock, SstBlockCache};
use crate::base::key::SEQNO_MAX;
use crate::base::{Error, InternalKey, Result, Seqno, Value, checksum};
use crate::cache::{BlockKey, KeyHash, Pin};
use crate::env::{PrefetchBatch, ReadFile};
pub use open::OpenHints;
use std::borrow::Cow;
use std::cell::RefCell;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// A data block as the index sees it.
#[derive(Debug, Clone, Copy)]
pub struct BlockInfo<'a> {
    /// A key at or above all keys of the block, and below all of the next block, except for further
    /// versions of this key.
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
    /// All stored seqnos are 0, whether or not there is an external one.
    pub zeroed: bool,
}

/// An open SST.
///
/// In memory as long as it is open: properties, dictionaries, the top of the index. The partitions
/// of the index, each with the filter over its keys, are there too if the cache's budget for pins
/// grants the room when the file is opened. Otherwise they come through the cache as the data
/// blocks do, one at a time: a point read then asks the cache once more for each file.
///
/// Invariants: the file never changes, so a reader is shared freely between threads; blocks and
/// partitions are named (file id, offset) in the cache, so one reader may follow another of the
/// same file.
///
/// A point read searches the index for the only block where the key can begin, asks the filter,
/// then the block. If the block ends among versions newer than asked for, and the separator says
/// that the key goes on, it looks into the next one.
///
/// Rejected: closing the readers that were used longest ago (each comes back with a megabyte to
/// read and decode, where a partition is ten kilobytes).
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
    /// See [`Self::external_seqno`].
    external: Option<Seqno>,
    /// Its shares of the memory budget.
    pins: Vec<Pin>,
}

/// A partition of the index, borrowed from the reader or kept by a reference.
pub(super) enum PartitionRef<'a> {
    /// The reader does.
    Pinned(&'a Arc<Partition>),
    /// It came from the cache.
    Loaded(Arc<Partition>),
}

impl PartitionRef<'_> {
    /// The partition, kept by the caller.
    pub(super) fn into_shared(self) -> Arc<Partition> {
        match self {
            Self::Pinned(partition) => Arc::clone(partition),
            Self::Loaded(partition) => partition,
        }
    }
}

impl Deref for PartitionRef<'_> {
    type Target = Partition;
    #[inline]
    fn deref(&self) -> &Partition {
        match self {
            Self::Pinned(partition) => partition,
            Self::Loaded(partition) => partition,
        }
    }
}

/// The data blocks of a file, from its index.
pub struct DataBlocks<'a> {
    index: Cow<'a, Index>,
    external: Option<Seqno>,
}

impl DataBlocks<'_> {
    /// In key order.
    pub fn iter(&self) -> impl Iterator<Item = BlockInfo<'_>> {
        self.index.spots().map(|spot| {
            let entry = self.index.block(spot);
            BlockInfo {
                separator: self.index.separator(spot),
                bytes: u64::from(entry.handle.len),
                entries: entry.stats.entries,
                deletes: entry.stats.deletes,
                min_seqno: self.external.unwrap_or(entry.stats.min_seqno),
                max_seqno: self.external.unwrap_or(entry.stats.max_seqno),
                zeroed: entry.stats.max_seqno == 0,
            }
        })
    }
}

impl SstReader {
    /// Id of the file.
    pub fn file_id(&self) -> u64 {
        self.file_id
    }

    /// The file's name in errors.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Size of the file in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The properties that the file stores.
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// The seqno that all entries show, whatever is stored: that of the commit that made the file
    /// visible. Such a file holds one version of each user key. Everything that names seqnos here
    /// goes by it, but for the properties, [`Self::verify`] and blocks on their way to another
    /// file.
    pub fn external_seqno(&self) -> Option<Seqno> {
        self.external
    }

    /// Memory the reader holds as long as it lives, all of it taken from the cache's budget for
    /// pins.
    pub fn memory_bytes(&self) -> u64 {
        self.pins.iter().map(Pin::bytes).sum()
    }

    /// Bytes of [`Self::memory_bytes`] that the reader would not hold if the budget had no room.
    pub fn optional_bytes(&self) -> u64 {
        self.pins.iter().skip(1).map(Pin::bytes).sum()
    }

    /// The index; its partitions may be elsewhere ([`Self::partition`]).
    pub(super) fn index(&self) -> &Index {
        &self.index
    }

    /// The index with all partitions, for walks over the whole file.
    pub(super) fn whole_index(&self) -> Result<Cow<'_, Index>> {
        if self.index.is_whole() {
            return Ok(Cow::Borrowed(&self.index));
        }
        let load = |number, data_end| self.load_partition(number, data_end).map(Arc::new);
        self.index.with_all(load).map(Cow::Owned)
    }

    /// Partition `number`. With `fill` one that was loaded stays in the cache.
    #[inline]
    pub(super) fn partition(&self, number: u32, fill: bool) -> Result<PartitionRef<'_>> {
        match self.index.partition(number) {
            Some(partition) => Ok(PartitionRef::Pinned(partition)),
            None => self
                .cached_partition(number, fill)
                .map(PartitionRef::Loaded),
        }
    }

    fn cached_partition(&self, number: u32, fill: bool) -> Result<Arc<Partition>> {
        let offset = self.index.top(number).index.offset;
        let load = || {
            let partition = self.load_partition(number, 0)?;
            Ok(CachedBlock::Partition(Arc::new(partition)))
        };
        match self.cache.get_or_load(self.key_of(offset), fill, load)? {
            CachedBlock::Partition(partition) => Ok(partition),
            CachedBlock::Block(_) => Err(TWO_IN_ONE.at(&self.name, offset)),
        }
    }

    /// Reads partition `number` from the file.
    fn load_partition(&self, number: u32, data_end: u64) -> Result<Partition> {
        let top = self.index.top(number);
        let mut stored = Vec::new();
        let filter = match top.filter.len {
            0 => None,
            _ => {
                self.read_stored(top.filter, &mut stored)?;
                let place = (self.file_id, top.filter.offset);
                let raw = block_frame::open_as(BlockKind::Filter, &stored, &[], place);
                let filter = raw.and_then(|raw| Filter::decode(&raw));
                Some(filter.map_err(|damage| damage.at(&self.name, top.filter.offset))?)
            }
        };
        self.read_stored(top.index, &mut stored)?;
        let place = (self.file_id, top.index.offset);
        block_frame::open_as(BlockKind::IndexPartition, &stored, &[], place)
            .and_then(|raw| self.index.decode(number, data_end, &raw, filter))
            .and_then(|partition| match partition.data_end() <= self.data_end {
                true => Ok(partition),
                false => Err(DecodeError::Corrupt(
                    "index partition beyond the data blocks",
                )),
            })
            .map_err(|damage| damage.at(&self.name, top.index.offset))
    }

    fn read_stored(&self, handle: Handle, stored: &mut Vec<u8>) -> Result<()> {
        if handle.end() > self.size {
            return Err(
                DecodeError::Corrupt("handle outside the file").at(&self.name, handle.offset)
            );
        }
        stored.resize(handle.len as usize, 0);
        self.file.read_exact_at(handle.offset, stored)
    }

    /// The dictionary with this id.
    pub(super) fn dictionary(&self, id: u32) -> Option<&Arc<Dictionary>> {
        self.dictionaries.iter().find(|d| d.id() == id)
    }

    /// Where its dictionaries lie, for tools.
    pub fn dictionary_bytes(&self) -> Vec<Range<u64>> {
        let handles = self
            .properties
            .dictionaries
            .iter()
            .map(|(_, handle)| handle);
        handles.map(|h| h.offset..h.end()).collect()
    }

    /// The dictionaries of its blocks.
    pub(super) fn dictionaries(&self) -> &[Arc<Dictionary>] {
        &self.dictionaries
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
    ///
    /// # Errors
    /// Those of reading blocks: `Corruption`, `Unsupported` for a format or a key of encryption
    /// that this version does not have, `Io`.
    pub fn get<R>(
        &self,
        user_key: &[u8],
        KeyHash(hash): KeyHash,
        seqno: Seqno,
        f: impl FnOnce(InternalKey<'_>, Value<'_>) -> R,
    ) -> Result<Option<R>> {
        let bound = match self.external {
            Some(external) if external > seqno => return Ok(None),
            Some(_) => SEQNO_MAX,
            None => seqno,
        };
        let Some(mut number) = self.index.partition_of(user_key) else {
            return Ok(None);
        };
        let mut partition = self.partition(number, true)?;
        if !partition.may_contain(hash) {
            return Ok(None);
        }
        let mut at = partition.find(user_key);
        loop {
            let handle = partition.block(at).handle;
            let block = self.block(handle, true)?;
            let found = block.get(user_key, hash, bound);
            match found.map_err(|damage| self.damaged(damage, handle))? {
                BlockGet::Hit(stored, kind, value) => {
                    let seqno = self.external.unwrap_or(stored);
                    return Ok(Some(f(InternalKey::new(user_key, seqno, kind), value)));
                }
                BlockGet::Absent => return Ok(None),
                BlockGet::Older if partition.separator(at) != user_key => return Ok(None),
                BlockGet::Older => {
                    let spot = BlockPosition {
                        partition: number,
                        block: at,
                    };
                    let Some(next) = self.index.next(spot) else {
                        return Ok(None);
                    };
                    if next.partition != number {
                        number = next.partition;
                        partition = self.partition(number, true)?;
                    }
                    at = next.block;
                }
            }
        }
    }

    /// The stored bytes that a get of `user_key` would read. None if their block is cached, the key
    /// is certainly absent, or the index partition is not in memory. `hash` is that of the key.
    pub fn bytes_to_read(&self, user_key: &[u8], KeyHash(hash): KeyHash) -> Option<Range<u64>> {
        let partition = self.partition_at_hand(user_key)?;
        if !partition.may_contain(hash) {
            return None;
        }
        self.bytes_of_block(&partition, user_key)
    }

    /// Whether a seek of `user_key` must read a block. With `begin` that read begins. False if the
    /// index partition is not in memory.
    pub fn prefetch_seek(&self, user_key: &[u8], begin: bool) -> bool {
        let partition = self.partition_at_hand(user_key);
        let bytes = partition.and_then(|partition| self.bytes_of_block(&partition, user_key));
        let Some(bytes) = bytes else {
            return false;
        };
        if begin {
            let mut reads = PrefetchBatch::new();
            self.prefetch(bytes, &mut reads);
            reads.start();
        }
        true
    }

    /// The stored bytes of the block where a search begins, unless it is cached.
    fn bytes_of_block(&self, partition: &Partition, user_key: &[u8]) -> Option<Range<u64>> {
        let handle = partition.block(partition.find(user_key)).handle;
        match self.cached(handle) {
            Some(_) => None,
            None => Some(handle.offset..handle.end()),
        }
    }

    /// The partition where a search begins, if it is in memory.
    fn partition_at_hand(&self, user_key: &[u8]) -> Option<PartitionRef<'_>> {
        let number = self.index.partition_of(user_key)?;
        match self.index.partition(number) {
            Some(partition) => Some(PartitionRef::Pinned(partition)),
            None => self.peek_partition(number).map(PartitionRef::Loaded),
        }
    }

    fn peek_partition(&self, number: u32) -> Option<Arc<Partition>> {
        let offset = self.index.top(number).index.offset;
        match self.cache.peek(self.key_of(offset))? {
            CachedBlock::Partition(partition) => Some(partition),
            CachedBlock::Block(_) => None,
        }
    }

    /// Announces a read of these bytes in `reads`.
    pub fn prefetch(&self, bytes: Range<u64>, reads: &mut PrefetchBatch) {
        let len = bytes.end - bytes.start;
        self.file.prefetch(bytes.start, len, reads);
    }

    /// Whether the file may hold `user_key`; `false` is certain. Reads no data block.
    ///
    /// # Errors
    /// Those of reading an index partition or filter: `Corruption`, `Unsupported`, `Io`.
    pub fn may_contain(&self, user_key: &[u8]) -> Result<bool> {
        let Some(number) = self.index.partition_of(user_key) else {
            return Ok(false);
        };
        let partition = self.partition(number, true)?;
        Ok(partition.may_contain(checksum::xxh3(user_key)))
    }

    /// Number of entries whose user key lies before `user_key`: at least, at most. They differ by
    /// the entries of one block. Reads no data block.
    ///
    /// # Errors
    /// Those of reading an index partition: `Corruption`, `Unsupported`, `Io`.
    pub fn rank_bounds(&self, user_key: &[u8]) -> Result<(u64, u64)> {
        let Some(number) = self.index.partition_of(user_key) else {
            return Ok((self.index.entries(), self.index.entries()));
        };
        let partition = self.partition(number, true)?;
        let at = partition.find(user_key);
        let before = self.index.entries_before_partition(number) + partition.entries_before(at);
        Ok((before, before + partition.block(at).stats.entries))
    }

    /// Number of entries whose user key lies before `user_key`, exactly; reads up to one block.
    ///
    /// # Errors
    /// Those of reading an index partition and a data block: `Corruption`, `Unsupported`, `Io`.
    pub fn rank(self: &Arc<Self>, user_key: &[u8]) -> Result<u64> {
        let mut iter = self.iter(true);
        Ok(match iter.seek_ranked(user_key)? {
            Some((before, ordinal)) => before + u64::from(ordinal),
            None => self.index.entries(),
        })
    }

    /// The data blocks, from the index alone.
    ///
    /// # Errors
    /// Those of reading the index: `Corruption`, `Unsupported`, `Io`.
    pub fn blocks(&self) -> Result<DataBlocks<'_>> {
        Ok(DataBlocks {
            index: self.whole_index()?,
            external: self.external,
        })
    }

    /// The data block at `handle`, from the cache or the file.
    #[inline]
    pub(super) fn block(&self, handle: Handle, fill: bool) -> Result<Arc<Block>> {
        self.loaded(handle, fill, || self.read(handle))
    }

    /// As [`Self::block`], filling the cache with what `read` returns if it is not there.
    pub(super) fn block_by(
        &self,
        handle: Handle,
        read: impl FnOnce() -> Result<Block>,
    ) -> Result<Arc<Block>> {
        self.loaded(handle, true, read)
    }

    #[inline]
    fn loaded(
        &self,
        handle: Handle,
        fill: bool,
        read: impl FnOnce() -> Result<Block>,
    ) -> Result<Arc<Block>> {
        let load = || Ok(CachedBlock::Block(Arc::new(read()?)));
        match self
            .cache
            .get_or_load(self.key_of(handle.offset), fill, load)?
        {
            CachedBlock::Block(block) => Ok(block),
            CachedBlock::Partition(_) => Err(self.damaged(TWO_IN_ONE, handle)),
        }
    }

    /// The data block at `handle` if the cache has it.
    pub(super) fn cached(&self, handle: Handle) -> Option<Arc<Block>> {
        match self.cache.peek(self.key_of(handle.offset))? {
            CachedBlock::Block(block) => Some(block),
            CachedBlock::Partition(_) => None,
        }
    }

    #[inline]
    fn key_of(&self, offset: u64) -> BlockKey {
        BlockKey {
            file_id: self.file_id,
            offset,
        }
    }

    /// The cached form of the data block at `offset`, to be cached for another file. Does not count
    /// as a use.
    pub fn cached_at(&self, offset: u64) -> Option<CachedBlock> {
        self.cache.peek(self.key_of(offset))
    }

    /// Drops the cached blocks and partitions of the file: it will not be read again.
    ///
    /// # Errors
    /// The first of the file system, or corruption: what is left ages out.
    pub fn forget_cached(&self) -> Result<()> {
        let index = self.whole_index()?;
        for spot in index.spots() {
            if spot.block == 0 {
                let partition = self.index.top(spot.partition).index;
                self.cache.remove(self.key_of(partition.offset));
            }
            self.cache
                .remove(self.key_of(index.block(spot).handle.offset));
        }
        Ok(())
    }

    /// Loads into the cache each block with at least half of its entries in `entries`: ascending,
    /// disjoint ranges of entry numbers, counted from 0 through the file. `decoded` has blocks that
    /// need not be read, with the number of their first entry, ascending. Does not count as a use.
    ///
    /// # Errors
    /// The first of the file system, or corruption.
    pub fn warm(&self, entries: &[Range<u64>], decoded: Vec<(u64, CachedBlock)>) -> Result<()> {
        let index = self.whole_index()?;
        let mut ranges = entries.iter().peekable();
        let mut decoded = decoded.into_iter().peekable();
        let mut start = 0;
        for spot in index.spots() {
            let block = start..start + index.block(spot).stats.entries;
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
            let handle = index.block(spot).handle;
            let key = self.key_of(handle.offset);
            if inside > 0 && 2 * inside >= block.end - block.start && self.cache.peek(key).is_none()
            {
                while decoded.next_if(|(entry, _)| *entry < block.start).is_some() {}
                let block = match decoded.next_if(|(entry, _)| *entry == block.start) {
                    Some((_, cached)) => cached,
                    None => CachedBlock::Block(Arc::new(self.read(handle)?)),
                };
                self.cache.insert(key, block);
            }
        }
        Ok(())
    }

    /// Reads the data block at `handle`, past the cache.
    pub(super) fn read(&self, handle: Handle) -> Result<Block> {
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
        block_frame::open(stored, &self.dictionaries, (self.file_id, handle.offset))
            .and_then(|(kind, raw)| Block::new(kind, raw))
            .map_err(|damage| damage.at(&self.name, handle.offset))
    }

    /// The error for damage found in the block at `handle`.
    #[cold]
    pub(super) fn damaged(&self, damage: DecodeError, handle: Handle) -> Error {
        damage.at(&self.name, handle.offset)
    }
}

const TWO_IN_ONE: DecodeError =
    DecodeError::Corrupt("a data block and an index partition in one place");
