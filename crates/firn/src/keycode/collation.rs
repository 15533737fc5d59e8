//! Collations: what the codec must know of them; the weights come from outside.

use super::Pad;
use crate::base::{Error, Result};
use std::fmt;
use std::sync::Arc;

/// Computes the weights of text. Called from any thread.
pub trait Collator: Send + Sync + fmt::Debug {
    /// Appends the weights of `text` on `level`, each in [`CollationSpec::weight_len`] bytes,
    /// big-endian, without padding. Returns how many bytes of `text` were weighed: fewer than all
    /// if the byte after them begins no character.
    fn sort_key(&self, level: u32, text: &[u8], weights: &mut Vec<u8>) -> usize;

    /// Bytes of the first `chars` characters of `text`, or all if it has fewer.
    fn prefix_len(&self, text: &[u8], chars: usize) -> usize;

    /// Characters of `text`.
    fn chars(&self, text: &[u8]) -> usize;
}

/// One level of a collation: its weights are compared before those of the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Level {
    /// What [`Collator::sort_key`] calls the level.
    pub number: u32,
    /// The weight of a space.
    pub space: u32,
    /// Whether a shorter string is smaller (NO PAD); otherwise it is compared as if spaces
    /// followed (PAD SPACE).
    pub no_pad: bool,
}

/// Whether the weights of a collation give the text back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextForm {
    /// They do not.
    Lost,
    /// Weights are the bytes of the text.
    Bytes,
    /// Weights are the code points of UTF-8 text.
    Utf8,
}

/// Describes a collation.
#[derive(Debug, Clone)]
pub struct CollationSpec {
    /// The server's number for it.
    pub id: u32,
    /// The server's name for it.
    pub name: Box<str>,
    /// A space of the character set.
    pub pad: Pad,
    /// Levels in the order of comparison.
    pub levels: Vec<Level>,
    /// Bytes of one weight: 1, 2 or 3.
    pub weight_len: u8,
    /// Weights of single bytes: text whose bytes are all below the length of this table weighs,
    /// on its only level, what the table says for each byte. Empty if there is no such shortcut.
    pub simple: Vec<u8>,
    /// Whether weights give the text back.
    pub form: TextForm,
    /// Whether CHAR is compared with its padding, as NO PAD collations that ignore characters do;
    /// CHAR of other collations compares as PAD SPACE.
    pub char_filled: bool,
}

/// A collation: its description and where its weights come from.
#[derive(Debug, Clone)]
pub struct Collation {
    spec: CollationSpec,
    collator: Arc<dyn Collator>,
}

impl Collation {
    /// Checks the description.
    ///
    /// # Errors
    /// `InvalidArgument` if it contradicts itself.
    pub fn new(spec: CollationSpec, collator: Arc<dyn Collator>) -> Result<Self> {
        let limit = match spec.weight_len {
            1 => 1 << 8,
            2 => 1 << 16,
            3 => super::unit::MALFORMED,
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

    /// `text` up to its first `chars` characters.
    pub(super) fn prefix<'a>(&self, text: &'a [u8], chars: usize) -> &'a [u8] {
        if text.len() <= chars.saturating_mul(self.spec.pad.as_bytes().len()) {
            return text;
        }
        &text[..self.collator.prefix_len(text, chars).min(text.len())]
    }
}
