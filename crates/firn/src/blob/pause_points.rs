//! Points in the code between two steps, where another thread may act. A test can run code at such
//! a point, to force that interleaving.

/// A point between two steps of one thread, at which other threads see the effect of the first step
/// but not yet that of the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlobPausePoint {
    /// A thread is sealing a file. Readers that open the file from now on bypass the page cache,
    /// but the flag that says that the file still grows is not cleared yet.
    Sealing,
    /// A file was found to have zeros behind its last span; the `linking` lock is not taken yet.
    Trimming,
    /// The zeros of a file are about to be cut off; the `linking` lock is held.
    Cutting,
    /// A rewritten file is about to replace the old one; the `linking` lock is not taken yet.
    Installing,
    /// A reader has determined the physical file, but has not opened it yet.
    Opening,
}

#[cfg(not(test))]
#[inline(always)]
pub(super) fn reached(_: BlobPausePoint) {}

#[cfg(test)]
pub(super) use of_tests::{at, reached};

#[cfg(test)]
mod of_tests {
    use super::BlobPausePoint;
    use std::cell::RefCell;

    type Planned = (BlobPausePoint, Box<dyn FnOnce()>);

    thread_local! {
        static PLANNED: RefCell<Option<Planned>> = const { RefCell::new(None) };
    }

    /// Runs `then` once, the next time that this thread reaches `place`.
    pub(in crate::blob) fn at(place: BlobPausePoint, then: impl FnOnce() + 'static) {
        let before = PLANNED.replace(Some((place, Box::new(then))));
        assert!(before.is_none(), "a place that was never reached");
    }

    pub(in crate::blob) fn reached(place: BlobPausePoint) {
        let due = PLANNED.with_borrow_mut(|planned| planned.take_if(|(at, _)| *at == place));
        if let Some((_, then)) = due {
            then();
        }
    }
}
