//! Sorted runs in temporary files: a sorter writes them when its memory is full.
//!
//! The process that wrote such a file reads it once, from start to end. It is removed when the run
//! is dropped, or by the next open after a crash. So it needs no index, no filter and no sync. It
//! is a sequence of blocks of packed entries, each block compressed and with a checksum that covers
//! its offset.

use super::sort_buffer::LoadEntry;
use crate::base::checksum::placed;
use crate::base::{Error, Result};
use crate::env::{AppendFile, PrefetchBatch, ReadClass, ReadFile};
use crate::store::{FileId, FileKind, FileStore, file_name};
use std::sync::Arc;

/// Number of packed bytes at which a block ends. An entry that is larger makes a larger block.
pub(super) const BLOCK: usize = 64 << 10;
/// Number of blocks for which the reader begins a prefetch ahead.
const AHEAD: usize = 4;
const CHECKSUM: usize = 8;

struct BlockAt {
    offset: u64,
    /// Stored bytes, checksum included.
    stored: usize,
    packed: usize,
    compressed: bool,
}

/// A file that is removed when this is dropped.
struct TempFile {
    store: FileStore,
    id: FileId,
}

impl TempFile {
    fn damaged(&self, offset: u64, what: &str) -> Error {
        Error::corruption(file_name(FileKind::Sort, self.id), offset, what)
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        // If the removal fails, the next open repeats it.
        let _ = self.store.remove_sort(self.id);
    }
}

/// Writes a sorted run. The caller adds the entries in order.
pub(super) struct TempRunWriter {
    out: Box<dyn AppendFile>,
    file: TempFile,
    blocks: Vec<BlockAt>,
    packed: Vec<u8>,
    stored: Vec<u8>,
}

impl TempRunWriter {
    pub(super) fn create(store: &FileStore, id: FileId) -> Result<Self> {
        let out = store.create_sort(id)?;
        Ok(Self {
            out,
            file: TempFile {
                store: store.clone(),
                id,
            },
            blocks: Vec::new(),
            packed: Vec::with_capacity(BLOCK),
            stored: Vec::new(),
        })
    }

    pub(super) fn add(&mut self, entry: LoadEntry<'_>) -> Result<()> {
        entry.pack(&mut self.packed);
        match self.packed.len() >= BLOCK {
            true => self.end_block(),
            false => Ok(()),
        }
    }

    /// Bytes written so far.
    pub(super) fn bytes(&self) -> u64 {
        self.out.len()
    }

    fn end_block(&mut self) -> Result<()> {
        let offset = self.out.len();
        let most = lz4_flex::block::get_maximum_output_size(self.packed.len());
        self.stored.clear();
        self.stored.resize(most, 0);
        let len = lz4_flex::block::compress_into(&self.packed, &mut self.stored);
        let len = len.ok().filter(|len| *len < self.packed.len());
        let bytes = match len {
            Some(len) => &self.stored[..len],
            None => &self.packed[..],
        };
        let sum = placed(bytes, self.file.id, offset);
        self.out.append(&sum.to_le_bytes())?;
        self.out.append(bytes)?;
        self.blocks.push(BlockAt {
            offset,
            stored: CHECKSUM + bytes.len(),
            packed: self.packed.len(),
            compressed: len.is_some(),
        });
        self.packed.clear();
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<TempRun> {
        if !self.packed.is_empty() {
            self.end_block()?;
        }
        self.out.flush()?;
        Ok(TempRun {
            file: self.file,
            blocks: self.blocks,
        })
    }
}

/// A complete sorted run, not open.
pub(super) struct TempRun {
    file: TempFile,
    blocks: Vec<BlockAt>,
}

impl TempRun {
    /// Opens the run at its first entry.
    pub(super) fn read(self) -> Result<TempRunReader> {
        let input = self.file.store.open_sort(self.file.id)?;
        let mut reader = TempRunReader {
            input,
            run: self,
            next_block: 0,
            packed: Vec::new(),
            stored: Vec::new(),
            at: 0,
            next: 0,
        };
        reader.advance()?;
        Ok(reader)
    }
}

/// Reads the entries of a sorted run in key order.
pub(super) struct TempRunReader {
    // Fields are dropped in the order of their declaration: this one is first, so that the file is
    // closed before it is removed.
    input: Arc<dyn ReadFile>,
    run: TempRun,
    next_block: usize,
    packed: Vec<u8>,
    stored: Vec<u8>,
    /// Offset in `packed` of the current entry; `next` is that of the entry after it.
    at: usize,
    next: usize,
}

impl TempRunReader {
    /// The current entry; `None` behind the last one.
    pub(super) fn entry(&self) -> Option<LoadEntry<'_>> {
        LoadEntry::take(&mut self.packed.get(self.at..self.next)?)
    }

    pub(super) fn advance(&mut self) -> Result<()> {
        self.at = self.next;
        if self.at == self.packed.len() && !self.load()? {
            return Ok(());
        }
        let mut rest = &self.packed[self.at..];
        let whole = LoadEntry::take(&mut rest);
        self.next = self.packed.len() - rest.len();
        whole.map(|_| ()).ok_or_else(|| {
            let offset = self.run.blocks[self.next_block - 1].offset;
            self.run.file.damaged(offset, "an entry is cut")
        })
    }

    /// Loads the next block; `false` if there is none.
    fn load(&mut self) -> Result<bool> {
        (self.at, self.next) = (0, 0);
        self.packed.clear();
        let blocks = &self.run.blocks;
        let Some(block) = blocks.get(self.next_block) else {
            return Ok(false);
        };
        if self.next_block.is_multiple_of(AHEAD)
            && let Some(first) = blocks.get(self.next_block + AHEAD)
        {
            let ahead = &blocks[self.next_block + AHEAD..];
            let len = ahead.iter().take(AHEAD).map(|b| b.stored as u64).sum();
            let mut reads = PrefetchBatch::default();
            self.input.prefetch(first.offset, len, &mut reads);
            reads.start();
        }
        self.next_block += 1;
        self.stored.resize(block.stored, 0);
        self.input
            .read_exact_at(ReadClass::Load, block.offset, &mut self.stored)?;
        let (sum, bytes) = self.stored.split_at(CHECKSUM);
        if sum != placed(bytes, self.run.file.id, block.offset).to_le_bytes() {
            return Err(self.run.file.damaged(block.offset, "checksum of a block"));
        }
        if block.compressed {
            self.packed.resize(block.packed, 0);
            let len = lz4_flex::block::decompress_into(bytes, &mut self.packed).ok();
            if len != Some(block.packed) {
                return Err(self.run.file.damaged(block.offset, "a compressed block"));
            }
        } else {
            self.packed.extend_from_slice(bytes);
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
