//! Values that threads lend each other for the time of a call.

use super::thread_number::thread_number;
use parking_lot::Mutex;

/// Number of values that a pool keeps while nobody uses them.
const SLOTS: usize = 32;
/// A thread looks at this many slots for an idle value.
const PROBES: usize = 4;

#[repr(align(64))]
struct Slot<T>(Mutex<Option<T>>);

/// Keeps up to 32 idle values for any thread that needs one. A value that is costly to make and
/// takes much memory, like a compression context, is so shared by thousands of sessions, of which
/// few need it at the same time.
///
/// Rejected: a value for each thread (contexts of ZSTD, 160 KiB each, would outlive a session's
/// last read by hours); one list behind a mutex (all cores would write to it with each block read).
pub struct Pool<T> {
    slots: [Slot<T>; SLOTS],
}

impl<T> Pool<T> {
    /// An empty pool.
    #[allow(clippy::new_without_default)] // Pools are statics, and `default` is no constant function.
    pub const fn new() -> Self {
        Self {
            slots: [const { Slot(Mutex::new(None)) }; SLOTS],
        }
    }

    /// Calls `f` with an idle value, or with one that `make` makes. A panic of `f` drops the value.
    pub fn with<R>(&self, make: impl FnOnce() -> T, f: impl FnOnce(&mut T) -> R) -> R {
        self.keep_if(make, f, |_| true)
    }

    /// As [`Self::with`], but drops the value if `f` fails: a context that has refused its input
    /// may be in any state.
    ///
    /// # Errors
    /// Those of `f`.
    pub fn try_with<R, E>(
        &self,
        make: impl FnOnce() -> T,
        f: impl FnOnce(&mut T) -> Result<R, E>,
    ) -> Result<R, E> {
        self.keep_if(make, f, Result::is_ok)
    }

    fn keep_if<R>(
        &self,
        make: impl FnOnce() -> T,
        f: impl FnOnce(&mut T) -> R,
        keep: impl FnOnce(&R) -> bool,
    ) -> R {
        let near = || {
            let first = thread_number();
            (0..PROBES).filter_map(move |i| self.slots[(first + i) % SLOTS].0.try_lock())
        };
        let idle = near().find_map(|mut slot| slot.take());
        let mut value = idle.unwrap_or_else(make);
        let result = f(&mut value);
        if keep(&result)
            && let Some(mut empty) = near().find(|slot| slot.is_none())
        {
            *empty = Some(value);
        }
        result
    }
}

#[cfg(test)]
mod tests;
