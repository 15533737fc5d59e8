//! Reads past the page cache.
//!
//! The caches above hold decoded blocks; the page cache would hold their stored form once more, in
//! memory that no limit of ours counts. Direct I/O wants aligned memory, places and lengths, so a
//! read goes through a buffer of the thread and is copied out: little beside the read itself.

use super::{AlignedBuf, BLOCK, ReadFile};
use crate::base::{Error, Result};
use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// A buffer over this size is given back after the read.
const KEPT_BUFFER: usize = 1 << 20;

thread_local! {
    static BUFFER: RefCell<AlignedBuf> = RefCell::default();
}

/// A file opened for direct reads.
pub(super) struct DirectRead {
    file: File,
    name: String,
}

impl DirectRead {
    pub(super) fn new(file: File, path: &Path) -> Self {
        Self {
            file,
            name: path.display().to_string(),
        }
    }

    /// Reads whole blocks until `wanted` bytes are there.
    fn fill(&self, start: u64, blocks: &mut [u8], wanted: usize) -> std::io::Result<()> {
        let mut done = 0;
        while done < wanted {
            match self.file.read_at(&mut blocks[done..], start + done as u64) {
                Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                // What follows a read that ends within a block is the end of the file.
                Ok(n) if n % BLOCK != 0 && done + n < wanted => {
                    return Err(std::io::ErrorKind::UnexpectedEof.into());
                }
                Ok(n) => done += n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

impl ReadFile for DirectRead {
    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let skip = (offset % BLOCK as u64) as usize;
        let wanted = skip + buf.len();
        BUFFER.with_borrow_mut(|blocks| {
            blocks.set_len(wanted.next_multiple_of(BLOCK));
            let read = self.fill(offset - skip as u64, blocks.as_mut_slice(), wanted);
            read.map_err(|e| Error::io(&e, format_args!("read {} at {offset}", self.name)))?;
            buf.copy_from_slice(&blocks.as_slice()[skip..wanted]);
            if blocks.len() > KEPT_BUFFER {
                *blocks = AlignedBuf::new();
            }
            Ok(())
        })
    }

    fn size(&self) -> Result<u64> {
        let metadata = self.file.metadata();
        let size = metadata.map(|m| m.len());
        size.map_err(|e| Error::io(&e, format_args!("stat {}", self.name)))
    }
}

#[cfg(test)]
mod tests;
