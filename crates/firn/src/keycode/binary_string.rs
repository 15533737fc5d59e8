//! The encoding of binary strings: escaped, and terminated by a zero byte.
//!
//! In the string, `00` becomes `01 01` and `01` becomes `01 02`; the terminator is `00`. So the
//! terminator sorts below every byte of an encoded string. It takes only one byte, and is found by
//! searching for that byte.
//!
//! Example: `41 00 42` becomes `41 01 01 42 00`.
//!
//! Rejected: groups of eight bytes with a count, as a short string would take nine bytes.
//! Rejected: `00 ff` for a zero byte, as the terminator would take two bytes.

use super::damaged;
use super::key_reader::KeyReader;
use crate::base::Result;

pub(super) const END: u8 = 0;
pub(super) const ESCAPE: u8 = 1;

/// Escapes `bytes` and appends them without the terminator.
pub(super) fn put_escaped(out: &mut Vec<u8>, bytes: &[u8]) {
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|&byte| byte <= ESCAPE) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(&[ESCAPE, rest[at] + 1]);
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
}

pub(super) fn encode(out: &mut Vec<u8>, bytes: &[u8]) {
    put_escaped(out, bytes);
    out.push(END);
}

pub(super) fn skip(reader: &mut KeyReader<'_>) -> Result<()> {
    reader.until(END).map(|_| ())
}

/// Decodes a string into the first bytes of `room` and returns the string's length in bytes.
pub(super) fn decode(reader: &mut KeyReader<'_>, room: &mut [u8]) -> Result<usize> {
    let (raw, mask) = reader.until(END)?;
    let mut bytes = raw.iter().map(|byte| byte ^ mask);
    let mut len = 0;
    while let Some(mut byte) = bytes.next() {
        if byte == ESCAPE {
            byte = match bytes.next() {
                Some(escaped @ 1..=2) => escaped - 1,
                _ => return Err(damaged("escape in a binary string")),
            };
        }
        *room
            .get_mut(len)
            .ok_or_else(|| damaged("binary string longer than its column"))? = byte;
        len += 1;
    }
    Ok(len)
}
