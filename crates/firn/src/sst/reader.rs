//! Reads an SST.

mod dictionaries;
mod handover;
mod open;
mod pooled;
mod split_keys;

use super::block::{Block, BlockGet};
use super::block_frame;
use super::decode_error::DecodeError;
use super::filter::Filter;
use super::format::{BlockKind, Handle};
use super::index::{BlockEntry, BlockPosition, Index, Partition};
use super::properties::Properties;
use super::{CachedBlock, SstBlockCache};
use crate::base::key::SEQNO_MAX;
use crate::base::pool::Pool;
use crate::base::{Error, InternalKey, Result, Seqno, Value, checksum, read_meter};
use crate::cache::{BlockKey, KeyHash, Pin};
use crate::env::{ReadClass, ReadFile};
use crate::store::{BlockFile, PoolOutlook, ReadBatch};
pub(super) use dictionaries::UsedDictionaries;
pub use open::OpenHints;
use pooled::BlockSource;
pub(super) use pooled::BlockWindow;
pub(crate) use pooled::REREADS_MAX;
use std::borrow::Cow;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// A data block as the index sees it.
#[derive(Debug, Clone, Copy)]
pub struct BlockInfo<'a> {
    /// A key at or above all keys of the block and below all keys of the next block. If versions of
    /// this key lie in both blocks, the next block begins with the separator itself.
    pub separator: &'a [u8],
    /// Length of the stored block in bytes.
    pub bytes: u64,
    /// Number of entries of all kinds.
    pub entries: u64,
    /// Number of entries that are tombstones.
    pub deletes: u64,
    /// Smallest seqno of the entries as a reader sees them.
    pub min_seqno: Seqno,
    /// Largest seqno of the entries as a reader sees them.
    pub max_seqno: Seqno,
    /// Whether all stored seqnos of the block are 0, with or without an external seqno of the file.
    pub zeroed: bool,
}

impl<'a> BlockInfo<'a> {
    /// Describes the block of `entry`. `external` is the seqno that the file's entries have for
    /// readers, if it has one.
    pub(super) fn new(separator: &'a [u8], entry: &BlockEntry, external: Option<Seqno>) -> Self {
        let stats = &entry.stats;
        Self {
            separator,
            bytes: u64::from(entry.handle.len),
            entries: stats.entries,
            deletes: stats.deletes,
            min_seqno: external.unwrap_or(stats.min_seqno),
            max_seqno: external.unwrap_or(stats.max_seqno),
            zeroed: stats.max_seqno == 0,
        }
    }
}

/// The place of a key among the entries of a file. It is of use only with this key and this file.
#[derive(Debug, Clone, Copy)]
pub struct KeyPlace {
    /// The block in which the key lies, or before which it lies. `None` if the key lies behind all
    /// keys of the file.
    block: Option<Handle>,
    /// Number of entries before the block.
    before: u64,
    /// Number of entries of the block.
    within: u64,
}

impl KeyPlace {
    fn behind(entries: u64) -> Self {
        Self {
            block: None,
            before: entries,
            within: 0,
        }
    }

    /// Lower and upper bound of the number of entries whose user key lies before the key. They
    /// differ by the number of entries of one block.
    pub fn bounds(&self) -> (u64, u64) {
        (self.before, self.before + self.within)
    }
}

/// An open SST.
///
/// While the file is open, its properties and its top index stay in memory. The index partitions,
/// each with its filter, stay there too if the pin budget of the block cache had room for them when
/// the file was opened. Otherwise a partition is loaded through the block cache when it is needed,
/// as data blocks are: a point read then makes one more cache lookup for each such file.
/// Dictionaries always come through the block cache.
///
/// Invariants: the file never changes, so threads share a reader without locks. The cache key of a
/// block or partition is (file id, offset), so a reader that is opened later for the same file
/// finds the blocks of an earlier one.
///
/// A point read searches the index for the only block where the versions of the key can begin. It
/// asks the filter of the block's partition, then searches the block. If all versions of the key in
/// that block are too new, and the block's separator is the key, the read goes on in the next
/// block.
pub struct SstReader {
    file: BlockFile,
    file_id: u64,
    name: String,
    size: u64,
    cache: Arc<SstBlockCache>,
    properties: Properties,
    index: Index,
    data_end: u64,
    /// See [`Self::external_seqno`].
    external: Option<Seqno>,
    /// The reader's share of the pin budget of the block cache.
    pin: Pin,
}

