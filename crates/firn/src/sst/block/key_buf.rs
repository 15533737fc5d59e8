//! A buffer in which a cursor assembles a prefix-compressed key.

/// Bytes of a key that are kept without an allocation. Most keys fit; a larger size would make
/// cursors take more cache lines.
const INLINE: usize = 64;

/// A growing key. A key of up to [`INLINE`] bytes lies in the struct itself, so that making a
/// cursor allocates nothing. A longer key lies in a vector, which is kept for the next long key.
#[derive(Clone)]
pub(super) struct KeyBuf {
    len: usize,
    inline: [u8; INLINE],
    /// The key, if it is longer than [`INLINE`]; otherwise its content is stale.
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

    /// Keeps the first `len` bytes; the key must have at least as many.
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
