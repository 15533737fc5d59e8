//! Reads the entries of a damaged SST that are still intact.
//!
//! If the index is intact, it locates the data blocks. Otherwise they are found by their checksums:
//! each offset that could be the start of a block is tried with each length that the block could
//! have. The checksum covers the offset and the content, so only the right pair of offset and
//! length fits.

use super::SstBlockCache;
use super::block::{Block, BlockIter};
use super::block_frame;
use super::decode_error::DecodeError;
use super::dictionary::{Dictionary, DigestedDictionary};
use super::format::{BlockKind, FOOTER_LEN, Handle, KINDS, RAW_BLOCK_MAX};
use super::properties::Properties;
use super::reader::{SstReader, UsedDictionaries};
use crate::base::key::UNCOMMITTED_BIT;
use crate::base::{
    Error, ErrorKind, InternalIterator, InternalKey, Result, Seqno, Value, checksum,
    encryption_envelope,
};
use crate::env::{ReadClass, ReadFile};
use std::sync::Arc;
use xxhash_rust::xxh3::Xxh3;

/// Bytes of one read.
const READ_SIZE: usize = 1 << 20;

/// Length in bytes of the longest compressed block that is found without an index. Bytes of a
/// damaged block may look like a block header; without this limit, millions of lengths would be
/// tried there.
const COMPRESSED_MAX: usize = 1 << 20;

/// Entries that are lost because a part of a file is damaged.
#[derive(Debug, Clone)]
pub struct LostRange {
    /// The damage, with file and offset.
    pub error: Error,
    /// Number of lost entries, if the index has it.
    pub entries: Option<u64>,
    /// A key at or below all lost entries. With the index: the separator of the block before, or
    /// the file's smallest key. Without it: the last key of the intact block before. `None` if
    /// there is no such block.
    pub from: Option<Vec<u8>>,
    /// A key at or above all lost entries. With the index: the separator of the lost block. Without
    /// it: the first key of the next intact block, or `None` if none follows.
    pub upto: Option<Vec<u8>>,
}

impl LostRange {
    /// An error that describes the loss; `name` formats the keys.
    pub fn named(&self, name: impl Fn(&[u8]) -> String) -> Error {
        let key = |key: &Option<Vec<u8>>, otherwise: &str| {
            key.as_deref().map_or_else(|| otherwise.to_owned(), &name)
        };
        let (from, upto) = (
            key(&self.from, "the start of the file"),
            key(&self.upto, "its end"),
        );
        let what = match self.entries {
            Some(entries) => format!("{entries} entries from {from} to {upto} are lost"),
            None => format!("what lay between {from} and {upto} is lost"),
        };
        let (file, offset) = match self.error.kind() {
            ErrorKind::Corruption { file, offset } => (file.clone(), *offset),
            _ => (String::new(), 0),
        };
        Error::corruption(file, offset, format!("{}: {what}", self.error.message()))
    }
}

/// The data blocks of a damaged file that can still be read.
///
/// Rejected: to take the first length at which a block decompresses. An LZ4 frame has no end mark,
/// so several lengths decompress.
pub struct Salvage {
    file: Arc<dyn ReadFile>,
    file_id: u64,
    name: String,
    dictionaries: UsedDictionaries,
    /// Intact data blocks, in key order.
    blocks: Vec<Handle>,
    lost: Vec<LostRange>,
}

impl Salvage {
    /// Finds the data blocks of `file`. Calls `lost` with an error if the tail is damaged, and with
    /// each read error. The entries that are lost with damaged data blocks are in [`Self::lost`].
    ///
    /// # Errors
    /// Those of the file system that concern the whole file. `Unsupported` if a newer version wrote
    /// the file or if blocks are encrypted, `Unreachable` if the object store does not answer: such
    /// a file is not damaged, and to salvage it without these blocks would lose their data.
    pub fn open(
        file: Arc<dyn ReadFile>,
        file_id: u64,
        name: String,
        cache: Arc<SstBlockCache>,
        lost: &mut dyn FnMut(Error),
    ) -> Result<Arc<Self>> {
        let mut salvage = Self {
            file: Arc::clone(&file),
            file_id,
            name: name.clone(),
            dictionaries: UsedDictionaries::default(),
            blocks: Vec::new(),
            lost: Vec::new(),
        };
        let opened = SstReader::open(file, file_id, name, cache);
        match opened.and_then(|reader| salvage.take_indexed(&reader)) {
            Ok(()) => {}
            Err(error) if error.leaves_bytes_unknown() => return Err(error),
            Err(error) => {
                lost(error);
                salvage.carve(lost)?;
            }
        }
        Ok(Arc::new(salvage))
    }

