//! Descriptions of collations, as far as the codec needs them. The weights come from a
//! [`Collator`].

use super::Pad;
use crate::base::{Error, Result};
use std::fmt;
use std::sync::Arc;

/// Computes the weights of text. It is called from any thread.
pub trait Collator: Send + Sync + fmt::Debug {
    /// Appends the weights of `text` on `level`, each in [`CollationSpec::weight_len`] bytes,
    /// big-endian, without padding. Returns the number of bytes of `text` that it weighed: less
    /// than all if the next byte begins no character.
    fn sort_key(&self, level: u32, text: &[u8], weights: &mut Vec<u8>) -> usize;

    /// The number of bytes of the first `chars` characters of `text`, or of all if it has fewer.
    fn prefix_len(&self, text: &[u8], chars: usize) -> usize;

    /// The number of characters of `text`.
    fn chars(&self, text: &[u8]) -> usize;
}

/// One level of a collation. Its weights are compared before those of the next level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CollationLevel {
    /// The number of the level for [`Collator::sort_key`].
    pub number: u32,
    /// The weight of a space.
    pub space: u32,
    /// Whether a shorter string is smaller (NO PAD). Otherwise it compares as if spaces followed
    /// (PAD SPACE).
    pub no_pad: bool,
}

/// Whether the weights of a collation give the text back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextForm {
    /// They do not give it back.
    Lost,
    /// The weights are the bytes of the text.
    Bytes,
    /// The weights are the code points of UTF-8 text.
    Utf8,
}

/// Describes a collation.
#[derive(Debug, Clone)]
pub struct CollationSpec {
    /// The server's number for it.
    pub id: u32,
    /// The server's name for it.
    pub name: Box<str>,
    /// The encoded space of the character set.
    pub pad: Pad,
    /// Levels in the order of comparison.
    pub levels: Vec<CollationLevel>,
    /// Bytes of one weight: 1, 2 or 3.
    pub weight_len: u8,
    /// A table of weights of single bytes: text whose bytes are all below the length of the table
    /// has, on its only level, the table's weight for each byte. Empty if there is no such
    /// shortcut.
    pub simple: Vec<u8>,
    /// Whether weights give the text back.
    pub form: TextForm,
    /// Whether CHAR compares with its padding, as in NO PAD collations that ignore characters. CHAR
    /// of other collations compares as PAD SPACE.
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
        // A unit of one byte is the weight itself only below 0x80.
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

    /// The description.
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