/// An index partition, either borrowed from the reader or shared with the block cache.
pub(super) enum PartitionRef<'a> {
    /// The reader keeps all partitions in memory.
    Pinned(&'a Arc<Partition>),
    /// The partition came from the block cache or the file.
    Loaded(Arc<Partition>),
}

impl PartitionRef<'_> {
    /// A reference to the partition that the caller owns, so that the partition stays in memory.
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

/// The data blocks of a file, as its index describes them.
pub struct DataBlocks<'a> {
    index: Cow<'a, Index>,
    external: Option<Seqno>,
}

impl DataBlocks<'_> {
    /// The blocks in key order.
    pub fn iter(&self) -> impl Iterator<Item = BlockInfo<'_>> {
        self.index.spots().map(|spot| {
            let separator = self.index.separator(spot);
            BlockInfo::new(separator, self.index.block(spot), self.external)
        })
    }
}

impl SstReader {
    /// Id of the file.
    pub fn file_id(&self) -> u64 {
        self.file_id
    }

    /// The name by which errors call the file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Size of the file in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The properties that are stored in the file.
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// The seqno that all entries show in place of the stored one: that of the commit that made the
    /// file visible. `None` if the stored seqnos are those of commits. A file with an external
    /// seqno holds one version of each user key. All methods of readers and iterators use the
    /// external seqno, except for the properties, [`Self::verify`] and the stored blocks that block
    /// reuse copies.
    pub fn external_seqno(&self) -> Option<Seqno> {
        self.external
    }

    /// Bytes of memory that the reader holds while it is open, all of it counted in the pin budget
    /// of the block cache.
    pub fn memory_bytes(&self) -> u64 {
        self.pin.bytes()
    }

    /// Whether the reader keeps all index partitions in memory. If the pin budget had been full at
    /// the open, the reader would have done without them.
    pub fn is_pinned(&self) -> bool {
        self.index.is_whole()
    }

    /// The index. It may lack the partitions; [`Self::partition`] then loads one.
    pub(super) fn index(&self) -> &Index {
        &self.index
    }

