//! The value of an index entry: the parts of columns that the entry's key cannot give back.
//!
//! The value has one item for each key part that needs one and is not NULL, in the order of the
//! parts. If the value has only zero bytes, an empty value is stored. That holds for nearly all
//! entries whose texts can be decoded from the key, because few texts end with spaces.

use super::collation::TextForm;
use super::damaged;
use super::key_part::{KeyPart, PartKind, PartSource};
use super::number::is_negative_zero;
use crate::base::{Result, varint};

/// The kind of item that the value of an index entry has for a key part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnpackInfo {
    /// No item: the key alone gives the column's value back, or the column is decoded from another
    /// part.
    Nothing,
    /// The whole text, preceded by its length.
    Text,
    /// The number of spaces at the end of the text.
    Spaces,
    /// One byte: 1 if the float is -0.0, otherwise 0.
    NegativeZero,
}

impl UnpackInfo {
    /// The item from which, together with `part`, the column can be decoded. `part` is no prefix
    /// part: it has the whole value of its column.
    pub(super) fn of(part: &KeyPart) -> Self {
        match &part.kind {
            PartKind::Float => Self::NegativeZero,
            PartKind::Text(collation) => {
                let varies = !matches!(part.source, PartSource::Char { .. });
                let spec = collation.spec();
                match spec.form {
                    TextForm::Lost => Self::Text,
                    _ if varies && !spec.levels[0].no_pad => Self::Spaces,
                    _ => Self::Nothing,
                }
            }
            _ => Self::Nothing,
        }
    }

    /// Appends the item for `value`, which is not NULL.
    pub(super) fn put(self, part: &KeyPart, value: &[u8], out: &mut Vec<u8>) {
        match self {
            Self::Nothing => {}
            Self::Text => varint::put_bytes(out, value),
            Self::Spaces => {
                let spaces = match &part.kind {
                    PartKind::Text(collation) => {
                        value.len() - collation.spec().pad.stripped_len(value)
                    }
                    _ => 0,
                };
                varint::put_u64(out, spaces as u64);
            }
            Self::NegativeZero => out.push(u8::from(is_negative_zero(value))),
        }
    }
}

/// Reads the items in the value of an index entry, in the order of the parts.
#[derive(Debug)]
pub(super) struct UnpackReader<'a> {
    rest: &'a [u8],
    all_zero: bool,
}

impl<'a> UnpackReader<'a> {
    pub(super) fn new(value: &'a [u8]) -> Self {
        Self {
            rest: value,
            all_zero: value.is_empty(),
        }
    }

    pub(super) fn text(&mut self) -> Result<&'a [u8]> {
        if self.all_zero {
            return Ok(&[]);
        }
        varint::take_bytes(&mut self.rest).ok_or_else(|| damaged("text of an index entry"))
    }

    pub(super) fn number(&mut self) -> Result<usize> {
        if self.all_zero {
            return Ok(0);
        }
        varint::take_u64(&mut self.rest)
            .and_then(|number| usize::try_from(number).ok())
            .ok_or_else(|| damaged("number in an index entry"))
    }
}
