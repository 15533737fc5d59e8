//! Reads the bytes of encoded key parts. In descending parts all bytes are inverted.

use super::damaged;
use crate::base::Result;

/// Reads an encoded key from front to back. Each byte is XORed with `mask`: 0xff while a descending
/// part is read, else 0.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeyReader<'a> {
    rest: &'a [u8],
    mask: u8,
}

impl<'a> KeyReader<'a> {
    pub(super) fn new(key: &'a [u8]) -> Self {
        Self { rest: key, mask: 0 }
    }

    pub(super) fn set_descending(&mut self, desc: bool) {
        self.mask = if desc { 0xff } else { 0 };
    }

    /// The bytes that are not read yet; the mask is not applied.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(super) fn byte(&mut self) -> Result<u8> {
        let (&first, rest) = self
            .rest
            .split_first()
            .ok_or_else(|| damaged("ends early"))?;
        self.rest = rest;
        Ok(first ^ self.mask)
    }

    /// Reads the next `len` bytes; the mask is not applied.
    pub(super) fn raw(&mut self, len: usize) -> Result<&'a [u8]> {
        let (front, rest) = self
            .rest
            .split_at_checked(len)
            .ok_or_else(|| damaged("ends early"))?;
        self.rest = rest;
        Ok(front)
    }

    /// Fills `room` with the next bytes and applies the mask to them.
    pub(super) fn fill(&mut self, room: &mut [u8]) -> Result<()> {
        let raw = self.raw(room.len())?;
        for (to, from) in room.iter_mut().zip(raw) {
            *to = from ^ self.mask;
        }
        Ok(())
    }

    /// Reads the bytes before the next `stop` and skips `stop`. Returns these bytes as they are in
    /// the key, and the mask that the caller must apply to them.
    pub(super) fn until(&mut self, stop: u8) -> Result<(&'a [u8], u8)> {
        let stop = stop ^ self.mask;
        let at = self
            .rest
            .iter()
            .position(|&byte| byte == stop)
            .ok_or_else(|| damaged("text without end"))?;
        let before = &self.rest[..at];
        self.rest = &self.rest[at + 1..];
        Ok((before, self.mask))
    }
}
