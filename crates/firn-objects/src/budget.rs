//! Bytes that may be in memory at once.

use parking_lot::{Condvar, Mutex};

/// A number of bytes that threads share.
pub struct Budget {
    bytes_max: u64,
    taken: Mutex<u64>,
    given_back: Condvar,
}

/// Gives its bytes back when it is dropped.
pub struct Taken<'a> {
    budget: &'a Budget,
    bytes: u64,
}

impl Budget {
    /// At most `bytes_max` at once.
    pub fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max,
            taken: Mutex::new(0),
            given_back: Condvar::new(),
        }
    }

    /// Takes bytes, and waits for them. More than there are at all count as all. A thread that
    /// holds some must not ask for more.
    pub fn take(&self, bytes: u64) -> Taken<'_> {
        let bytes = bytes.min(self.bytes_max);
        let mut taken = self.taken.lock();
        while *taken + bytes > self.bytes_max {
            self.given_back.wait(&mut taken);
        }
        *taken += bytes;
        Taken {
            budget: self,
            bytes,
        }
    }

    /// Takes bytes if nobody has to wait for them.
    pub fn try_take(&self, bytes: u64) -> Option<Taken<'_>> {
        let mut taken = self.taken.lock();
        if *taken + bytes > self.bytes_max {
            return None;
        }
        *taken += bytes;
        Some(Taken {
            budget: self,
            bytes,
        })
    }

    /// Bytes that are taken now.
    #[cfg(test)]
    pub fn taken(&self) -> u64 {
        *self.taken.lock()
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        *self.budget.taken.lock() -= self.bytes;
        self.budget.given_back.notify_all();
    }
}
