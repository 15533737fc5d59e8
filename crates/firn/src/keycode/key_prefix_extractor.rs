//! Finds where the parts of a key end, for layers that do not know the types of the parts.

use super::collation::Collator;
use super::key_codec::KeyCodec;
use super::key_reader::KeyReader;
use crate::base::Result;
use crate::base::key::INDEX_ID_LEN;
use crate::base::prefix_extractor::PrefixExtractor;

/// A collator for codecs that never encode text. To find where a text part ends takes no weights,
/// so this collator computes none.
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

/// Finds where the declared parts, those that the definition of the index names, end in the keys of
/// one index. It never encodes text, so it needs no collator of the server.
#[derive(Debug, Clone)]
pub struct KeyPrefixExtractor {
    codec: KeyCodec,
    prefixes: usize,
}

impl KeyPrefixExtractor {
    /// The prefix extractor for keys of `codec`, whose collators may be [`NoCollator`]. `unique`
    /// says that no two keys have the same values in all parts. Then the prefix of all parts needs
    /// no sketch, because it has as many distinct values as there are keys.
    pub fn new(codec: KeyCodec, unique: bool) -> Self {
        let parts = codec.parts().len();
        Self {
            codec,
            prefixes: parts - usize::from(unique),
        }
    }

    /// Length in bytes of the index id and the declared parts at the start of `user_key`, and
    /// whether one of the parts is NULL.
    ///
    /// # Errors
    /// `Corruption`, without file name, if the bytes are no key of this index.
    pub fn declared(&self, user_key: &[u8]) -> Result<(usize, bool)> {
        let parts = self.codec.parts().len();
        let rest = user_key.get(INDEX_ID_LEN..).unwrap_or_default();
        let len = self.codec.skip(rest, parts)?;
        Ok((INDEX_ID_LEN + len, self.codec.has_null(rest, parts)?))
    }

    /// Length in bytes of part number `part`, which begins at the start of `rest`; `None` if the
    /// bytes are no such part.
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
