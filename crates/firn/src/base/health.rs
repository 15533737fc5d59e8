//! The poison latch: after a failed write or sync the engine refuses further writes. And where the disk was found
//! full, which passes.

use super::{Error, ErrorKind, Result};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

/// Work that finds no room on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum FullDisk {
    /// The log has no room for another segment: commits fail.
    Log = 1,
    /// A flush fails: writers are stopped when memtables are used up.
    Flush = 2,
    /// A compaction fails.
    Compaction = 4,
}

/// Latches the first failure that makes the outcome of writes unknown; that never resets. Knows where the disk was
/// full at the last try.
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

    /// Records `cause`. The first one stays. Returns whether it was the first.
    pub fn poison(&self, cause: Error) -> bool {
        self.poison.set(cause).is_ok()
    }

    /// Fails with [`ErrorKind::Poisoned`] if a failure was recorded.
    pub fn check(&self) -> Result<()> {
        match self.poison.get() {
            None => Ok(()),
            Some(cause) => Err(Error::new(ErrorKind::Poisoned, cause.to_string())),
        }
    }

    /// Whether `work` found the disk full at its last try.
    pub fn set_full(&self, work: FullDisk, full: bool) {
        let bit = work as u8;
        // Nearly always it is as it was.
        if (self.full.load(Ordering::Relaxed) & bit != 0) != full {
            match full {
                true => self.full.fetch_or(bit, Ordering::Relaxed),
                false => self.full.fetch_and(!bit, Ordering::Relaxed),
            };
        }
    }

    /// As [`Self::set_full`], for what a try of `work` came to.
    pub fn note<T>(&self, work: FullDisk, tried: &Result<T>) {
        match tried {
            Ok(_) => self.set_full(work, false),
            Err(error) if *error.kind() == ErrorKind::NoSpace => self.set_full(work, true),
            Err(_) => {}
        }
    }

    /// Whether any work, or that, found the disk full.
    pub fn is_full(&self, work: Option<FullDisk>) -> bool {
        let bits = work.map_or(u8::MAX, |work| work as u8);
        self.full.load(Ordering::Relaxed) & bits != 0
    }

    /// The recorded failure.
    pub fn cause(&self) -> Option<&Error> {
        self.poison.get()
    }
}