    /// Takes the locations of the data blocks from the index, and notes damaged blocks in `lost`.
    /// Fails if the index cannot be read, or if this version cannot read a block that is not
    /// damaged.
    fn take_indexed(&mut self, reader: &SstReader) -> Result<()> {
        let index = reader.whole_index(ReadClass::Verify)?;
        self.dictionaries = reader.all_dictionaries(ReadClass::Verify)?;
        let mut before: &[u8] = &reader.properties().smallest;
        for spot in index.spots() {
            let entry = index.block(spot);
            match self.block(entry.handle) {
                Ok(_) => self.blocks.push(entry.handle),
                Err(error) if error.leaves_bytes_unknown() => return Err(error),
                Err(error) => self.lost.push(LostRange {
                    error: Error::corruption(&self.name, entry.handle.offset, error.message()),
                    entries: Some(entry.stats.entries),
                    from: Some(before.to_vec()),
                    upto: Some(index.separator(spot).to_vec()),
                }),
            }
            before = index.separator(spot);
        }
        Ok(())
    }

    /// Finds the blocks without the index, by their checksums. Fails if a block has the right
    /// checksum but this version cannot read it.
    fn carve(&mut self, lost: &mut dyn FnMut(Error)) -> Result<()> {
        let bytes = self.read_all(lost)?;
        let mut found = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            match frame_at(&bytes, at, self.file_id) {
                Some(len) => {
                    let handle = Handle {
                        offset: at as u64,
                        len: len as u32,
                    };
                    let place = (self.file_id, handle.offset);
                    let checked = block_frame::check(&bytes[at..at + len], place);
                    match checked.map_err(|damage| damage.at(&self.name, place.1)) {
                        Ok((header, _)) => {
                            found.push((header.kind, handle));
                            at += len;
                        }
                        Err(error) if error.leaves_bytes_unknown() => return Err(error),
                        Err(_) => at += 1,
                    }
                }
                None => at += 1,
            }
        }
        for &(_, handle) in found.iter().filter(|(k, _)| *k == BlockKind::Properties) {
            let stored = &bytes[handle.offset as usize..handle.end() as usize];
            let place = (self.file_id, handle.offset);
            let decoded = block_frame::open_as(BlockKind::Properties, stored, place)
                .and_then(|raw| Properties::decode(&raw));
            let decoded = decoded.map_err(|damage| damage.at(&self.name, handle.offset));
            if let Err(error) = decoded
                && error.is_unsupported()
            {
                return Err(error);
            }
        }
        for &(_, handle) in found.iter().filter(|(k, _)| *k == BlockKind::Dictionary) {
            let stored = &bytes[handle.offset as usize..handle.end() as usize];
            let place = (self.file_id, handle.offset);
            let raw = block_frame::open_as(BlockKind::Dictionary, stored, place);
            let digested = raw.and_then(|raw| DigestedDictionary::of(&Dictionary::new(raw)));
            if let Ok(dictionary) = digested {
                self.dictionaries.add(Arc::new(dictionary));
            }
        }
        let size = bytes.len() as u64;
        drop(bytes);
        let mut damaged = gaps(&found, size);
        for (_, handle) in found.into_iter().filter(|(kind, _)| kind.is_data()) {
            match self.block(handle) {
                Ok(_) => self.blocks.push(handle),
                Err(error) if error.leaves_bytes_unknown() => return Err(error),
                Err(error) => damaged.push((handle.offset, error.message().to_owned())),
            }
        }
        for (offset, message) in damaged {
            let error = Error::corruption(&self.name, offset, message);
            let next = self.blocks.partition_point(|block| block.offset < offset);
            let before = next.checked_sub(1).map(|at| self.blocks[at]);
            self.lost.push(LostRange {
                error,
                entries: None,
                from: before.and_then(|block| self.end_of(block, true)),
                upto: self
                    .blocks
                    .get(next)
                    .and_then(|block| self.end_of(*block, false)),
            });
        }
        Ok(())
    }

    /// The first or last user key of an intact block.
    fn end_of(&self, block: Handle, last: bool) -> Option<Vec<u8>> {
        let mut cursor = BlockIter::default();
        cursor.enter(Arc::new(self.block(block).ok()?));
        let mut on = cursor.seek_to_first().ok()?;
        let mut key = None;
        while on {
            key = Some(cursor.key().user_key.to_vec());
            on = last && cursor.next().ok()?;
        }
        key
    }

    /// The ranges of entries that are lost.
    pub fn lost(&self) -> &[LostRange] {
        &self.lost
    }

    /// The bytes of the file, with zeros in place of those that cannot be read; each read error is
    /// passed to `lost`.
    fn read_all(&self, lost: &mut dyn FnMut(Error)) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.file.size()? as usize];
        for (number, piece) in bytes.chunks_mut(READ_SIZE).enumerate() {
            let offset = (number * READ_SIZE) as u64;
            match self.file.read_exact_at(ReadClass::Verify, offset, piece) {
                Err(error) if error.is_unreachable() => return Err(error),
                Err(error) => {
                    piece.fill(0);
                    lost(error);
                }
                Ok(()) => {}
            }
        }
        Ok(bytes)
    }

    fn block(&self, handle: Handle) -> Result<Block> {
        let mut stored = vec![0; handle.len as usize];
        self.file
            .read_exact_at(ReadClass::Verify, handle.offset, &mut stored)?;
        block_frame::check(&stored, (self.file_id, handle.offset))
            .and_then(|(header, payload)| {
                let named = header.dictionary;
                let dictionary = named.and_then(|id| self.dictionaries.find(id));
                let raw = block_frame::expand(&header, payload, dictionary.map(|d| &**d))?;
                Block::new(header.kind, raw)
            })
            .map_err(|damage| damage.at(&self.name, handle.offset))
    }

    /// An iterator over the entries of the intact blocks, forwards only. If a block that was intact
    /// before cannot be read now, the iteration ends with an error. `external` is the seqno of the
    /// commit that made the file visible, if the file got its seqno in that way
    /// ([`SstReader::external_seqno`]): all entries show it. If `external` is `None`, the iterator
    /// leaves out the entries whose stored seqno is one of an uncommitted write, because nobody
    /// knows whether their transaction has committed.
    pub fn iter(self: &Arc<Self>, external: Option<Seqno>) -> SalvageIter {
        SalvageIter {
            salvage: Arc::clone(self),
            external,
            next: 0,
            cursor: BlockIter::default(),
        }
    }
}

