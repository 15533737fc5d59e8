//! Opens an SST.

use super::SstReader;
use crate::base::{Result, Seqno};
use crate::env::{ReadClass, ReadFile};
use crate::sst::SstBlockCache;
use crate::sst::block_frame;
use crate::sst::decode_error::{DecodeError, Decoded};
use crate::sst::dictionary::DICTIONARIES_MAX;
use crate::sst::filter::Filter;
use crate::sst::format::{BlockKind, FOOTER_LEN, Footer, Handle};
use crate::sst::index::Index;
use crate::sst::properties::Properties;
use std::sync::Arc;

/// Estimated bytes of memory that a decoded index takes, for each of its stored bytes.
const DECODED_FACTOR: u64 = 2;

/// Estimated bytes of memory that an open file takes beside its reader: the entry among the open
/// files with its path, and allocator headers.
const FILE_OVERHEAD: usize = 512;

/// Facts about a file that its opener knows from the manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenHints {
    /// The seqno that all entries show; see [`SstReader::external_seqno`]. With `None`, entries
    /// show their stored seqnos, even if these are not the seqnos of commits.
    pub external: Option<Seqno>,
    /// Whether the file belongs to a level above the last. Such a file may use more of the pin
    /// budget for its index partitions than others; see [`crate::cache::PinBudget`].
    pub upper_level: bool,
    /// Length of the file's tail in bytes, or 0 if it is not known. If it is known and the pin
    /// budget has room, one read takes the whole tail.
    pub tail_len: u64,
}

impl Default for OpenHints {
    fn default() -> Self {
        Self {
            external: None,
            upper_level: true,
            tail_len: 0,
        }
    }
}

/// The tail of the file without the footer: the bytes between the data blocks and the footer.
struct MetaRegion<'a> {
    file: &'a dyn ReadFile,
    /// The bytes from `start` to `end`, if they were read at once. Empty otherwise: each block is
    /// then read by itself.
    bytes: Vec<u8>,
    start: u64,
    end: u64,
    file_id: u64,
    name: &'a str,
}

impl<'a> MetaRegion<'a> {
    /// Reads and decodes the footer, and nothing else yet.
    fn of(file: &'a dyn ReadFile, file_id: u64, name: &'a str) -> Result<(Self, Footer)> {
        let size = file.size()?;
        let Some(end) = size.checked_sub(FOOTER_LEN as u64) else {
            return Err(DecodeError::Corrupt("file shorter than an SST footer").at(name, 0));
        };
        let mut footer = [0; FOOTER_LEN];
        file.read_exact_at(ReadClass::Index, end, &mut footer)?;
        let footer =
            Footer::decode(&footer, file_id, size).map_err(|damage| damage.at(name, end))?;
        let meta = Self {
            file,
            bytes: Vec::new(),
            start: footer.meta_offset,
            end,
            file_id,
            name,
        };
        Ok((meta, footer))
    }

    /// Reads the last `tail_len` bytes of the file at once: the tail with the footer. `tail_len` is
    /// at least the length of the footer.
    fn with_tail(
        file: &'a dyn ReadFile,
        file_id: u64,
        name: &'a str,
        tail_len: u64,
    ) -> Result<(Self, Footer)> {
        let size = file.size()?;
        let start = size.saturating_sub(tail_len);
        let mut bytes = vec![0; (size - start) as usize];
        file.read_exact_at(ReadClass::Index, start, &mut bytes)?;
        let end = size - FOOTER_LEN as u64;
        let footer = bytes.last_chunk().expect("the caller has compared lengths");
        let footer =
            Footer::decode(footer, file_id, size).map_err(|damage| damage.at(name, end))?;
        bytes.truncate(bytes.len() - FOOTER_LEN);
        let meta = Self {
            file,
            bytes,
            start,
            end,
            file_id,
            name,
        };
        Ok((meta, footer))
    }

    /// Reads all bytes of the region at once.
    fn read_all(&mut self) -> Result<()> {
        self.bytes.resize((self.end - self.start) as usize, 0);
        self.file
            .read_exact_at(ReadClass::Index, self.start, &mut self.bytes)
    }

    /// Reads, checks and decodes the block at `handle`. Errors have the file's name and the block's
    /// offset.
    fn block<T>(
        &self,
        kind: BlockKind,
        handle: Handle,
        decode: impl FnOnce(&[u8]) -> Decoded<T>,
    ) -> Result<T> {
        let named = |damage: DecodeError| damage.at(self.name, handle.offset);
        if handle.offset < self.start || handle.end() > self.end {
            return Err(named(DecodeError::Corrupt("handle outside the file")));
        }
        let mut read = Vec::new();
        let stored = if self.bytes.is_empty() {
            read.resize(handle.len as usize, 0);
            self.file
                .read_exact_at(ReadClass::Index, handle.offset, &mut read)?;
            &read
        } else {
            let start = (handle.offset - self.start) as usize;
            &self.bytes[start..start + handle.len as usize]
        };
        block_frame::open_as(kind, stored, (self.file_id, handle.offset))
            .and_then(|raw| decode(&raw))
            .map_err(named)
    }

