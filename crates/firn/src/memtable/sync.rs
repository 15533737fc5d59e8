//! Atomics of the list: those of the standard library, or loom's, which a model checks.

#[cfg(loom)]
pub(super) use loom::sync::atomic::{AtomicPtr, AtomicUsize};
#[cfg(not(loom))]
pub(super) use std::sync::atomic::{AtomicPtr, AtomicUsize};

/// Stands for the plain bytes of a node: a model fails when one thread reads them and nothing
/// orders that after another thread's writing. Nothing at all outside a model.
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
