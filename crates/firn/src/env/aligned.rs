//! Buffers whose address and length fit direct I/O.

/// Alignment and unit of direct I/O, bytes.
pub const BLOCK: usize = 4096;

/// The smallest unit that devices write, bytes: a power cut leaves each sector either old or new.
pub const SECTOR: usize = 512;

#[derive(Clone, Copy, bytemuck::Zeroable, bytemuck::Pod)]
#[repr(C, align(4096))]
struct Block([u8; BLOCK]);

/// A growable byte buffer, aligned to [`BLOCK`] and zero-padded to whole blocks (unless
/// [`AlignedBuf::set_len`] was called).
#[derive(Default, Clone)]
pub struct AlignedBuf {
    blocks: Vec<Block>,
    len: usize,
}

impl AlignedBuf {
    /// An empty buffer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes appended.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing was appended.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Empties the buffer and keeps its memory.
    pub fn clear(&mut self) {
        self.blocks.clear();
        self.len = 0;
    }

    /// Appends bytes.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        self.blocks.resize(end.div_ceil(BLOCK), Block([0; BLOCK]));
        bytemuck::cast_slice_mut::<Block, u8>(&mut self.blocks)[self.len..end]
            .copy_from_slice(bytes);
        self.len = end;
    }

    /// Sets the length, so that a file can be read into the buffer. Afterwards the content, and the
    /// padding behind it, may be any bytes.
    pub fn set_len(&mut self, len: usize) {
        if self.blocks.len() * BLOCK < len {
            self.blocks.resize(len.div_ceil(BLOCK), Block([0; BLOCK]));
        }
        self.len = len;
    }

    /// Removes all bytes after the first `len`.
    pub fn truncate(&mut self, len: usize) {
        if len < self.len {
            self.as_mut_slice()[len..].fill(0);
            self.blocks.truncate(len.div_ceil(BLOCK));
            self.len = len;
        }
    }

    /// Appends zeros up to a multiple of `unit`, which divides [`BLOCK`].
    pub fn pad_to(&mut self, unit: usize) {
        self.len = self.len.next_multiple_of(unit);
    }

    /// The bytes appended.
    pub fn as_slice(&self) -> &[u8] {
        &self.padded()[..self.len]
    }

    /// The bytes appended, mutable.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        let len = self.len;
        &mut bytemuck::cast_slice_mut(&mut self.blocks)[..len]
    }

    /// The bytes, zero-padded to the end of the last block.
    pub fn padded(&self) -> &[u8] {
        bytemuck::cast_slice(&self.blocks)
    }

    /// The bytes, zero-padded to a multiple of `unit`, which divides [`BLOCK`].
    pub fn padded_to(&self, unit: usize) -> &[u8] {
        &self.padded()[..self.len.next_multiple_of(unit)]
    }
}
