//! Finds the ends of key parts, for code that does not know the meaning of the keys.

use super::collation::Collator;
use super::key_codec::KeyCodec;
use super::key_reader::KeyReader;
use crate::base::Result;
use crate::base::key::INDEX_ID_LEN;
use crate::base::prefix_extractor::PrefixExtractor;

/// A collator for codecs that never encode text: the end of a text part does not depend on weights.
#[derive(Debug, Clone, Copy)]
pub struct NoCollator;

impl Collator for NoCollator {
    fn sort_key(&self, _level: u32, _text: &[u8], _weights: &mut Vec<u8>) -> usize {
        0
    }

    fn prefix_len(&self, text: &[u8], _chars: usize) -> usize {
        text.len()
    }

    fn chars(&self, text: &[u8]) -> usize {
        text.len()
    }
}

/// Finds the ends of the declared parts in the keys of one index. It encodes nothing, so it needs
/// no collators.
#[derive(Debug, Clone)]
pub struct KeyPrefixExtractor {
    codec: KeyCodec,
    prefixes: usize,
}

impl KeyPrefixExtractor {
    /// Finds the ends in keys of `codec`, whose collators may be [`NoCollator`]. `unique`: no two
    /// keys agree in all parts.
    pub fn new(codec: KeyCodec, unique: bool) -> Self {
        let parts = codec.parts().len();
        Self {
            codec,
            prefixes: parts - usize::from(unique),
        }
    }

    /// Length of the index id and the declared parts at the start of `user_key`, bytes, and whether
    /// a part is NULL.
    ///
    /// # Errors
    /// `Corruption`, without file name, if the bytes are no key of this index.
    pub fn declared(&self, user_key: &[u8]) -> Result<(usize, bool)> {
        let parts = self.codec.parts().len();
        let rest = user_key.get(INDEX_ID_LEN..).unwrap_or_default();
        let len = self.codec.skip(rest, parts)?;
        Ok((INDEX_ID_LEN + len, self.codec.has_null(rest, parts)?))
    }

    /// Length of the part number `part` at the start of `rest`, bytes; `None` if the bytes are no
    /// such part.
    pub fn part_len(&self, rest: &[u8], part: usize) -> Option<usize> {
        let len = self.skip(rest, part).ok()?;
        (len > 0).then_some(len)
    }

    fn skip(&self, rest: &[u8], part: usize) -> Result<usize> {
        let mut reader = KeyReader::new(rest);
        if let Some(part) = self.codec.parts().get(part) {
            part.skip(&mut reader)?;
        }
        Ok(rest.len() - reader.rest().len())
    }
}

impl PrefixExtractor for KeyPrefixExtractor {
    fn prefixes(&self) -> usize {
        self.prefixes
    }

    fn fixed_len(&self, part: usize) -> Option<usize> {
        self.codec.parts().get(part)?.fixed_len()
    }

    fn part_end(&self, user_key: &[u8], part: usize, from: usize) -> Option<usize> {
        let rest = user_key.get(from.max(INDEX_ID_LEN)..)?;
        Some(from + self.skip(rest, part).ok()?)
    }
}
