//! The engine's messages to its host, which writes them to its error log.

use std::sync::Arc;

/// The importance of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Severity {
    /// Information that needs no action.
    Note = 0,
    /// A DBA should look at the cause.
    Warning = 1,
    /// Part of the engine has stopped.
    Error = 2,
}

/// Receives the engine's messages, from any thread. An implementation must not block for long.
pub trait EventListener: Send + Sync {
    /// Receives one message: a single line without a line end.
    fn log(&self, severity: Severity, message: &str);
}

/// Discards all messages.
#[derive(Debug, Default)]
pub struct Silent;

impl EventListener for Silent {
    fn log(&self, _severity: Severity, _message: &str) {}
}

/// A shared listener.
pub type Listener = Arc<dyn EventListener>;
