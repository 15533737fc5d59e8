//! Where decoded blobs live while the record buffer points at them.

/// An arena for the blobs of the rows last decoded.
///
/// Bytes stay where they are until [`BlobBuf::clear`]: a chunk is never grown, a new one is added.
#[derive(Debug, Default)]
pub struct BlobBuf {
    chunks: Vec<Vec<u8>>,
}

const FIRST_CHUNK: usize = 4096;

impl BlobBuf {
    /// An empty arena; allocates nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets all bytes; pointers into the arena become invalid. Keeps the largest chunk.
    pub fn clear(&mut self) {
        if self.chunks.len() > 1 {
            // Each chunk is at least twice as large as the one before.
            self.chunks.drain(..self.chunks.len() - 1);
        }
        if let Some(chunk) = self.chunks.last_mut() {
            chunk.clear();
        }
    }

    /// Copies `bytes` in; the address is good until [`BlobBuf::clear`]. Null for no bytes.
    pub fn put(&mut self, bytes: &[u8]) -> *const u8 {
        if bytes.is_empty() {
            return std::ptr::null();
        }
        let fits = |chunk: &Vec<u8>| chunk.capacity() - chunk.len() >= bytes.len();
        if !self.chunks.last().is_some_and(fits) {
            let last = self.chunks.last().map_or(0, Vec::capacity);
            let capacity = bytes.len().max(2 * last).max(FIRST_CHUNK);
            self.chunks.push(Vec::with_capacity(capacity));
        }
        let chunk = self.chunks.last_mut().expect("a chunk was just ensured");
        let at = chunk.len();
        chunk.extend_from_slice(bytes);
        chunk[at..].as_ptr()
    }

    /// Bytes allocated.
    pub fn capacity(&self) -> usize {
        self.chunks.iter().map(Vec::capacity).sum()
    }
}
