//! Long buffers of zeros of which few bytes are ever written.

use memmap2::MmapMut;
use std::ops::{Deref, DerefMut};

/// Buffers of this size and more, bytes, are pages of their own.
const PAGES_MIN: usize = 1 << 20;

/// A buffer that begins with zeros. The pages of a long one take no memory until they are written.
///
/// Rejected: zeroed memory of the allocator. It may consist of pages that were used before, which
/// the allocator then clears, so that each of them takes memory.
#[derive(Debug)]
pub(super) enum ZeroedBytes {
    Heap(Vec<u8>),
    Pages(MmapMut),
}

impl ZeroedBytes {
    /// `len` zeros. Without room for a mapping of its own, the buffer comes from the allocator.
    pub(super) fn new(len: usize) -> Self {
        let pages = (len >= PAGES_MIN).then(|| MmapMut::map_anon(len));
        match pages {
            Some(Ok(pages)) => Self::Pages(pages),
            _ => Self::Heap(vec![0; len]),
        }
    }
}

impl Default for ZeroedBytes {
    fn default() -> Self {
        Self::Heap(Vec::new())
    }
}

impl Deref for ZeroedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Heap(bytes) => bytes,
            Self::Pages(pages) => pages,
        }
    }
}

impl DerefMut for ZeroedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Heap(bytes) => bytes,
            Self::Pages(pages) => pages,
        }
    }
}
