//! An arena: it allocates pieces of memory and frees them all at once.

use parking_lot::Mutex;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

/// Alignment of all pieces, bytes. The size of each piece is a multiple of it.
pub(super) const ALIGN: usize = 8;

const FIRST_CHUNK: usize = 64 << 10;
const CHUNK_MAX: usize = 1 << 20;

/// A piece larger than this gets a chunk of its own, so that it neither wastes the rest of a chunk
/// nor has to fit into one.
const PIECE_MAX: usize = 16 << 10;

struct Chunk {
    base: NonNull<u8>,
    len: usize,
    /// Bytes of the chunk that were handed out. A piece that does not fit is added too, so the
    /// number exceeds `len` then.
    used: AtomicUsize,
}

/// An arena that grows by chunks. Any number of threads allocate at the same time: a piece costs
/// one atomic add, and a lock only when the chunk is full.
///
/// Invariant: a piece is handed out once and stays in place until the arena is dropped.
///
/// Rejected: a chunk per writing thread. Commits are short and threads are many, so most memory
/// would lie in partly filled chunks; and the atomic add costs little beside the search for the
/// place of an entry in the list.
pub(super) struct Arena {
    current: AtomicPtr<Chunk>,
    /// All chunks, the current one included. `Box::into_raw` made the pointers.
    chunks: Mutex<Vec<*mut Chunk>>,
    allocated: AtomicU64,
}

// SAFETY: the pointers lead to chunks that only this arena owns and frees. Their fields are
// immutable or atomic, so any thread may use them.
unsafe impl Send for Arena {}
// SAFETY: as for `Send`.
unsafe impl Sync for Arena {}

impl Chunk {
    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, ALIGN).expect("a chunk fits into the address space")
    }

    fn new(len: usize) -> Self {
        let layout = Self::layout(len);
        // SAFETY: `len` is not zero: it is a chunk size, or the size of a large piece.
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
        // An add that fails still increases the counter, by at most `PIECE_MAX`. The thread then
        // replaces the chunk, so each thread fails at most once on a chunk, and the counter cannot
        // overflow.
        let at = self.used.fetch_add(size, Ordering::Relaxed);
        // SAFETY: `at + size <= len`, so the piece lies inside the chunk's allocation.
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

    /// A new, uninitialized piece of `size` bytes (a positive multiple of [`ALIGN`]), valid while
    /// the arena lives.
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
            // SAFETY: `own` made the pointer from a box, and only `Drop` frees chunks, so the chunk
            // outlives `&self`.
            let chunk = unsafe { &*current };
            if let Some(piece) = chunk.take(size) {
                return piece;
            }
            self.replace(current, chunk.len);
        }
    }

    /// Replaces the full current chunk, unless another thread has done so.
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
            // SAFETY: `own` made the pointer with `Box::into_raw`; draining the list takes each one
            // back once.
            let chunk = unsafe { Box::from_raw(chunk) };
            // SAFETY: `Chunk::new` allocated the memory with this layout. Chunks have no `Drop` of
            // their own, so this is the only place that frees it; `&mut self` proves that no reader
            // of a piece is left.
            unsafe { dealloc(chunk.base.as_ptr(), Chunk::layout(chunk.len)) };
        }
    }
}

#[cfg(test)]
mod tests;
