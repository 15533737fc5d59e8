//! Where decoded blobs live while the record buffer points at them.

/// An arena for the blobs of the rows last decoded.
///
/// Bytes stay where they are until [`BlobBuf::clear`]: a chunk is never grown, a new one is added.
#[derive(Debug, Default)]
pub struct BlobBuf {
    chunks: Vec<Vec<u8>>,
}

const FIRST_CHUNK: usize = 4096;
/// A chunk is no larger than this for being twice as large as the one before.
const DOUBLED_MAX: usize = 1 << 20;

impl BlobBuf {
    /// An empty arena; allocates nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets all bytes; pointers into the arena become invalid. Keeps the largest chunk.
    pub fn clear(&mut self) {
        if self.chunks.len() > 1 {
            let largest = (0..self.chunks.len()).max_by_key(|&i| self.chunks[i].capacity());
            self.chunks.swap(0, largest.expect("there are chunks"));
            self.chunks.truncate(1);
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
        let chunk = self.chunk_for(bytes.len());
        let at = chunk.len();
        chunk.extend_from_slice(bytes);
        chunk[at..].as_ptr()
    }

    /// Room for `len` bytes to be filled in; it stays where it is until [`BlobBuf::clear`].
    pub fn reserve(&mut self, len: usize) -> &mut [u8] {
        let chunk = self.chunk_for(len);
        let at = chunk.len();
        chunk.resize(at + len, 0);
        &mut chunk[at..]
    }

    /// A chunk with room for `len` more bytes, which need not move it.
    fn chunk_for(&mut self, len: usize) -> &mut Vec<u8> {
        let fits = |chunk: &Vec<u8>| chunk.capacity() - chunk.len() >= len;
        if !self.chunks.last().is_some_and(fits) {
            // Large blobs double no chunk: what is read once must not keep twice its size.
            let last = self.chunks.last().map_or(0, Vec::capacity);
            let capacity = len.max((2 * last).min(DOUBLED_MAX)).max(FIRST_CHUNK);
            self.chunks.push(Vec::with_capacity(capacity));
        }
        self.chunks.last_mut().expect("a chunk was just ensured")
    }

    /// Bytes allocated.
    pub fn capacity(&self) -> usize {
        self.chunks.iter().map(Vec::capacity).sum()
    }
}
