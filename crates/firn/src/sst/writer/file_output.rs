//! The file of an SST writer: appends stored blocks and computes the checksum of all bytes.

use crate::base::Result;
use crate::env::AppendFile;
use crate::sst::block_compression::{Payload, StoredCodec};
use crate::sst::block_frame;
use crate::sst::format::{BlockKind, Handle};
use xxhash_rust::xxh3::Xxh3;

pub(super) struct Output {
    file: Box<dyn AppendFile>,
    file_id: u64,
    sum: Xxh3,
    offset: u64,
    stored: Vec<u8>,
}

impl Output {
    pub(super) fn new(file: Box<dyn AppendFile>, file_id: u64) -> Self {
        Self {
            file,
            file_id,
            sum: Xxh3::new(),
            offset: 0,
            stored: Vec::new(),
        }
    }

    /// Number of bytes appended so far.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    fn append(&mut self) -> Result<()> {
        self.sum.update(&self.stored);
        self.offset += self.stored.len() as u64;
        self.file.append(&self.stored)
    }

    /// Appends a block and returns its handle.
    pub(super) fn block(
        &mut self,
        kind: BlockKind,
        payload: Payload<'_>,
        raw_len: usize,
    ) -> Result<Handle> {
        self.stored.clear();
        let place = (self.file_id, self.offset);
        let handle = block_frame::put(&mut self.stored, kind, payload, raw_len, place);
        self.append()?;
        Ok(handle)
    }

    /// Appends a stored data block of another file. `from` is the block's file id and offset there,
    /// which its checksum covers; the checksum is adapted.
    pub(super) fn copy(&mut self, stored: &[u8], from: (u64, u64)) -> Result<Handle> {
        self.stored.clear();
        self.stored.extend_from_slice(stored);
        let offset = self.offset;
        block_frame::relocate(&mut self.stored, from, (self.file_id, offset));
        self.append()?;
        Ok(Handle {
            offset,
            len: stored.len() as u32,
        })
    }

    /// Appends a block without compression.
    pub(super) fn raw_block(&mut self, kind: BlockKind, raw: &[u8]) -> Result<Handle> {
        self.block(kind, (StoredCodec::None, 0, raw), raw.len())
    }

    /// Appends the footer. If `synced`, syncs the file, else only hands all bytes to the operating
    /// system. Returns the size and the checksum of the whole file.
    pub(super) fn finish(mut self, footer: &[u8], synced: bool) -> Result<(u64, u64)> {
        self.stored.clear();
        self.stored.extend_from_slice(footer);
        self.append()?;
        match synced {
            true => self.file.sync()?,
            false => self.file.flush()?,
        }
        Ok((self.offset, self.sum.digest()))
    }
}
