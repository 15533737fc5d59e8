//! Reads that bypass the page cache.
//!
//! The block cache holds decoded blocks. The page cache would hold their stored form as well, in
//! memory that the engine's limits do not count. Direct I/O needs aligned memory, offsets and
//! lengths, so a read goes into a buffer of a pool and is copied out, which costs little beside the
//! read. If the read was announced, [`Prefetcher`] has begun it already, and the bytes are
//! copied from there.

use super::prefetch::{PrefetchBatch, Prefetcher, fill};
use super::{AlignedBuf, BLOCK, ReadClass, ReadFile};
use crate::base::pool::Pool;
use crate::base::{Error, Result};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// The buffer of a read stays for later reads, unless it is larger than this many bytes.
const KEPT_BUFFER: usize = 256 << 10;

static BUFFERS: Pool<AlignedBuf> = Pool::new();

/// A file opened for direct reads. The file must not change while it is open.
pub(super) struct DirectRead {
    file: Arc<File>,
    prefetched: Arc<Prefetcher>,
    name: String,
}

impl DirectRead {
    pub(super) fn new(file: File, path: &Path, prefetched: &Arc<Prefetcher>) -> Self {
        Self {
            file: Arc::new(file),
            prefetched: Arc::clone(prefetched),
            name: path.display().to_string(),
        }
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<()> {
        let skip = (offset % BLOCK as u64) as usize;
        let wanted = skip + buf.len();
        BUFFERS.with(AlignedBuf::new, |blocks| {
            blocks.set_len(wanted.next_multiple_of(BLOCK));
            let found = fill(&self.file, offset - skip as u64, blocks.as_mut_slice())?;
            if found < wanted {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            buf.copy_from_slice(&blocks.as_slice()[skip..wanted]);
            if blocks.len() > KEPT_BUFFER {
                *blocks = AlignedBuf::new();
            }
            Ok(())
        })
    }
}

impl ReadFile for DirectRead {
    fn read_exact_at(&self, _: ReadClass, offset: u64, buf: &mut [u8]) -> Result<()> {
        if self.prefetched.take(&self.file, offset, buf) {
            return Ok(());
        }
        self.read(offset, buf)
            .map_err(|e| Error::io(&e, format_args!("read {} at {offset}", self.name)))
    }

    fn size(&self) -> Result<u64> {
        let metadata = self.file.metadata();
        let size = metadata.map(|m| m.len());
        size.map_err(|e| Error::io(&e, format_args!("stat {}", self.name)))
    }

    fn prefetch(&self, offset: u64, len: u64, reads: &mut PrefetchBatch) {
        reads.push_direct(&self.prefetched, &self.file, offset, len);
    }
}

impl Drop for DirectRead {
    fn drop(&mut self) {
        self.prefetched.forget(&self.file);
    }
}

#[cfg(test)]
mod tests;
