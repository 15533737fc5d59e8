//! Encodes keys that consist of a list of parts.

use super::key_part::KeyPart;
use super::key_reader::KeyReader;
use crate::base::{Error, Result};

/// The content of a key image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyImageInfo {
    /// Number of parts in the image.
    pub parts: usize,
    /// Whether one of these parts is NULL.
    pub has_null: bool,
}

/// Encodes the parts of a key in order.
///
/// Invariant: the encoding of each part keeps the order of the values, and no encoded value of a
/// part is a prefix of another one. Therefore the same holds for whole keys. And the encoding of
/// the first parts of a key is a prefix of exactly those keys that have the same values in these
/// parts.
#[derive(Debug, Clone)]
pub struct KeyCodec {
    parts: Vec<KeyPart>,
}

impl KeyCodec {
    /// A codec for keys of `parts`, whose values lie in record buffers of `record_len` bytes.
    ///
    /// # Errors
    /// `InvalidArgument` if `parts` is empty, or if a part contradicts itself or lies outside the
    /// buffer.
    pub fn new(record_len: u32, parts: Vec<KeyPart>) -> Result<Self> {
        if parts.is_empty() {
            return Err(Error::invalid("a key without parts"));
        }
        for part in &parts {
            part.check(record_len)?;
        }
        Ok(Self { parts })
    }

    /// The parts of the key, in order.
    pub fn parts(&self) -> &[KeyPart] {
        &self.parts
    }

    /// Encodes the key of the row in `record` and appends it. Returns whether a part is NULL.
    ///
    /// # Safety
    /// For each blob column among the parts that is neither NULL nor empty, the pointer in `record`
    /// must point to at least as many bytes as the column's length says. They must be readable and
    /// unchanged during the call. Panics if `record` is shorter than the `record_len` of
    /// [`Self::new`].
    ///
    /// # Errors
    /// `InvalidArgument` if a length in the record exceeds its maximum.
    pub unsafe fn encode_record(&self, record: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        let mut has_null = false;
        for part in &self.parts {
            // SAFETY: the caller of this function guarantees valid blob pointers for all parts,
            // which is what `value` requires, and `value` is not used after this call.
            let value = unsafe { part.value(record) }?;
            has_null |= part.encode(value, out);
        }
        Ok(has_null)
    }

    /// Encodes a key image and appends the key. The image has the first parts of the key, or all of
    /// them.
    ///
    /// # Errors
    /// `InvalidArgument` if the image ends inside a part or has more parts than the key.
    pub fn encode_image(&self, image: &[u8], out: &mut Vec<u8>) -> Result<KeyImageInfo> {
        let mut rest = image;
        let info = self.encode_image_parts(&mut rest, out, |_| {})?;
        if rest.is_empty() {
            Ok(info)
        } else {
            Err(Error::invalid("key image longer than the key"))
        }
    }

    /// Encodes the parts of the key image until the image or the key has no further part. Before
    /// each part, calls `starts` with the offset in `out` at which it begins.
    pub(super) fn encode_image_parts(
        &self,
        image: &mut &[u8],
        out: &mut Vec<u8>,
        mut starts: impl FnMut(usize),
    ) -> Result<KeyImageInfo> {
        let mut info = KeyImageInfo {
            parts: 0,
            has_null: false,
        };
        for part in &self.parts {
            if image.is_empty() {
                break;
            }
            starts(out.len());
            let value = part.take_image(image)?;
            info.has_null |= part.encode(value, out);
            info.parts += 1;
        }
        Ok(info)
    }

    /// Length in bytes of the first `parts` parts at the start of `key`.
    ///
    /// # Errors
    /// `Corruption`, without file name, if the bytes are no key of this codec.
    pub fn skip(&self, key: &[u8], parts: usize) -> Result<usize> {
        let mut reader = KeyReader::new(key);
        for part in self.parts.iter().take(parts) {
            part.skip(&mut reader)?;
        }
        Ok(key.len() - reader.rest().len())
    }

    /// Whether one of the first `parts` parts of `key` is NULL.
    ///
    /// # Errors
    /// `Corruption`, without file name, if the bytes are no key of this codec.
    pub fn has_null(&self, key: &[u8], parts: usize) -> Result<bool> {
        let mut reader = KeyReader::new(key);
        let mut has_null = false;
        for part in self.parts.iter().take(parts) {
            has_null |= part.skip(&mut reader)?;
        }
        Ok(has_null)
    }

    /// Largest length of a key in bytes. `None` if there is no bound, as for text in a collation
    /// where one character can have many weights.
    pub fn max_len(&self) -> Option<usize> {
        self.parts.iter().map(KeyPart::max_len).sum()
    }

    /// Length in bytes of a key image with all parts.
    pub fn image_len(&self) -> usize {
        self.parts.iter().map(KeyPart::stored_image_len).sum()
    }

    /// Appends the key image of the row in `record`, [`KeyCodec::image_len`] bytes. Encoding that
    /// image with [`KeyCodec::encode_image`] gives the row's key.
    ///
    /// # Safety
    /// As for [`KeyCodec::encode_record`].
    ///
    /// # Errors
    /// As for [`KeyCodec::encode_record`].
    pub unsafe fn image_from_record(&self, record: &[u8], out: &mut Vec<u8>) -> Result<()> {
        for part in &self.parts {
            // SAFETY: the caller of this function guarantees valid blob pointers for all parts, as
            // that of `encode_record` does.
            let value = unsafe { part.value(record) }?;
            part.put_image(value, out);
        }
        Ok(())
    }
}
