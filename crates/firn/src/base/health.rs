//! The health of the engine: whether it is poisoned, so that it refuses writes, and whether its
//! disk is full.

use super::{Error, ErrorKind, Result};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

/// Work that may find the disk full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum FullDisk {
    /// The log: the disk has no room for another segment, and commits fail.
    Log = 1,
    /// A flush: the disk has no room for the SST, and writers stop once the number of frozen
    /// memtables has reached its limit.
    Flush = 2,
    /// A compaction.
    Compaction = 4,
}

/// Latches the first failure that makes the outcome of writes unknown, for good: after a failed
/// write or sync, nobody knows which bytes the device has, so the engine refuses further writes
/// until it is reopened. [`super::Error::class`] tells such failures from those without an effect.
///
/// Also remembers, for each kind of work, whether its last attempt found the disk full. Unlike the
/// poison, this state ends with the next attempt that finds room.
#[derive(Debug, Default)]
pub struct Health {
    poison: OnceLock<Error>,
    full: AtomicU8,
}

impl Health {
    /// A healthy latch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Records `cause`, unless a failure is recorded already. Returns whether it was the first.
    pub fn poison(&self, cause: Error) -> bool {
        self.poison.set(cause).is_ok()
    }

    /// Checks that writes are allowed.
    ///
    /// # Errors
    /// [`ErrorKind::Poisoned`] if a failure is recorded.
    pub fn check(&self) -> Result<()> {
        match self.poison.get() {
            None => Ok(()),
            Some(cause) => Err(Error::new(ErrorKind::Poisoned, cause.to_string())),
        }
    }

    /// Records whether the last attempt of `work` found the disk full.
    pub fn set_full(&self, work: FullDisk, full: bool) {
        let bit = work as u8;
        // Load before writing: the value rarely changes, and a load leaves the cache line shared
        // between the cores.
        if (self.full.load(Ordering::Relaxed) & bit != 0) != full {
            match full {
                true => self.full.fetch_or(bit, Ordering::Relaxed),
                false => self.full.fetch_and(!bit, Ordering::Relaxed),
            };
        }
    }

    /// Records the outcome of an attempt of `work`: success says that the disk is not full,
    /// `NoSpace` that it is full. Other errors change nothing.
    pub fn note<T>(&self, work: FullDisk, tried: &Result<T>) {
        match tried {
            Ok(_) => self.set_full(work, false),
            Err(error) if *error.kind() == ErrorKind::NoSpace => self.set_full(work, true),
            Err(_) => {}
        }
    }

    /// Whether the last attempt of `work` found the disk full; with `None`, whether the last
    /// attempt of any kind of work did.
    pub fn is_full(&self, work: Option<FullDisk>) -> bool {
        let bits = work.map_or(u8::MAX, |work| work as u8);
        self.full.load(Ordering::Relaxed) & bits != 0
    }

    /// The recorded failure.
    pub fn cause(&self) -> Option<&Error> {
        self.poison.get()
    }
}