    /// The index with all partitions, for a pass over the whole file with the purpose `class`.
    /// Loads the partitions from the file if the reader does not keep them.
    pub(super) fn whole_index(&self, class: ReadClass) -> Result<Cow<'_, Index>> {
        if self.index.is_whole() {
            return Ok(Cow::Borrowed(&self.index));
        }
        let load = |number, data_end| {
            self.load_partition(number, data_end, class.of_index())
                .map(Arc::new)
        };
        self.index.with_all(load).map(Cow::Owned)
    }

    /// Partition `number`, for a reader with the purpose `class`. If it has to be loaded and `fill`
    /// is set, it goes into the block cache.
    #[inline]
    pub(super) fn partition(
        &self,
        number: u32,
        class: ReadClass,
        fill: bool,
    ) -> Result<PartitionRef<'_>> {
        match self.index.partition(number) {
            Some(partition) => Ok(PartitionRef::Pinned(partition)),
            None => self
                .cached_partition(number, class, fill)
                .map(PartitionRef::Loaded),
        }
    }

    fn cached_partition(
        &self,
        number: u32,
        class: ReadClass,
        fill: bool,
    ) -> Result<Arc<Partition>> {
        let offset = self.index.top(number).index.offset;
        let load = || {
            let partition = self.load_partition(number, 0, class.of_index())?;
            Ok(CachedBlock::Partition(Arc::new(partition)))
        };
        match self.cache.get_or_load(self.key_of(offset), fill, load)? {
            CachedBlock::Partition(partition) => Ok(partition),
            _ => Err(TWO_IN_ONE.at(&self.name, offset)),
        }
    }

    /// Reads and decodes partition `number` and its filter, with reads of the class `class`.
    /// `data_end` is the end of the data blocks before the partition, or 0 if that is not known.
    fn load_partition(&self, number: u32, data_end: u64, class: ReadClass) -> Result<Partition> {
        self.read_from_any(class, |source| {
            self.load_partition_from(source, number, data_end, class)
        })
    }

    fn load_partition_from(
        &self,
        source: BlockSource,
        number: u32,
        data_end: u64,
        class: ReadClass,
    ) -> Result<Partition> {
        let top = self.index.top(number);
        let mut stored = Vec::new();
        let filter = match top.filter.len {
            0 => None,
            _ => {
                self.read_stored(source, top.filter, class, &mut stored)?;
                let place = (self.file_id, top.filter.offset);
                let raw = block_frame::open_as(BlockKind::Filter, &stored, place);
                let filter = raw.and_then(|raw| Filter::decode(&raw));
                Some(filter.map_err(|damage| damage.at(&self.name, top.filter.offset))?)
            }
        };
        self.read_stored(source, top.index, class, &mut stored)?;
        let place = (self.file_id, top.index.offset);
        block_frame::open_as(BlockKind::IndexPartition, &stored, place)
            .and_then(|raw| self.index.decode(number, data_end, &raw, filter))
            .and_then(|partition| match partition.data_end() <= self.data_end {
                true => Ok(partition),
                false => Err(DecodeError::Corrupt(
                    "index partition beyond the data blocks",
                )),
            })
            .map_err(|damage| damage.at(&self.name, top.index.offset))
    }

    fn read_stored(
        &self,
        source: BlockSource,
        handle: Handle,
        class: ReadClass,
        stored: &mut Vec<u8>,
    ) -> Result<()> {
        if handle.end() > self.size {
            return Err(
                DecodeError::Corrupt("handle outside the file").at(&self.name, handle.offset)
            );
        }
        stored.resize(handle.len as usize, 0);
        self.fill(source, handle, class, stored)
    }

    /// Offset of the first byte after the data blocks.
    pub(super) fn data_end(&self) -> u64 {
        self.data_end
    }

    pub(super) fn file(&self) -> &Arc<dyn ReadFile> {
        self.file.file()
    }

    pub(super) fn blocks_file(&self) -> &BlockFile {
        &self.file
    }

    /// Calls `f` with the newest version of `user_key` whose seqno is at most `seqno`; that version
    /// may be a tombstone. Returns `None` if the file has no such version. `hash` is the hash of
    /// `user_key`, and `class` the purpose of the reads.
    ///
    /// # Errors
    /// Those of reading index partitions and blocks: `Corruption`; `Unsupported` for a newer format
    /// or an encrypted block; `Io`.
    pub fn get<R>(
        &self,
        user_key: &[u8],
        KeyHash(hash): KeyHash,
        seqno: Seqno,
        class: ReadClass,
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
        let mut partition = self.partition(number, class, true)?;
        if !partition.may_contain(hash) {
            return Ok(None);
        }
        let mut at = partition.find(user_key);
        loop {
            let handle = partition.block(at).handle;
            let block = self.block(handle, class, true)?;
            let found = block.get(user_key, hash, bound);
            match found.map_err(|damage| self.damaged(damage, handle))? {
                BlockGet::Hit(stored, kind, value) => {
                    let seqno = self.external.unwrap_or(stored);
                    return Ok(Some(f(InternalKey::new(user_key, seqno, kind), value)));
                }
                BlockGet::Absent => return Ok(None),
                BlockGet::BeyondBlock if partition.separator(at) != user_key => return Ok(None),
                BlockGet::BeyondBlock => {
                    let spot = BlockPosition {
                        partition: number,
                        block: at,
                    };
                    let Some(next) = self.index.next(spot) else {
                        return Ok(None);
                    };
                    if next.partition != number {
                        number = next.partition;
                        partition = self.partition(number, class, true)?;
                    }
                    at = next.block;
                }
            }
        }
    }

    /// The range of bytes in the file that a get of `user_key` would read. `None` if the block is
    /// cached, if the filter excludes the key, or if the index partition is not in memory. `hash`
    /// is the hash of `user_key`.
    pub fn bytes_to_read(&self, user_key: &[u8], KeyHash(hash): KeyHash) -> Option<Range<u64>> {
        let partition = self.partition_at_hand(user_key)?;
        if !partition.may_contain(hash) {
            return None;
        }
        self.bytes_of_block(&partition, user_key)
    }

    /// Whether a seek of `user_key` would have to read a data block. If so and `begin` is set, a
    /// prefetch of that block begins. False if the index partition is not in memory.
    pub fn prefetch_seek(&self, user_key: &[u8], begin: bool) -> bool {
        let partition = self.partition_at_hand(user_key);
        let bytes = partition.and_then(|partition| self.bytes_of_block(&partition, user_key));
        let Some(bytes) = bytes else {
            return false;
        };
        // A block of the pool is fetched when the seek needs it: for one block alone nothing is
        // gained by an announcement.
        let class = ReadClass::Range;
        if begin && self.file.outlook(class, bytes.start, false) != PoolOutlook::Asks {
            let mut reads = ReadBatch::new();
            self.file.prefetch_file(class, &bytes, &mut reads);
            reads.start();
        }
        true
    }

    /// The range of bytes of the block where a search for `user_key` begins, unless that block is
    /// cached.
    fn bytes_of_block(&self, partition: &Partition, user_key: &[u8]) -> Option<Range<u64>> {
        let handle = partition.block(partition.find(user_key)).handle;
        match self.cached(handle) {
            Some(_) => None,
            None => Some(handle.offset..handle.end()),
        }
    }

    /// The index partition in which a search for `user_key` begins, if the reader or the block
    /// cache has it in memory.
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
            _ => None,
        }
    }

    /// Adds a prefetch of a block to `reads`; the caller starts the batch. `bytes` is the range of
    /// the block in the file.
    pub fn prefetch(&self, bytes: &Range<u64>, reads: &mut ReadBatch) {
        self.file
            .prefetch(ReadClass::Range, bytes, block_frame::is_intact, reads);
    }

    /// Whether the filter admits `user_key`; `false` means that the file does not hold it. Reads no
    /// data block.
    ///
    /// # Errors
    /// Those of reading an index partition or filter: `Corruption`, `Unsupported`, `Io`.
    pub fn may_contain(&self, user_key: &[u8]) -> Result<bool> {
        let Some(number) = self.index.partition_of(user_key) else {
            return Ok(false);
        };
        let partition = self.partition(number, ReadClass::Index, true)?;
        Ok(partition.may_contain(checksum::xxh3(user_key)))
    }

    /// The place of `user_key` among the entries, as exactly as the index knows it. Reads no data
    /// block.
    ///
    /// # Errors
    /// Those of reading an index partition: `Corruption`, `Unsupported`, `Io`.
    pub fn locate(&self, user_key: &[u8]) -> Result<KeyPlace> {
        let Some(number) = self.index.partition_of(user_key) else {
            return Ok(KeyPlace::behind(self.index.entries()));
        };
        let partition = self.partition(number, ReadClass::Index, true)?;
        let at = partition.find(user_key);
        let block = partition.block(at);
        Ok(KeyPlace {
            block: Some(block.handle),
            before: self.index.entries_before_partition(number) + partition.entries_before(at),
            within: block.stats.entries,
        })
    }

    /// Number of entries whose user key lies before `user_key`, exactly. `place` is the place of
    /// the key. Reads one data block, or none if the key lies behind all keys of the file.
    ///
    /// # Errors
    /// Those of reading a data block: `Corruption`, `Unsupported`, `Io`.
    pub fn rank(&self, place: &KeyPlace, user_key: &[u8]) -> Result<u64> {
        match place.block {
            None => Ok(place.before),
            Some(handle) => {
                let block = self.block(handle, ReadClass::Range, true)?;
                self.rank_in(&block, place, handle, user_key)
            }
        }
    }

    /// Number of entries between two keys, `from` inclusive and `to` exclusive, each with its
    /// place. Reads their data blocks; if both keys lie in one block, it is read once.
    ///
    /// # Errors
    /// As for [`Self::rank`].
    pub fn count_between(
        &self,
        (from_place, from): (&KeyPlace, &[u8]),
        (to_place, to): (&KeyPlace, &[u8]),
    ) -> Result<u64> {
        let (first, end) = match (from_place.block, to_place.block) {
            (Some(handle), Some(other)) if handle == other => {
                let block = self.block(handle, ReadClass::Range, true)?;
                (
                    self.rank_in(&block, from_place, handle, from)?,
                    self.rank_in(&block, to_place, handle, to)?,
                )
            }
            _ => (self.rank(from_place, from)?, self.rank(to_place, to)?),
        };
        Ok(end.saturating_sub(first))
    }

    fn rank_in(&self, block: &Block, place: &KeyPlace, at: Handle, key: &[u8]) -> Result<u64> {
        let inside = block.rank(key).map_err(|damage| self.damaged(damage, at))?;
        Ok(place.before + u64::from(inside))
    }

    /// The data blocks as the index describes them, for tools and tests; no block is read.
    ///
    /// # Errors
    /// Those of reading the index: `Corruption`, `Unsupported`, `Io`.
    pub fn blocks(&self) -> Result<DataBlocks<'_>> {
        Ok(DataBlocks {
            index: self.whole_index(ReadClass::Verify)?,
            external: self.external,
        })
    }

    /// The data block at `handle`, from the block cache or, with a read of the class `class`, from
    /// the file. A block read from the file goes into the cache if `fill` is set.
    #[inline]
    pub(super) fn block(&self, handle: Handle, class: ReadClass, fill: bool) -> Result<Arc<Block>> {
        self.file.note_read(class);
        self.loaded(handle, fill, || self.read(handle, class, fill))
    }

    /// As [`Self::block`] with `fill`, but if the block is not cached, `read` reads it.
    pub(super) fn block_by(
        &self,
        handle: Handle,
        class: ReadClass,
        read: impl FnOnce() -> Result<Block>,
    ) -> Result<Arc<Block>> {
        self.file.note_read(class);
        self.loaded(handle, true, read)
    }

    #[inline]
    fn loaded(
        &self,
        handle: Handle,
        fill: bool,
        read: impl FnOnce() -> Result<Block>,
    ) -> Result<Arc<Block>> {
        read_meter::count_block();
        let load = || Ok(CachedBlock::Block(Arc::new(read()?)));
        match self
            .cache
            .get_or_load(self.key_of(handle.offset), fill, load)?
        {
            CachedBlock::Block(block) => Ok(block),
            _ => Err(self.damaged(TWO_IN_ONE, handle)),
        }
    }

    /// The data block at `handle` if it is cached. This does not count as a use of the block.
    pub(super) fn cached(&self, handle: Handle) -> Option<Arc<Block>> {
        match self.cache.peek(self.key_of(handle.offset))? {
            CachedBlock::Block(block) => Some(block),
            _ => None,
        }
    }

    #[inline]
    fn key_of(&self, offset: u64) -> BlockKey {
        BlockKey {
            file_id: self.file_id,
            offset,
        }
    }

    /// Reads the data block at `handle` from the file. Only its dictionary may come from the block
    /// cache, or go into it if `fill` is set.
    fn read(&self, handle: Handle, class: ReadClass, fill: bool) -> Result<Block> {
        self.read_with(handle, class, fill, &mut UsedDictionaries::default())
    }

    /// As [`Self::read`], for a pass over many blocks, which keeps their dictionaries in `used`.
    pub(super) fn read_with(
        &self,
        handle: Handle,
        class: ReadClass,
        fill: bool,
        used: &mut UsedDictionaries,
    ) -> Result<Block> {
        static STORED: Pool<Vec<u8>> = Pool::new();
        STORED.with(Vec::new, |stored| {
            stored.resize(handle.len as usize, 0);
            let block = self.read_from_any(class, |source| {
                self.fill(source, handle, class, stored)?;
                self.decode(stored, handle, class, fill, used)
            });
            if stored.len() > KEPT_BUFFER {
                *stored = Vec::new();
            }
            block
        })
    }

    /// Checks and decodes the stored data block at `handle`, which was read for the purpose
    /// `class`. Its dictionary comes from `used`, the block cache or the file, and goes into the
    /// block cache if `fill` is set.
    pub(super) fn decode(
        &self,
        stored: &[u8],
        handle: Handle,
        class: ReadClass,
        fill: bool,
        used: &mut UsedDictionaries,
    ) -> Result<Block> {
        let place = (self.file_id, handle.offset);
        let damaged = |damage: DecodeError| self.damaged(damage, handle);
        let (header, payload) = block_frame::check(stored, place).map_err(damaged)?;
        let dictionary = match header.dictionary {
            Some(id) => self.digested_dictionary(id, class, fill, used)?,
            None => None,
        };
        block_frame::expand(&header, payload, dictionary.as_deref())
            .and_then(|raw| Block::new(header.kind, raw))
            .map_err(damaged)
    }

    /// The error that reports `damage` in the block at `handle`, with the file's name.
    #[cold]
    pub(super) fn damaged(&self, damage: DecodeError, handle: Handle) -> Error {
        damage.at(&self.name, handle.offset)
    }
}

/// The buffer of a read stays for later reads, unless it is larger than this many bytes.
const KEPT_BUFFER: usize = 256 << 10;

const TWO_IN_ONE: DecodeError = DecodeError::Corrupt("two blocks in one place");
