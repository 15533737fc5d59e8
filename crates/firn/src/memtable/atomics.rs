//! The atomics of the skiplist: from the standard library, or from loom when a model checks the
//! skiplist.

#[cfg(loom)]
pub(super) use loom::sync::atomic::{AtomicPtr, AtomicUsize};
#[cfg(not(loom))]
pub(super) use std::sync::atomic::{AtomicPtr, AtomicUsize};

/// Stands for the plain bytes of a node while a model checks the skiplist. The model fails if a
/// thread reads them and nothing orders the read after another thread's write. Empty otherwise.
#[derive(Default)]
pub(super) struct Witness {
    #[cfg(loom)]
    cell: loom::cell::UnsafeCell<()>,
}

impl Witness {
    #[inline(always)]
    pub(super) fn written(&self) {
        #[cfg(loom)]
        self.cell.with_mut(|_| ());
    }

    #[inline(always)]
    pub(super) fn read(&self) {
        #[cfg(loom)]
        self.cell.with(|_| ());
    }
}
