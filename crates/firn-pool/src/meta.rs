//! The meta protocol of memcached, as far as the pool speaks it. A batch is some commands in quiet
//! mode and one `mn` behind them; its answers end with `MN`.
//!
//! ```text
//! mg <name in base64> b v q O17      VA 16400 O17 ⏎ <value> ⏎     nothing if the node has none
//! ms <name in base64> 16400 b q ⏎ <value>                         nothing if the node took it
//! md <name in base64> b q                                         nothing in any case
//! mn                                 MN
//! ```
//!
//! Quiet misses have no answer, and a get that is not quiet is answered by a bare `EN`. So only
//! `MN` shows where a batch ends, and each get has an opaque token (`O`) that no other request of
//! the connection has.

mod answer;

use crate::name::Name;
use std::io::Write as _;

pub use answer::{Answer, Parsed, parse};

/// Longest value that the pool puts or takes. By default a node refuses items above 1 MiB.
pub const VALUE_LEN_MAX: usize = (1 << 20) - 512;

/// Appends a quiet get.
pub(crate) fn write_get(out: &mut Vec<u8>, name: &Name, opaque: u64) {
    out.extend_from_slice(b"mg ");
    name.write_base64(out);
    // Writing into a vector never fails.
    let _ = write!(out, " b v q O{opaque}\r\n");
}

/// Bytes of deletions that may be in one piece.
const PIECE_BYTES: usize = 2048;

/// A batch of puts and deletions.
///
/// It knows where commands end. A node that speaks TLS reads a command and leaves what follows it
/// in the same record to OpenSSL. Then it waits for the socket, although the rest of the batch is
/// there. So for such nodes a put ends its record, and deletions fill small ones.
#[derive(Default)]
pub(crate) struct Commands {
    bytes: Vec<u8>,
    /// Ends of the pieces.
    ends: Vec<usize>,
    /// The last piece may take another deletion.
    is_open: bool,
    puts: u64,
}

impl Commands {
    /// Appends a quiet put. The node drops the value after `ttl_s` seconds unless that is 0.
    pub(crate) fn put(&mut self, name: &Name, ttl_s: u32, value: &[u8]) {
        let out = &mut self.bytes;
        out.extend_from_slice(b"ms ");
        name.write_base64(out);
        let _ = match ttl_s {
            0 => write!(out, " {} b q\r\n", value.len()),
            _ => write!(out, " {} b q T{ttl_s}\r\n", value.len()),
        };
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
        self.puts += 1;
        self.ends.push(self.bytes.len());
        self.is_open = false;
    }

    /// Appends a quiet deletion.
    pub(crate) fn delete(&mut self, name: &Name) {
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(b"md ");
        name.write_base64(&mut self.bytes);
        self.bytes.extend_from_slice(b" b q\r\n");
        let before = self.ends.len().checked_sub(2);
        let piece = before
            .and_then(|at| self.ends.get(at))
            .map_or(0, |end| *end);
        match self.ends.last_mut() {
            Some(end) if self.is_open && begin - piece < PIECE_BYTES => *end = self.bytes.len(),
            _ => self.ends.push(self.bytes.len()),
        }
        self.is_open = true;
    }

    /// Ends the batch.
    pub(crate) fn end(&mut self) {
        self.bytes.extend_from_slice(END_OF_BATCH);
        self.ends.push(self.bytes.len());
    }

    /// Number of puts.
    pub(crate) fn puts(&self) -> u64 {
        self.puts
    }

    /// All of it.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// All of it in pieces, each of which is one put or some deletions.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        begins
            .zip(&self.ends)
            .map(|(begin, end)| &self.bytes[begin..*end])
    }
}

/// Ends a batch.
pub(crate) const END_OF_BATCH: &[u8] = b"mn\r\n";

/// Asks for the counters of the node.
pub(crate) const STATS: &[u8] = b"stats\r\n";

#[cfg(test)]
mod tests;
