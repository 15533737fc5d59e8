//! One part of a key: where the record buffer has its value, and how the value is encoded.
//!
//! The encoded parts compare as the values do (`docs/formats/key.md`), so the tree can compare keys
//! with `memcmp` without knowing types. Example, an INT column that may be NULL: NULL is `00`. -2
//! is `01 7f ff ff fe`: a marker, then the integer in big-endian with the sign bit flipped. 3 is
//! `01 80 00 00 03`. In a descending part all bytes are inverted: 3 is `fe 7f ff ff fc`, and NULL
//! is `ff`, which sorts last.

use super::collation::{Collation, TextForm};
use super::key_reader::KeyReader;
use super::text_weights::{self, PadRule};
use super::{NullBit, binary_string, damaged, number};
use crate::base::record_buffer::{blob_bytes, take_len};
use crate::base::{Error, Result};
use std::sync::Arc;

/// Number of bytes of the length that precedes a VARCHAR or BLOB value in a key image.
pub(super) const IMAGE_LEN_BYTES: usize = 2;

const NULL: u8 = 0;
const NOT_NULL: u8 = 1;

/// How the values of a part compare, which determines their encoding.
#[derive(Debug, Clone)]
pub enum PartKind {
    /// A little-endian integer of 1, 2, 3, 4 or 8 bytes.
    Int {
        /// Whether the integer is in two's complement.
        signed: bool,
    },
    /// A little-endian FLOAT (4 bytes) or DOUBLE (8 bytes).
    Float,
    /// Values of one fixed length that compare as their bytes do: DECIMAL, temporal types with
    /// fractions, BIT, BINARY, UUID, INET6.
    Fixed,
    /// Binary strings of varying length.
    VarBytes,
    /// Text, which compares by a collation.
    Text(Arc<Collation>),
}

/// The form in which the record buffer has the column of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartSource {
    /// Bytes of a fixed length.
    Fixed,
    /// Text padded to the length of the column.
    Char {
        /// Length of the column in characters.
        chars: u32,
    },
    /// A length of 1 or 2 bytes, then the value's bytes.
    VarChar {
        /// Number of bytes of the length.
        len_bytes: u8,
    },
    /// A length of 1 to 4 bytes, then a pointer to the value's bytes.
    Blob {
        /// Number of bytes of the length.
        len_bytes: u8,
    },
}

/// One part of a key.
#[derive(Debug, Clone)]
pub struct KeyPart {
    /// Number of the column in the table.
    pub column: u32,
    /// How the values compare.
    pub kind: PartKind,
    /// The form of the column in the record buffer.
    pub source: PartSource,
    /// Offset of the column in the record buffer, bytes.
    pub offset: u32,
    /// Length in bytes of the column's data in the record buffer. The length field of a VARCHAR is
    /// not counted, and for a blob this is 0.
    pub len: u32,
    /// Position of the column's NULL bit in the record buffer, if the column may be NULL.
    pub null: Option<NullBit>,
    /// Whether larger values come first.
    pub desc: bool,
    /// In a prefix part, the number of characters (text) or bytes (other kinds) that the key has of
    /// the value; `None` if it has the whole value.
    pub prefix: Option<u32>,
    /// Length in bytes of the value in a key image, without the NULL byte and the length field.
    pub image_len: u32,
}

impl KeyPart {
    pub(super) fn check(&self, record_len: u32) -> Result<()> {
        let fixed = self.source == PartSource::Fixed;
        let good = match self.kind {
            PartKind::Int { .. } => {
                fixed && matches!(self.len, 1 | 2 | 3 | 4 | 8) && self.prefix.is_none()
            }
            PartKind::Float => fixed && matches!(self.len, 4 | 8) && self.prefix.is_none(),
            PartKind::Fixed => fixed && self.prefix.is_none_or(|prefix| prefix <= self.len),
            PartKind::VarBytes => {
                matches!(
                    self.source,
                    PartSource::VarChar { .. } | PartSource::Blob { .. }
                )
            }
            PartKind::Text(_) => !fixed,
        };
        let len_bytes_good = match self.source {
            PartSource::VarChar { len_bytes } => matches!(len_bytes, 1 | 2),
            PartSource::Blob { len_bytes } => matches!(len_bytes, 1..=4) && self.prefix.is_some(),
            _ => true,
        };
        let end = u64::from(self.offset) + self.field_len() as u64;
        let inside = end <= u64::from(record_len)
            && self.null.is_none_or(|null| null.offset < record_len)
            && self.image_len <= u32::from(u16::MAX)
            && (!fixed || self.image_len == self.prefix.unwrap_or(self.len));
        if good && len_bytes_good && inside {
            Ok(())
        } else {
            Err(Error::invalid(format_args!(
                "key part on column {}",
                self.column
            )))
        }
    }

