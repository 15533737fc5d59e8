//! Sockets, clock and randomness behind traits, so that simulation can replace them. `system` is
//! the real twin; [`crate::mem`] is the simulated one.

mod readiness;
mod resolver;
mod system;
mod tls;

use crate::node_list::Address;
use std::io;

pub use system::SystemLink;
pub use tls::TlsFiles;

/// Connects to nodes.
pub trait Link: Send + Sync {
    /// Opens a connection, and gives up at `deadline_us` of [`Clock::now_us`].
    ///
    /// # Errors
    /// Of the operating system; `TimedOut` at the deadline.
    fn connect(&self, address: &Address, deadline_us: u64) -> io::Result<Box<dyn Socket>>;
}

/// A connection to a node.
pub trait Socket: Send {
    /// Writes all bytes, and gives up at `deadline_us`. After an error the connection is useless:
    /// a part of the bytes may be on its way.
    ///
    /// # Errors
    /// Of the operating system; `TimedOut` at the deadline.
    fn write_all(&mut self, bytes: &[u8], deadline_us: u64) -> io::Result<()>;

    /// Whether each put is to be written alone: see [`crate::meta`].
    fn wants_pieces(&self) -> bool {
        false
    }

    /// Reads the bytes that have arrived, without waiting. `None` if there are none.
    ///
    /// # Errors
    /// Of the operating system; `UnexpectedEof` once the node has closed the connection.
    fn try_read(&mut self, into: &mut [u8]) -> io::Result<Option<usize>>;

    /// Sleeps until there is something to read, or until `deadline_us`. Returns false at the
    /// deadline.
    ///
    /// # Errors
    /// Of the operating system.
    fn wait_readable(&mut self, deadline_us: u64) -> io::Result<bool>;
}

/// Time and randomness.
pub trait Clock: Send + Sync {
    /// Monotonic clock, microseconds since an arbitrary start.
    fn now_us(&self) -> u64;
    /// Fills `bytes` with unpredictable random bytes. Only a simulation, which keeps no secrets,
    /// may
    /// return predictable ones: nonces of the cipher depend on them.
    ///
    /// # Errors
    /// The system has none.
    fn random(&self, bytes: &mut [u8]) -> io::Result<()>;
}
