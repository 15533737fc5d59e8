//! Memory that is only ever added to, and given back as a whole.

use parking_lot::Mutex;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

/// All places are aligned to this many bytes, and all sizes are multiples of it.
pub(super) const ALIGN: usize = 8;

const FIRST_CHUNK: usize = 64 << 10;
const CHUNK_MAX: usize = 1 << 20;

/// Larger pieces get a chunk of their own, so that they neither waste the rest of a chunk nor need
/// to fit into one.
const PIECE_MAX: usize = 16 << 10;

struct Chunk {
    base: NonNull<u8>,
    len: usize,
    /// Bytes handed out. Goes past `len` when a piece does not fit.
    used: AtomicUsize,
}

/// An arena that grows by chunks. Any number of threads allocate, without locks until a chunk is
/// full: a piece is one atomic add.
///
/// Invariant: a piece is handed out once and stays where it is until the arena is dropped.
///
/// Rejected: a chunk for each writing thread. Commits are short and threads many, so most memory
/// would lie in chunks begun and never filled; and the add costs nothing beside the search.
pub(super) struct Arena {
    current: AtomicPtr<Chunk>,
    /// All chunks, the current one included; made by `Box::into_raw`.
    chunks: Mutex<Vec<*mut Chunk>>,
    allocated: AtomicU64,
}

// SAFETY: the pointers lead to chunks that the arena owns; their fields are immutable or atomic.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Chunk {
    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, ALIGN).expect("a chunk fits into the address space")
    }

    fn new(len: usize) -> Self {
        let layout = Self::layout(len);
        // SAFETY: the size is not zero.
        let base = unsafe { alloc(layout) };
        let Some(base) = NonNull::new(base) else {
            handle_alloc_error(layout)
        };
        Self {
            base,
            len,
            used: AtomicUsize::new(0),
        }
    }

    fn take(&self, size: usize) -> Option<NonNull<u8>> {
        // Failed adds push the counter on, each by at most `PIECE_MAX`, and after each one the chunk
        // is replaced: it cannot come round to zero.
        let at = self.used.fetch_add(size, Ordering::Relaxed);
        // SAFETY: the piece lies inside the chunk.
        (at + size <= self.len).then(|| unsafe { self.base.add(at) })
    }
}

impl Arena {
    pub(super) fn new() -> Self {
        let arena = Self {
            current: AtomicPtr::default(),
            chunks: Mutex::new(Vec::new()),
            allocated: AtomicU64::new(0),
        };
        let first = arena.own(&mut arena.chunks.lock(), Chunk::new(FIRST_CHUNK));
        arena.current.store(first, Ordering::Release);
        arena
    }

    /// Bytes taken from the allocator.
    pub(super) fn allocated(&self) -> u64 {
        self.allocated.load(Ordering::Relaxed)
    }

    /// A fresh piece of `size` bytes, not initialized, valid while the arena lives.
    pub(super) fn alloc(&self, size: usize) -> NonNull<u8> {
        debug_assert!(size > 0 && size.is_multiple_of(ALIGN));
        if size > PIECE_MAX {
            let chunk = Chunk::new(size);
            let base = chunk.base;
            self.own(&mut self.chunks.lock(), chunk);
            return base;
        }
        loop {
            let current = self.current.load(Ordering::Acquire);
            // SAFETY: chunks live as long as the arena.
            let chunk = unsafe { &*current };
            if let Some(piece) = chunk.take(size) {
                return piece;
            }
            self.replace(current, chunk.len);
        }
    }

    /// Makes another chunk the current one, unless another thread did.
    #[cold]
    fn replace(&self, full: *mut Chunk, len: usize) {
        let mut chunks = self.chunks.lock();
        if self.current.load(Ordering::Relaxed) == full {
            let next = self.own(&mut chunks, Chunk::new((2 * len).min(CHUNK_MAX)));
            self.current.store(next, Ordering::Release);
        }
    }

    fn own(&self, chunks: &mut Vec<*mut Chunk>, chunk: Chunk) -> *mut Chunk {
        let bytes = (chunk.len + size_of::<Chunk>()) as u64;
        self.allocated.fetch_add(bytes, Ordering::Relaxed);
        let chunk = Box::into_raw(Box::new(chunk));
        chunks.push(chunk);
        chunk
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        for chunk in self.chunks.get_mut().drain(..) {
            // SAFETY: made by `Box::into_raw` in `own`, and taken back once.
            let chunk = unsafe { Box::from_raw(chunk) };
            // SAFETY: allocated in `Chunk::new` with this layout, and nobody else frees it.
            unsafe { dealloc(chunk.base.as_ptr(), Chunk::layout(chunk.len)) };
        }
    }
}

#[cfg(test)]
mod tests;