    /// Length in bytes of the column's field in the record buffer.
    fn field_len(&self) -> usize {
        let around = match self.source {
            PartSource::Fixed | PartSource::Char { .. } => 0,
            PartSource::VarChar { len_bytes } => usize::from(len_bytes),
            PartSource::Blob { len_bytes } => usize::from(len_bytes) + size_of::<*const u8>(),
        };
        around + self.len as usize
    }

    /// Length in bytes of the part in a key image, with the NULL byte and the length field.
    pub(super) fn stored_image_len(&self) -> usize {
        let length = match self.source {
            PartSource::Fixed | PartSource::Char { .. } => 0,
            _ => IMAGE_LEN_BYTES,
        };
        usize::from(self.null.is_some()) + length + self.image_len as usize
    }

    /// The value in `record`, or `None` if it is NULL. The value of CHAR has no padding.
    ///
    /// # Safety
    /// If the column is a blob that is neither NULL nor empty, its pointer must point to at least
    /// as many bytes as its length says, readable and unchanged while `record` is borrowed.
    pub(super) unsafe fn value<'a>(&self, record: &'a [u8]) -> Result<Option<&'a [u8]>> {
        if self.null.is_some_and(|null| null.is_set(record)) {
            return Ok(None);
        }
        let at = self.offset as usize;
        let field = &record[at..at + self.field_len()];
        let value = match self.source {
            PartSource::Fixed | PartSource::Char { .. } => self.strip(field),
            PartSource::VarChar { len_bytes } => {
                let (len, bytes) = take_len(field, len_bytes);
                bytes
                    .get(..len)
                    .ok_or_else(|| Error::invalid("VARCHAR longer than its maximum"))?
            }
            // SAFETY: the caller guarantees that the pointer of a blob that is neither NULL nor
            // empty covers its length, readable and unchanged as long as the result is used.
            // `blob_bytes` itself handles a null pointer.
            PartSource::Blob { len_bytes } => unsafe { blob_bytes(field, len_bytes) }?,
        };
        Ok(Some(value))
    }

    /// Takes the value of the part from the front of a key image; `None` if it is NULL.
    pub(super) fn take_image<'a>(&self, image: &mut &'a [u8]) -> Result<Option<&'a [u8]>> {
        let short = || Error::invalid("key image ends within a part");
        let (part, rest) = image
            .split_at_checked(self.stored_image_len())
            .ok_or_else(short)?;
        *image = rest;
        let mut part = part;
        if self.null.is_some() {
            let (&null, value) = part.split_first().ok_or_else(short)?;
            if null != 0 {
                return Ok(None);
            }
            part = value;
        }
        Ok(Some(match self.source {
            PartSource::Fixed | PartSource::Char { .. } => self.strip(part),
            _ => {
                let (len, bytes) = take_len(part, IMAGE_LEN_BYTES as u8);
                &bytes[..len.min(bytes.len())]
            }
        }))
    }

    fn strip<'a>(&self, field: &'a [u8]) -> &'a [u8] {
        match (&self.kind, self.source) {
            (PartKind::Text(collation), PartSource::Char { .. }) => {
                &field[..collation.spec().pad.stripped_len(field)]
            }
            _ => field,
        }
    }

    /// The bytes of `value` that the key has: all of them or, in a prefix part, the first ones.
    pub(super) fn counting<'a>(&self, value: &'a [u8]) -> &'a [u8] {
        match (&self.kind, self.prefix) {
            (_, None) => value,
            (PartKind::Text(collation), Some(chars)) => collation.prefix(value, chars as usize),
            (_, Some(len)) => &value[..value.len().min(len as usize)],
        }
    }

    /// Encodes `value` and appends it. Returns whether it is NULL.
    pub(super) fn encode(&self, value: Option<&[u8]>, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        if self.null.is_some() {
            out.push(if value.is_some() { NOT_NULL } else { NULL });
        }
        if let Some(value) = value {
            let value = self.counting(value);
            match &self.kind {
                PartKind::Int { signed } => number::encode_int(out, value, *signed),
                PartKind::Float => number::encode_float(out, value),
                PartKind::Fixed => out.extend_from_slice(value),
                PartKind::VarBytes => binary_string::encode(out, value),
                PartKind::Text(collation) => {
                    text_weights::encode(collation, value, self.pad_rule(collation), out);
                }
            }
        }
        if self.desc {
            for byte in &mut out[start..] {
                *byte = !*byte;
            }
        }
        value.is_none()
    }

    fn pad_rule(&self, collation: &Collation) -> PadRule {
        match self.source {
            PartSource::Char { chars } if collation.spec().char_filled => {
                PadRule::Filled(self.prefix.unwrap_or(chars) as usize)
            }
            PartSource::Char { .. } => PadRule::Padded,
            _ => PadRule::Value,
        }
    }

    /// Reads the NULL marker, if the part has one. Returns whether the part is NULL.
    fn take_null(&self, reader: &mut KeyReader<'_>) -> Result<bool> {
        reader.set_descending(self.desc);
        if self.null.is_none() {
            return Ok(false);
        }
        match reader.byte()? {
            NULL => Ok(true),
            NOT_NULL => Ok(false),
            _ => Err(damaged("NULL marker")),
        }
    }

    /// Skips the part in `reader`. Returns whether the part is NULL.
    pub(super) fn skip(&self, reader: &mut KeyReader<'_>) -> Result<bool> {
        if self.take_null(reader)? {
            return Ok(true);
        }
        match &self.kind {
            PartKind::Int { .. } | PartKind::Float | PartKind::Fixed => {
                reader.raw(self.prefix.unwrap_or(self.len) as usize)?;
            }
            PartKind::VarBytes => binary_string::skip(reader)?,
            PartKind::Text(collation) => {
                text_weights::skip(collation, self.pad_rule(collation), reader)?
            }
        }
        Ok(false)
    }

    /// Length in bytes of the encoded part, if it is the same for all values.
    pub(super) fn fixed_len(&self) -> Option<usize> {
        match self.kind {
            PartKind::Int { .. } | PartKind::Float | PartKind::Fixed if self.null.is_none() => {
                Some(self.prefix.unwrap_or(self.len) as usize)
            }
            _ => None,
        }
    }

    /// Largest length in bytes of the encoded part; `None` if there is no bound.
    pub(super) fn max_len(&self) -> Option<usize> {
        let limit = |unit: usize| match self.source {
            PartSource::Blob { .. } => self.prefix.unwrap_or(0) as usize * unit,
            _ => self.len as usize,
        };
        let value = match &self.kind {
            PartKind::Int { .. } | PartKind::Float | PartKind::Fixed => {
                self.prefix.unwrap_or(self.len) as usize
            }
            PartKind::VarBytes => 2 * limit(1) + 1,
            PartKind::Text(collation) => {
                let spec = collation.spec();
                // The length is bounded only if each character has exactly one weight. Then a key
                // takes at most two bytes for each byte of the text if a weight is one byte,
                // otherwise at most four; these include escapes and marks.
                if spec.simple.is_empty() && spec.form == TextForm::Lost {
                    return None;
                }
                if spec.weight_len == 1 {
                    2 * limit(4) + 2
                } else {
                    4 * limit(4) + 2
                }
            }
        };
        Some(usize::from(self.null.is_some()) + value)
    }

    /// Whether the key has the whole value (its bytes or its collation weights), and not only a
    /// prefix.
    pub(super) fn is_whole(&self) -> bool {
        self.prefix.is_none()
    }

    /// Decodes the part, from the bytes after its NULL marker, and writes the value to `record`.
    /// The part must have the whole value, and text must be in a collation whose weights give the
    /// text back ([`TextForm`](super::collation::TextForm)). Appends `spaces` spaces to the text of
    /// a VARCHAR or TEXT column; with `negative_zero`, writes -0.0 for a float 0.0. Both arguments
    /// come from the unpack info.
    pub(super) fn decode(
        &self,
        reader: &mut KeyReader<'_>,
        negative_zero: bool,
        spaces: usize,
        record: &mut [u8],
    ) -> Result<()> {
        let at = self.offset as usize;
        let field = &mut record[at..at + self.field_len()];
        match &self.kind {
            PartKind::Int { signed } => number::decode_int(reader, field, *signed),
            PartKind::Float => number::decode_float(reader, field, negative_zero),
            PartKind::Fixed => reader.fill(field),
            PartKind::VarBytes => {
                let (length, room) = self.split_field(field)?;
                let len = binary_string::decode(reader, room)?;
                put_len(length, len);
                Ok(())
            }
            PartKind::Text(collation) => {
                let pad_rule = self.pad_rule(collation);
                let (length, room) = self.split_field(field)?;
                let len = text_weights::decode(collation, pad_rule, reader, room)?;
                let spaces = if length.is_empty() {
                    room.len() - len
                } else {
                    spaces
                };
                let end = len
                    .checked_add(spaces)
                    .ok_or_else(|| damaged("spaces at the end of text"))?;
                let padding = room
                    .get_mut(len..end)
                    .ok_or_else(|| damaged("text longer than its column"))?;
                collation.spec().pad.fill(padding);
                put_len(length, end);
                Ok(())
            }
        }
    }

    /// Reads the NULL marker and sets or clears the column's NULL bit in `record`. Returns whether
    /// the part is NULL.
    pub(super) fn decode_null(
        &self,
        reader: &mut KeyReader<'_>,
        record: &mut [u8],
    ) -> Result<bool> {
        let is_null = self.take_null(reader)?;
        if let Some(null) = self.null {
            null.set(record, is_null);
        }
        if is_null {
            let at = self.offset as usize;
            record[at..at + self.field_len()].fill(0);
        }
        Ok(is_null)
    }

    /// Writes `value` to the column's field in `record`. The value of CHAR comes without padding,
    /// which is added.
    pub(super) fn write(&self, value: &[u8], record: &mut [u8]) -> Result<()> {
        let at = self.offset as usize;
        let field = &mut record[at..at + self.field_len()];
        let (length, room) = self.split_field(field)?;
        let (text, rest) = room
            .split_at_mut_checked(value.len())
            .ok_or_else(|| damaged("text longer than its column"))?;
        text.copy_from_slice(value);
        put_len(length, value.len());
        if let (PartKind::Text(collation), PartSource::Char { .. }) = (&self.kind, self.source) {
            collation.spec().pad.fill(rest);
        }
        Ok(())
    }

    /// Splits a column's field in the record buffer into the bytes of the length and the data. Only
    /// a VARCHAR has a length; for other columns that slice is empty.
    fn split_field<'a>(&self, field: &'a mut [u8]) -> Result<(&'a mut [u8], &'a mut [u8])> {
        match self.source {
            PartSource::Fixed | PartSource::Char { .. } => Ok(field.split_at_mut(0)),
            PartSource::VarChar { len_bytes } => Ok(field.split_at_mut(usize::from(len_bytes))),
            PartSource::Blob { .. } => Err(damaged("a blob has no room in the record")),
        }
    }

    /// Appends the part of a key image for `value`.
    pub(super) fn put_image(&self, value: Option<&[u8]>, out: &mut Vec<u8>) {
        let start = out.len();
        let end = start + self.stored_image_len();
        if self.null.is_some() {
            out.push(u8::from(value.is_none()));
        }
        if let Some(value) = value {
            let value = self.counting(value);
            let value = &value[..value.len().min(self.image_len as usize)];
            if !matches!(self.source, PartSource::Fixed | PartSource::Char { .. }) {
                out.extend_from_slice(&(value.len() as u16).to_le_bytes());
            }
            out.extend_from_slice(value);
            if let (PartKind::Text(collation), PartSource::Char { .. }) = (&self.kind, self.source)
            {
                let text_end = out.len();
                out.resize(end, 0);
                collation.spec().pad.fill(&mut out[text_end..]);
            }
        }
        out.resize(end, 0);
    }
}

fn put_len(length: &mut [u8], len: usize) {
    let bytes = len.to_le_bytes();
    length.copy_from_slice(&bytes[..length.len()]);
}
