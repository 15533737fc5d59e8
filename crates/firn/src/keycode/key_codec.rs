//! Encodes the key of a list of parts.

use super::key_part::KeyPart;
use super::key_reader::KeyReader;
use crate::base::{Error, Result};

/// The content of a key image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyImageInfo {
    /// Number of parts.
    pub parts: usize,
    /// Whether one of them is NULL.
    pub has_null: bool,
}

/// Encodes the parts of one key, in order.
///
/// Invariant: the encoding of each part keeps the order of the values, and none is a prefix of
/// another. Therefore the same holds for keys of whole parts, and the key of the first parts is a
/// prefix of exactly the keys with these values.
#[derive(Debug, Clone)]
pub struct KeyCodec {
    parts: Vec<KeyPart>,
}

impl KeyCodec {
    /// A codec of `parts` for record buffers of `record_len` bytes.
    ///
    /// # Errors
    /// `InvalidArgument` if `parts` is empty, or a part contradicts itself or lies outside the
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

    /// The parts.
    pub fn parts(&self) -> &[KeyPart] {
        &self.parts
    }

    /// Appends the key of the row in `record`. Returns whether a part is NULL.
    ///
    /// # Safety
    /// For each blob column among the parts that is neither NULL nor empty, the pointer in `record`
    /// must point to at least as many bytes as the column's length says, readable and unchanged
    /// during the call. Panics if `record` is shorter than the `record_len` of [`Self::new`].
    ///
    /// # Errors
    /// `InvalidArgument` if a length in the record exceeds its maximum.
    pub unsafe fn encode_record(&self, record: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        let mut has_null = false;
        for part in &self.parts {
            // SAFETY: this function requires valid blob pointers of all its parts, which is what
            // `value` requires, and the value is not used after this call.
            let value = unsafe { part.value(record) }?;
            has_null |= part.encode(value, out);
        }
        Ok(has_null)
    }

    /// Appends the key of the server's key image, which holds the first parts or all of them.
    ///
    /// # Errors
    /// `InvalidArgument` if the image ends within a part or has more parts than the key.
    pub fn encode_image(&self, image: &[u8], out: &mut Vec<u8>) -> Result<KeyImageInfo> {
        let mut rest = image;
        let info = self.encode_image_parts(&mut rest, out, |_| {})?;
        if rest.is_empty() {
            Ok(info)
        } else {
            Err(Error::invalid("key image longer than the key"))
        }
    }

    /// Encodes parts until the image or the key ends; passes the start of each part in `out` to
    /// `starts`.
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

    /// Length of the first `parts` parts at the start of `key`, bytes.
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

    /// Largest length of a key, bytes; `None` if unbounded, as for text whose characters may have
    /// many weights.
    pub fn max_len(&self) -> Option<usize> {
        self.parts.iter().map(KeyPart::max_len).sum()
    }

    /// Length of a key image of all parts, bytes.
    pub fn image_len(&self) -> usize {
        self.parts.iter().map(KeyPart::stored_image_len).sum()
    }

    /// Appends the key image of the row in `record`: [`KeyCodec::image_len`] bytes, which
    /// [`KeyCodec::encode_image`] turns into the row's key.
    ///
    /// # Safety
    /// As for [`KeyCodec::encode_record`].
    ///
    /// # Errors
    /// As for [`KeyCodec::encode_record`].
    pub unsafe fn image_from_record(&self, record: &[u8], out: &mut Vec<u8>) -> Result<()> {
        for part in &self.parts {
            // SAFETY: as in `encode_record`, whose requirement on blob pointers this function
            // shares.
            let value = unsafe { part.value(record) }?;
            part.put_image(value, out);
        }
        Ok(())
    }
}