/// The offsets of the gaps between intact blocks, each with a message that states the size of the
/// gap.
fn gaps(found: &[(BlockKind, Handle)], size: u64) -> Vec<(u64, String)> {
    let mut gaps = Vec::new();
    let mut end = 0;
    let starts = found
        .iter()
        .map(|(_, handle)| (handle.offset, handle.end()));
    // The footer follows the last block. It is no block, so it must not count as a gap.
    let behind = size.saturating_sub(FOOTER_LEN as u64);
    for (start, next) in starts.chain([(behind, size)]) {
        if start > end {
            gaps.push((end, format!("{} bytes are lost", start - end)));
        }
        end = next;
    }
    gaps
}

/// The length of the stored block at `at`, if there is one. A block that is encrypted or of a
/// reserved kind counts too.
fn frame_at(bytes: &[u8], at: usize, file_id: u64) -> Option<usize> {
    const HEADER: usize = 8;
    const CHECKSUM: usize = 8;
    let header = bytes.get(at..at + HEADER)?;
    // Check the header first: otherwise all lengths of a block would be tried at every offset of
    // the file.
    if header[0] > 3 || !KINDS.contains(&header[1]) || header[3] != 0 {
        return None;
    }
    let sealed = match header[2] {
        encryption_envelope::NONE => 0,
        encryption_envelope::AES_256_GCM => {
            encryption_envelope::HEAD_LEN + encryption_envelope::TAG_LEN
        }
        _ => return None,
    };
    let raw_len = u32::from_le_bytes(header[4..].try_into().expect("four bytes")) as usize;
    if raw_len > RAW_BLOCK_MAX {
        return None;
    }
    // A block that would not shrink is stored raw, so a compressed payload is no longer than the
    // raw bytes. The id of a dictionary may precede it.
    let (shortest, longest) = match header[0] {
        0 => (HEADER + raw_len + sealed, HEADER + raw_len + sealed),
        _ => (
            HEADER + sealed,
            HEADER + size_of::<u32>() + raw_len.min(COMPRESSED_MAX) + sealed,
        ),
    };
    if bytes.len() - at < shortest + CHECKSUM {
        return None;
    }
    let term = checksum::place_term(file_id, at as u64);
    let mut sum = Xxh3::new();
    sum.update(&bytes[at..at + shortest]);
    for covered in shortest..=longest {
        let end = at + covered;
        let stored = bytes.get(end..end + CHECKSUM)?;
        let stored = u64::from_le_bytes(stored.try_into().expect("eight bytes"));
        if sum.digest().wrapping_add(term) == stored {
            return Some(covered + CHECKSUM);
        }
        sum.update(&bytes[end..end + 1]);
    }
    None
}

