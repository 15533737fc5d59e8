//! The system's allocator, with a count of the allocations of each thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// An allocator that counts the allocations of each thread.
pub struct Counting;

// SAFETY: every call goes to the system's allocator unchanged; counting allocates nothing, since
// the thread's cell needs neither a lazy start nor a destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the layout is passed on unchanged, and the system allocator has the same
        // contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the layout is passed on unchanged, and the system allocator has the same
        // contract.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the layout is passed on unchanged, and the system allocator has the same
        // contract.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the layout is passed on unchanged, and the system allocator has the same
        // contract.
        unsafe { System.alloc_zeroed(layout) }
    }
}

/// Allocations of this thread so far.
pub fn count() -> u64 {
    COUNT.get()
}
