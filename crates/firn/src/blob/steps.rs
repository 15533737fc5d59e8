//! Places where another thread may come between; a test lets it happen there.

/// A place between two steps that other threads see apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// A file is sealed in part.
    Sealing,
    /// A file has zeros behind its last span, and is not guarded yet.
    Trimming,
    /// It is about to be cut.
    Cutting,
    /// A rewritten file is about to take the place of the old one.
    Installing,
    /// A reader knows which file holds the blobs, and has not opened it.
    Opening,
}

#[cfg(not(test))]
#[inline(always)]
pub(super) fn reached(_: Place) {}

#[cfg(test)]
pub(super) use of_tests::{at, reached};

#[cfg(test)]
mod of_tests {
    use super::Place;
    use std::cell::RefCell;

    type Planned = (Place, Box<dyn FnOnce()>);

    thread_local! {
        static PLANNED: RefCell<Option<Planned>> = const { RefCell::new(None) };
    }

    /// When this thread is next at `place`, `then` happens.
    pub(in crate::blob) fn at(place: Place, then: impl FnOnce() + 'static) {
        let before = PLANNED.replace(Some((place, Box::new(then))));
        assert!(before.is_none(), "a place that was never reached");
    }

    pub(in crate::blob) fn reached(place: Place) {
        let due = PLANNED.with_borrow_mut(|planned| planned.take_if(|(at, _)| *at == place));
        if let Some((_, then)) = due {
            then();
        }
    }
}
