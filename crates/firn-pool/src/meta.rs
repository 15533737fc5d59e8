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

/// Appends a quiet put. The node drops the value after `ttl_s` seconds unless that is 0.
pub(crate) fn write_put(out: &mut Vec<u8>, name: &Name, ttl_s: u32, value: &[u8]) {
    out.extend_from_slice(b"ms ");
    name.write_base64(out);
    let _ = match ttl_s {
        0 => write!(out, " {} b q\r\n", value.len()),
        _ => write!(out, " {} b q T{ttl_s}\r\n", value.len()),
    };
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Appends a quiet deletion.
pub(crate) fn write_delete(out: &mut Vec<u8>, name: &Name) {
    out.extend_from_slice(b"md ");
    name.write_base64(out);
    out.extend_from_slice(b" b q\r\n");
}

/// Ends a batch.
pub(crate) const END_OF_BATCH: &[u8] = b"mn\r\n";

/// Asks for the counters of the node.
pub(crate) const STATS: &[u8] = b"stats\r\n";

#[cfg(test)]
mod tests;
