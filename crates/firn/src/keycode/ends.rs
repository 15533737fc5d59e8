//! Where parts of keys end, for those who do not know what the keys mean.

use super::codec::KeyCodec;
use super::collation::Collator;
use super::reader::Reader;
use crate::base::Result;
use crate::base::key::INDEX_ID_LEN;
use crate::base::shape::KeyShape;

/// A collator for codecs that never see text: what ends a part of text does not depend on weights.
#[derive(Debug, Clone, Copy)]
pub struct Weightless;

impl Collator for Weightless {
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

/// Knows where the declared parts of the keys of one index end. Encodes nothing, and so does without
/// collators.
#[derive(Debug, Clone)]
pub struct KeyEnds {
    codec: KeyCodec,
    prefixes: usize,
}

impl KeyEnds {
    /// The ends of keys of `codec`, whose collators may be [`Weightless`]. `unique`: no two keys agree
    /// in all parts.
    pub fn new(codec: KeyCodec, unique: bool) -> Self {
        let parts = codec.parts().len();
        Self {
            codec,
            prefixes: parts - usize::from(unique),
        }
    }

    /// Bytes of index id and declared parts at the start of `user_key`, and whether a part is NULL.
    ///
    /// # Errors
    /// `Corruption`, without file name, if the bytes are no such key.
    pub fn declared(&self, user_key: &[u8]) -> Result<(usize, bool)> {
        let parts = self.codec.parts().len();
        let rest = user_key.get(INDEX_ID_LEN..).unwrap_or_default();
        let len = self.codec.skip(rest, parts)?;
        Ok((INDEX_ID_LEN + len, self.codec.has_null(rest, parts)?))
    }

    fn skip(&self, rest: &[u8], part: usize) -> Result<usize> {
        let mut reader = Reader::new(rest);
        if let Some(part) = self.codec.parts().get(part) {
            part.skip(&mut reader)?;
        }
        Ok(rest.len() - reader.rest().len())
    }
}

impl KeyShape for KeyEnds {
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
