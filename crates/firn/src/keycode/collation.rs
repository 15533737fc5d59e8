//! Descriptions of collations, with the facts that encoding and decoding need. A [`Collator`]
//! computes the weights.

use super::Pad;
use crate::base::{Error, Result};
use std::fmt;
use std::sync::Arc;

/// Computes the collation weights of text. All threads share one.
pub trait Collator: Send + Sync + fmt::Debug {
    /// Appends the weights of `text` on `level`, without padding; each weight is big-endian and has
    /// [`CollationSpec::weight_len`] bytes. Stops at a byte that begins no character. Returns the
    /// number of bytes of `text` before that byte, or of all bytes.
    fn sort_key(&self, level: u32, text: &[u8], weights: &mut Vec<u8>) -> usize;

    /// As [`Self::sort_key`], for the text of a CHAR that is filled with spaces
    /// ([`CollationSpec::char_filled`]).
    fn filled_sort_key(&self, level: u32, text: &[u8], weights: &mut Vec<u8>) -> usize {
        self.sort_key(level, text, weights)
    }

    /// Length in bytes of the first `chars` characters of `text`, or of the whole text if it has
    /// fewer.
    fn prefix_len(&self, text: &[u8], chars: usize) -> usize;

    /// The number of characters of `text`.
    fn chars(&self, text: &[u8]) -> usize;
}

/// One level of a collation. The weights of a whole text on one level are compared before its
/// weights on the next level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CollationLevel {
    /// The number by which [`Collator::sort_key`] identifies the level.
    pub number: u32,
    /// The weight of a space on this level.
    pub space: u32,
    /// Whether a text that is a prefix of another one is smaller (NO PAD). Otherwise texts compare
    /// as if infinitely many spaces followed (PAD SPACE).
    pub no_pad: bool,
}

/// Whether the text can be decoded from its weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextForm {
    /// The text cannot be decoded from its weights.
    Lost,
    /// The weights are the bytes of the text.
    Bytes,
    /// The weights are the code points of UTF-8 text.
    Utf8,
}

/// The description of a collation.
#[derive(Debug, Clone)]
pub struct CollationSpec {
    /// The server's number of the collation.
    pub id: u32,
    /// The server's name of the collation.
    pub name: Box<str>,
    /// A space in the encoding of the character set.
    pub pad: Pad,
    /// The levels in the order of comparison.
    pub levels: Vec<CollationLevel>,
    /// Number of bytes of one weight: 1, 2 or 3.
    pub weight_len: u8,
    /// The weights of single bytes, a shortcut that needs no collator; empty if the collation has
    /// none. If all bytes of a text are below the length of this table, the text has, on the only
    /// level of the collation, the table's weight for each of its bytes.
    pub simple: Vec<u8>,
    /// Whether the text can be decoded from its weights.
    pub form: TextForm,
    /// Whether a CHAR value compares together with the spaces that fill it, as NO PAD. The server
    /// does this in NO PAD collations that give some characters no weight, and in collations that
    /// move characters behind the spaces. In all other collations, CHAR compares as PAD SPACE.
    pub char_filled: bool,
}

/// A collation: its description and its collator.
#[derive(Debug, Clone)]
pub struct Collation {
    spec: CollationSpec,
    collator: Arc<dyn Collator>,
}

impl Collation {
    /// Creates a collation and checks its description.
    ///
    /// # Errors
    /// `InvalidArgument` if the description contradicts itself.
    pub fn new(spec: CollationSpec, collator: Arc<dyn Collator>) -> Result<Self> {
        let limit = match spec.weight_len {
            1 => 1 << 8,
            2 => 1 << 16,
            3 => super::weight_unit::MALFORMED,
            _ => return Err(Error::invalid("weights have 1 to 3 bytes")),
        };
        let spaces_fit = spec.levels.iter().all(|level| level.space < limit);
        // Weights of two or three bytes are encoded as units, but the weights in the table `simple`
        // as single bytes. Both give the same key bytes only for weights below 0x80, so refuse
        // larger ones.
        let simple_fits = spec.weight_len == 1 || spec.simple.iter().all(|&w| w < 0x80);
        let one_level = spec.levels.len() == 1;
        let simple_good = spec.simple.is_empty()
            || (one_level
                && spec.simple.len() <= 256
                && simple_fits
                && spec.simple.get(0x20).copied().map(u32::from) == Some(spec.levels[0].space));
        let form_good = match spec.form {
            TextForm::Lost => true,
            TextForm::Bytes => one_level && spec.weight_len == 1 && spec.levels[0].space == 0x20,
            TextForm::Utf8 => one_level && spec.weight_len > 1 && spec.levels[0].space == 0x20,
        };
        if spec.levels.is_empty() || !spaces_fit || !simple_good || !form_good {
            return Err(Error::invalid(format_args!(
                "description of collation {}",
                spec.name
            )));
        }
        Ok(Self { spec, collator })
    }

    /// The description of the collation.
    pub fn spec(&self) -> &CollationSpec {
        &self.spec
    }

    pub(super) fn collator(&self) -> &dyn Collator {
        &*self.collator
    }

    /// The first `chars` characters of `text`.
    pub(super) fn prefix<'a>(&self, text: &'a [u8], chars: usize) -> &'a [u8] {
        if text.len() <= chars.saturating_mul(self.spec.pad.as_bytes().len()) {
            return text;
        }
        &text[..self.collator.prefix_len(text, chars).min(text.len())]
    }
}
