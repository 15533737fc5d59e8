//! Reads encoded parts. The bytes of descending parts are inverted.

use super::damaged;
use crate::base::Result;

/// The rest of a key, from some part on. `mask` is 0xff while it reads a descending part.
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

    /// The bytes not read yet, as stored.
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

    /// The next `len` bytes, as stored.
    pub(super) fn raw(&mut self, len: usize) -> Result<&'a [u8]> {
        let (front, rest) = self
            .rest
            .split_at_checked(len)
            .ok_or_else(|| damaged("ends early"))?;
        self.rest = rest;
        Ok(front)
    }

    /// Copies the next bytes into `room`.
    pub(super) fn fill(&mut self, room: &mut [u8]) -> Result<()> {
        let raw = self.raw(room.len())?;
        for (to, from) in room.iter_mut().zip(raw) {
            *to = from ^ self.mask;
        }
        Ok(())
    }

    /// The stored bytes before the next `stop`, and the mask that decodes them. `stop` is consumed.
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