    fn properties(&self, handle: Handle) -> Result<Properties> {
        // Dictionaries are read when a block needs one. Check here that they lie in the tail, so
        // that a damaged handle is found now, and never decides how many bytes are allocated.
        let outside = |handle: &Handle| handle.offset < self.start || handle.end() > self.end;
        self.block(BlockKind::Properties, handle, |raw| {
            let properties = Properties::decode(raw)?;
            let mut dictionaries = properties.dictionaries.iter();
            if properties.file_id != self.file_id
                || properties.dictionaries.len() > DICTIONARIES_MAX
                || dictionaries.any(|(_, handle)| outside(handle))
            {
                return Err(DecodeError::Corrupt("properties contradict the footer"));
            }
            Ok(properties)
        })
    }

    /// The index `top`, completed with all partitions.
    fn whole(&self, top: &Index, top_handle: Handle) -> Result<Index> {
        let index = top.with_all(|number, data_end| {
            let entry = top.top(number);
            let filter = match entry.filter.len {
                0 => None,
                _ => Some(self.block(BlockKind::Filter, entry.filter, Filter::decode)?),
            };
            self.block(BlockKind::IndexPartition, entry.index, |raw| {
                let partition = top.decode(number, data_end, raw, filter)?;
                Ok(Arc::new(partition))
            })
        })?;
        if index.data_end() != self.start {
            let damage = DecodeError::Corrupt("index contradicts properties or footer");
            return Err(damage.at(self.name, top_handle.offset));
        }
        Ok(index)
    }
}

impl SstReader {
    /// Opens `file`, which must have id `file_id`, with default hints: as a file of an upper level
    /// whose stored seqnos are shown. Errors call the file `name`.
    ///
    /// # Errors
    /// As [`Self::open_at`].
    pub fn open(
        file: Arc<dyn ReadFile>,
        file_id: u64,
        name: String,
        cache: Arc<SstBlockCache>,
    ) -> Result<Arc<Self>> {
        Self::open_at(file, file_id, name, cache, OpenHints::default())
    }

    /// Reads the properties of `file`, which must have id `file_id`, without opening it: only the
    /// footer and the properties are read.
    ///
    /// # Errors
    /// As [`Self::open_at`].
    pub fn read_properties(file: &dyn ReadFile, file_id: u64, name: &str) -> Result<Properties> {
        let (meta, footer) = MetaRegion::of(file, file_id, name)?;
        meta.properties(footer.properties)
    }

    /// Opens `file`, which must have id `file_id`. Errors call the file `name`.
    ///
    /// # Errors
    /// `Corruption` if a byte of the tail is damaged. If the pin budget has no room for the index
    /// partitions and filters, these are not read here, and damage is found when they are loaded.
    /// `Unsupported` if a newer version wrote the file or it is encrypted; `Io`.
    pub fn open_at(
        file: Arc<dyn ReadFile>,
        file_id: u64,
        name: String,
        cache: Arc<SstBlockCache>,
        hints: OpenHints,
    ) -> Result<Arc<Self>> {
        let OpenHints {
            external,
            upper_level,
            tail_len,
        } = hints;
        let size = file.size()?;
        let possible = FOOTER_LEN as u64..=size;
        let room = |len: u64| cache.pins().has_room(len * DECODED_FACTOR, upper_level);
        let (meta, footer, pinned) = if possible.contains(&tail_len) && room(tail_len) {
            let (meta, footer) = MetaRegion::with_tail(&*file, file_id, &name, tail_len)?;
            (meta, footer, true)
        } else {
            let (mut meta, footer) = MetaRegion::of(&*file, file_id, &name)?;
            let pinned = room(meta.end - meta.start);
            if pinned {
                meta.read_all()?;
            }
            (meta, footer, pinned)
        };
        if tail_len > 0 && footer.meta_offset != size.saturating_sub(tail_len) {
            let damage = DecodeError::Corrupt("the tail is not as long as the manifest says");
            return Err(damage.at(&name, footer.meta_offset));
        }
        let properties = meta.properties(footer.properties)?;
        let mut index = meta.block(BlockKind::TopIndex, footer.top_index, Index::decode_top)?;
        if index.entries() != properties.entries {
            let damage = DecodeError::Corrupt("index contradicts properties or footer");
            return Err(damage.at(&name, footer.top_index.offset));
        }
        let held = FILE_OVERHEAD
            + size_of::<Self>()
            + name.len()
            + index.top_memory()
            + properties.memory();
        let mut pin = None;
        if pinned {
            let whole = meta.whole(&index, footer.top_index)?;
            let all = (held + whole.partitions_memory()) as u64;
            pin = cache.pins().grant(all, upper_level);
            if pin.is_some() {
                index = whole;
            }
        }
        let pin = pin.unwrap_or_else(|| cache.pins().charge(held as u64));
        Ok(Arc::new(Self {
            file,
            file_id,
            size,
            cache,
            properties,
            index,
            data_end: footer.meta_offset,
            external,
            pin,
            name,
        }))
    }
}
