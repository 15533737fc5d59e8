//! The acknowledgement of a commit whose committer does not wait until the commit is durable.

use std::fmt;

/// A function that hears once whether a commit is durable (`true`) or its outcome is unknown until
/// the next start (`false`). If it is dropped before [`Self::send`], it hears `false`: nobody may
/// wait for it for ever.
///
/// The log writer calls it, and must not wait long: the next group waits for it.
pub struct Acknowledgement(Option<Box<dyn FnOnce(bool) + Send>>);

impl Acknowledgement {
    /// An acknowledgement that calls `function`.
    pub fn new(function: impl FnOnce(bool) + Send + 'static) -> Self {
        Self(Some(Box::new(function)))
    }

    /// Tells whether the commit is durable.
    pub fn send(mut self, durable: bool) {
        if let Some(function) = self.0.take() {
            function(durable);
        }
    }
}

impl Drop for Acknowledgement {
    fn drop(&mut self) {
        if let Some(function) = self.0.take() {
            function(false);
        }
    }
}

impl fmt::Debug for Acknowledgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Acknowledgement")
    }
}
