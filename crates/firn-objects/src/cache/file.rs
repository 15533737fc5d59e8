//! An object through the cache.

use super::Shared;
use super::chunk::ChunkFile;
use super::read::{CachedRead, Touch, Verify};
use crate::error::Result;
use std::ops::Range;
use std::sync::Arc;

/// See the module. Clones are the same file.
#[derive(Clone)]
pub struct CachedFile {
    pub(super) shared: Arc<Shared>,
    pub(super) file: Arc<ChunkFile>,
}

impl CachedFile {
    pub(super) fn new(shared: Arc<Shared>, file: Arc<ChunkFile>) -> Self {
        Self { shared, file }
    }

    /// The name of the object.
    pub fn name(&self) -> &str {
        self.file.name()
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.file.bytes()
    }

    /// Bytes that `verify` accepts.
    ///
    /// # Errors
    /// Of the store; `Damaged` if the object itself fails the check.
    pub fn read(&self, range: Range<u64>, verify: Verify<'_>) -> Result<CachedRead> {
        self.shared.read(&self.file, range, Touch::Yes, verify)
    }

    /// Bytes of the file have failed a check of the caller: drops all chunks that are there.
    pub fn distrust(&self) {
        for chunk in self.file.chunks_of(&(0..self.bytes())) {
            if let Some(seen) = self.file.seen(chunk) {
                self.shared.drop_chunk(&self.file, chunk, seen);
            }
        }
    }

    /// As [`Self::read`], without leaving anything in the cache.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_past_cache(&self, range: Range<u64>, verify: Verify<'_>) -> Result<Vec<u8>> {
        self.shared.read_past(&self.file, range, verify)
    }
}
