//! Holds decoded blobs while the record buffer points to them.

use super::zeroed_bytes::ZeroedBytes;

/// An arena for the blobs of the last decoded rows.
///
/// Bytes keep their address until [`BlobBuf::clear`]: if a chunk is full, the arena adds another
/// chunk and does not grow the full one.
#[derive(Debug, Default)]
pub struct BlobBuf {
    chunks: Vec<Vec<u8>>,
    beginnings: Vec<Beginning>,
    /// Number of `beginnings` in use.
    begun: usize,
}

/// The first bytes of a value, followed by zeros. The zeros of a long value take no memory: they
/// are pages that are never written.
#[derive(Debug, Default)]
struct Beginning {
    bytes: ZeroedBytes,
    /// Number of bytes at the start that may differ from zero; all bytes behind them are zeros.
    written: usize,
}

const FIRST_CHUNK: usize = 4096;
/// Doubling stops at this chunk size, bytes.
const DOUBLED_MAX: usize = 1 << 20;

impl BlobBuf {
    /// An empty arena; allocates nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Removes all bytes and keeps the largest chunk. Pointers into the arena become invalid.
    #[inline]
    #[allow(clippy::missing_panics_doc)] // No caller can cause it.
    pub fn clear(&mut self) {
        if self.chunks.len() > 1 {
            let largest = (0..self.chunks.len()).max_by_key(|&i| self.chunks[i].capacity());
            self.chunks.swap(0, largest.expect("there are chunks"));
            self.chunks.truncate(1);
        }
        if let Some(chunk) = self.chunks.last_mut() {
            chunk.clear();
        }
        self.begun = 0;
    }

    /// Removes all bytes and keeps at most a small chunk: whoever keeps the arena must not keep the
    /// memory of the largest value that it ever held. Pointers into the arena become invalid.
    pub fn trim(&mut self) {
        self.chunks.retain(|chunk| chunk.capacity() <= FIRST_CHUNK);
        self.clear();
        self.beginnings = Vec::new();
    }

    /// Copies `bytes` into the arena. The returned address is valid until [`BlobBuf::clear`]; null
    /// if `bytes` is empty.
    pub fn put(&mut self, bytes: &[u8]) -> *const u8 {
        if bytes.is_empty() {
            return std::ptr::null();
        }
        let chunk = self.chunk_for(bytes.len());
        let at = chunk.len();
        chunk.extend_from_slice(bytes);
        chunk[at..].as_ptr()
    }

    /// `len` zeroed bytes for the caller to fill. They stay in place until [`BlobBuf::clear`].
    pub fn reserve(&mut self, len: usize) -> &mut [u8] {
        let chunk = self.chunk_for(len);
        let at = chunk.len();
        chunk.resize(at + len, 0);
        &mut chunk[at..]
    }

    /// Adds a value of `len` bytes, `prefix` and then zeros, and returns it. It stays at its
    /// address until [`BlobBuf::clear`]. Mostly only the bytes of `prefix` are written, so the cost
    /// does not depend on `len`.
    pub fn put_beginning(&mut self, prefix: &[u8], len: usize) -> &[u8] {
        if self.begun == self.beginnings.len() {
            self.beginnings.push(Beginning::default());
        }
        let Beginning { bytes, written } = &mut self.beginnings[self.begun];
        self.begun += 1;
        if bytes.len() < len {
            let size = len.max((2 * bytes.len()).min(DOUBLED_MAX));
            // Free the old buffer first.
            *bytes = ZeroedBytes::default();
            *bytes = ZeroedBytes::new(size);
        } else if prefix.len() < *written {
            bytes[prefix.len()..*written].fill(0);
        }
        bytes[..prefix.len()].copy_from_slice(prefix);
        *written = prefix.len();
        &bytes[..len]
    }

    /// A chunk that has room for `len` more bytes without moving.
    fn chunk_for(&mut self, len: usize) -> &mut Vec<u8> {
        let fits = |chunk: &Vec<u8>| chunk.capacity() - chunk.len() >= len;
        if !self.chunks.last().is_some_and(fits) {
            // The chunk for a blob longer than `DOUBLED_MAX` has exactly the blob's length: `clear`
            // keeps the largest chunk, so it must not be twice as long as a blob that was read
            // once.
            let last = self.chunks.last().map_or(0, Vec::capacity);
            let capacity = len.max((2 * last).min(DOUBLED_MAX)).max(FIRST_CHUNK);
            self.chunks.push(Vec::with_capacity(capacity));
        }
        self.chunks.last_mut().expect("a chunk was just ensured")
    }

    /// Bytes allocated for chunks. Values of [`BlobBuf::put_beginning`] do not count.
    pub fn capacity(&self) -> usize {
        self.chunks.iter().map(Vec::capacity).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_beginning_stays_until_all_are_forgotten_and_leaves_nothing_to_the_next() {
        let mut buf = BlobBuf::new();
        for round in 0..50usize {
            buf.clear();
            let wanted: Vec<Vec<u8>> = (0..4)
                .map(|i| {
                    let prefix = (round * 37 + i * 501) % 900;
                    let mut value = vec![round as u8 + 1; prefix];
                    value.resize(prefix + 1 + round * i * 13 % 700, 0);
                    value
                })
                .collect();
            let mut put = Vec::new();
            for value in &wanted {
                let prefix = value.iter().take_while(|byte| **byte != 0).count();
                let at = buf.put_beginning(&value[..prefix], value.len());
                put.push((at.as_ptr(), at.len()));
            }
            for ((at, len), value) in put.into_iter().zip(&wanted) {
                // SAFETY: `put_beginning` returned this address and length, and `clear` has not
                // been called since.
                let bytes = unsafe { std::slice::from_raw_parts(at, len) };
                assert_eq!(bytes, value, "round {round}");
            }
        }
        assert_eq!(buf.beginnings.len(), 4);
    }

    #[test]
    fn a_trimmed_arena_keeps_a_small_chunk_only() {
        let mut buf = BlobBuf::new();
        buf.put(&[1; 100]);
        buf.trim();
        assert_eq!(buf.capacity(), FIRST_CHUNK);
        for large in [FIRST_CHUNK + 1, 16 << 20] {
            buf.put(&[1; 100]);
            buf.put(&vec![2; large]);
            buf.put_beginning(&[3], large);
            assert!(buf.capacity() >= large);
            buf.trim();
            assert_eq!(buf.capacity(), FIRST_CHUNK);
            assert!(buf.beginnings.is_empty());
        }
    }
}
