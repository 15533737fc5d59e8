//! What the engine tells its host: lines for the error log.

use std::sync::Arc;

/// How much a message matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Severity {
    /// For the record.
    Note = 0,
    /// Something a DBA should look at.
    Warning = 1,
    /// Something that stops part of the engine.
    Error = 2,
}

/// Receives the engine's messages. Called from any thread; must not block for long.
pub trait EventListener: Send + Sync {
    /// One message, a single line without a line end.
    fn log(&self, severity: Severity, message: &str);
}

/// Discards everything.
#[derive(Debug, Default)]
pub struct Silent;

impl EventListener for Silent {
    fn log(&self, _severity: Severity, _message: &str) {}
}

/// A shared listener.
pub type Listener = Arc<dyn EventListener>;
