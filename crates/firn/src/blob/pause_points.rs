//! Points between two steps at which another thread may come in between; a test lets that happen
//! there.

/// A point between two steps whose order other threads can see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlobPausePoint {
    /// A file is half sealed.
    Sealing,
    /// A file was found to have zeros behind its last span; the `linking` lock is not held yet.
    Trimming,
    /// The zeros are about to be cut off, under the lock.
    Cutting,
    /// A rewritten file is about to replace the old one.
    Installing,
    /// A reader knows the physical file and has not opened it yet.
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

    /// Runs `then` when this thread reaches `place` for the next time.
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