/// The entries of the intact blocks, in order.
pub struct SalvageIter {
    salvage: Arc<Salvage>,
    external: Option<Seqno>,
    /// Number of the block to enter next.
    next: usize,
    cursor: BlockIter,
}

impl SalvageIter {
    /// Enters the next block that has an entry, and moves to its first entry.
    fn enter_next(&mut self) -> Result<bool> {
        while let Some(&handle) = self.salvage.blocks.get(self.next) {
            self.next += 1;
            let block = self.salvage.block(handle)?;
            self.cursor.enter(Arc::new(block));
            let found = self.cursor.seek_to_first();
            if found.map_err(|damage| self.damaged(damage))? {
                return Ok(true);
            }
        }
        self.cursor.leave();
        Ok(false)
    }

    fn step(&mut self) -> Result<bool> {
        match self.cursor.next() {
            Ok(true) => Ok(true),
            Ok(false) => self.enter_next(),
            Err(damage) => Err(self.damaged(damage)),
        }
    }

    /// Skips entries with an uncommitted seqno, which is a position in a write set. If there is an
    /// external seqno, the transaction is known to be committed and its entries are kept.
    fn pass_uncommitted(&mut self, mut on: bool) -> Result<bool> {
        while on && self.external.is_none() && self.cursor.key().seqno & UNCOMMITTED_BIT != 0 {
            on = self.step()?;
        }
        Ok(on)
    }

    fn damaged(&self, damage: DecodeError) -> Error {
        let at = self
            .next
            .checked_sub(1)
            .map_or(0, |i| self.salvage.blocks[i].offset);
        damage.at(&self.salvage.name, at)
    }
}

const FORWARDS_ONLY: &str = "a salvaged file is read forwards";

impl InternalIterator for SalvageIter {
    fn seek_to_first(&mut self) -> Result<bool> {
        self.next = 0;
        let on = self.enter_next()?;
        self.pass_uncommitted(on)
    }

    fn next(&mut self) -> Result<bool> {
        let on = self.step()?;
        self.pass_uncommitted(on)
    }

    fn seek_to_last(&mut self) -> Result<bool> {
        Err(Error::unsupported(FORWARDS_ONLY))
    }

    fn seek(&mut self, _: &[u8], _: Seqno) -> Result<bool> {
        Err(Error::unsupported(FORWARDS_ONLY))
    }

    fn seek_before(&mut self, _: &[u8]) -> Result<bool> {
        Err(Error::unsupported(FORWARDS_ONLY))
    }

    fn prev(&mut self) -> Result<bool> {
        Err(Error::unsupported(FORWARDS_ONLY))
    }

    fn valid(&self) -> bool {
        self.cursor.valid()
    }

    fn key(&self) -> InternalKey<'_> {
        let key = self.cursor.key();
        match self.external {
            None => key,
            Some(seqno) => InternalKey { seqno, ..key },
        }
    }

    fn value(&self) -> Value<'_> {
        self.cursor.value()
    }
}
