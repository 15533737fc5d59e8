//! A key that is put together piece by piece.

/// Most keys fit; with the rest of a cursor it makes up a few cache lines.
const INLINE: usize = 64;

/// A growing key. Short ones, which is nearly all, lie inside: a cursor is made without an
/// allocation. Longer ones go to a vector that is kept.
#[derive(Clone)]
pub(super) struct KeyBuf {
    len: usize,
    inline: [u8; INLINE],
    /// Holds the key when it is longer than [`INLINE`].
    long: Vec<u8>,
}

impl Default for KeyBuf {
    fn default() -> Self {
        Self {
            len: 0,
            inline: [0; INLINE],
            long: Vec::new(),
        }
    }
}

impl KeyBuf {
    #[inline]
    pub(super) fn as_slice(&self) -> &[u8] {
        if self.len <= INLINE {
            &self.inline[..self.len]
        } else {
            &self.long
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Keeps the first `len` bytes, of at least as many.
    #[inline]
    pub(super) fn truncate(&mut self, len: usize) {
        debug_assert!(len <= self.len);
        if self.len > INLINE {
            self.long.truncate(len);
            if len <= INLINE {
                self.inline[..len].copy_from_slice(&self.long);
            }
        }
        self.len = len;
    }

    #[inline]
    pub(super) fn extend(&mut self, bytes: &[u8]) {
        let len = self.len + bytes.len();
        if let Some(room) = self.inline.get_mut(self.len..len) {
            room.copy_from_slice(bytes);
        } else {
            self.extend_long(bytes);
        }
        self.len = len;
    }

    #[cold]
    fn extend_long(&mut self, bytes: &[u8]) {
        if self.len <= INLINE {
            self.long.clear();
            self.long.extend_from_slice(&self.inline[..self.len]);
        }
        self.long.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests;
