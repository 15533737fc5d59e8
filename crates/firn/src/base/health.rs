//! The poison latch: after a failed write or sync the engine refuses further writes.

use super::{Error, ErrorKind, Result};
use std::sync::OnceLock;

/// Latches the first failure that makes the outcome of writes unknown. Never resets.
#[derive(Debug, Default)]
pub struct Health {
    poison: OnceLock<Error>,
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

    /// The recorded failure.
    pub fn cause(&self) -> Option<&Error> {
        self.poison.get()
    }
}
