//! The buffers in which each thread encodes the rows and keys that it writes.

use firn::table::RowScratch;
use std::cell::RefCell;

thread_local! {
    static SCRATCH: RefCell<RowScratch> = RefCell::default();
}

/// Calls `f` with the buffers of the calling thread.
pub(crate) fn with_scratch<R>(f: impl FnOnce(&mut RowScratch) -> R) -> R {
    SCRATCH.with_borrow_mut(f)
}

/// Frees what large rows of the thread's last transaction have left in the buffers.
pub(crate) fn trim_scratch() {
    with_scratch(RowScratch::trim);
}
