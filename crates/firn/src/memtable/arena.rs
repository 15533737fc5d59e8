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
mod tests {
    use super::*;

    #[test]
    fn pieces_of_any_size_do_not_overlap() {
        let arena = Arena::new();
        let sizes = [16, 48, PIECE_MAX, PIECE_MAX + 16, 2 * CHUNK_MAX, 32];
        let rounds = if cfg!(miri) { 2 } else { 60 };
        let mut pieces = Vec::new();
        for (round, size) in (0..rounds).flat_map(|round| sizes.map(|size| (round, size))) {
            let piece = arena.alloc(size);
            assert!(piece.as_ptr().addr().is_multiple_of(ALIGN));
            // SAFETY: the piece has this size.
            unsafe { piece.write_bytes(round as u8, size) };
            pieces.push((piece, size, round as u8));
        }
        let mut sum = 0;
        for (piece, size, fill) in pieces {
            // SAFETY: filled above.
            let bytes = unsafe { std::slice::from_raw_parts(piece.as_ptr(), size) };
            assert!(bytes.iter().all(|&b| b == fill));
            sum += size as u64;
        }
        assert!(arena.allocated() >= sum);
        assert!(arena.allocated() <= sum + sum / 8 + 2 * CHUNK_MAX as u64);
    }

    #[test]
    fn threads_get_different_pieces() {
        let arena = Arena::new();
        let per_thread = if cfg!(miri) { 50 } else { 5000 };
        let mut all: Vec<usize> = std::thread::scope(|scope| {
            let take = || (0..per_thread).map(|_| arena.alloc(64).as_ptr().addr());
            let threads: Vec<_> = (0..4)
                .map(|_| scope.spawn(move || take().collect::<Vec<_>>()))
                .collect();
            threads
                .into_iter()
                .flat_map(|t| t.join().unwrap())
                .collect()
        });
        all.sort_unstable();
        assert!(all.windows(2).all(|pair| pair[1] - pair[0] >= 64));
        assert_eq!(all.len(), 4 * per_thread);
    }
}
