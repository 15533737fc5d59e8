//! Encodes the entries of one index. Their keys are the declared parts, which the definition of the
//! index names, followed by the primary key; their values have what the key cannot give back.

use super::index_decode_plan::{DecodeStep, IndexDecodePlan};
use super::key_codec::{KeyCodec, KeyImageInfo};
use super::key_part::KeyPart;
use super::unpack_info::UnpackInfo;
use crate::base::{Error, Result};

/// Encodes and decodes the entries of one index.
///
/// The key of a secondary entry is the declared parts followed by the whole primary key, even if
/// both have a column in common. So a reader takes the primary key from the end of the entry's key
/// and need not assemble it from columns. For each column that the key has as a whole, and not only
/// a prefix of it, the value has the bytes that the key cannot give back. So the index covers these
/// columns.
///
/// Example: an index on `name VARCHAR(9) COLLATE latin1_swedish_ci` of a table with primary key
/// `id`. The entry of the row (5, 'Ab') has the key `'AB'`, `5` and the value `Ab`. A covering scan
/// takes `name` from the value.
#[derive(Debug, Clone)]
pub struct IndexCodec {
    record_len: u32,
    declared: KeyCodec,
    primary: Option<KeyCodec>,
    /// For each part of the key, first the declared parts and then those of the primary key: the
    /// unpack info that the value has for the part, and whether decoding takes its column from this
    /// part.
    items: Vec<(UnpackInfo, bool)>,
}

impl IndexCodec {
    /// The codec of the primary index. The value of a primary entry is the row, so nothing is
    /// decoded from its key.
    pub fn primary(record_len: u32, key: KeyCodec) -> Self {
        Self::new(record_len, key, None)
    }

    /// The codec of a secondary index. `primary` is the key of the primary index, or `None` if the
    /// primary key is hidden: then the bytes after the declared parts are not decoded.
    pub fn secondary(record_len: u32, declared: KeyCodec, primary: Option<KeyCodec>) -> Self {
        Self::new(record_len, declared, primary)
    }

    fn new(record_len: u32, declared: KeyCodec, primary: Option<KeyCodec>) -> Self {
        let mut codec = Self {
            record_len,
            declared,
            primary,
            items: Vec::new(),
        };
        let parts: Vec<&KeyPart> = codec.parts().collect();
        let gives =
            |i: usize| parts[i].is_whole() && UnpackInfo::of(parts[i]) == UnpackInfo::Nothing;
        let items = (0..parts.len())
            .map(|at| {
                let same = || (0..parts.len()).filter(|&i| parts[i].column == parts[at].column);
                // Several parts may have the same column. Decode the column from the first part
                // that gives it back without unpack info, or else from the first part that has the
                // whole column.
                let source = same()
                    .find(|&i| gives(i))
                    .or_else(|| same().find(|&i| parts[i].is_whole()));
                if source == Some(at) {
                    (UnpackInfo::of(parts[at]), true)
                } else {
                    (UnpackInfo::Nothing, false)
                }
            })
            .collect();
        codec.items = items;
        codec
    }

    fn parts(&self) -> impl Iterator<Item = &KeyPart> {
        let behind = self.primary.iter().flat_map(KeyCodec::parts);
        self.declared.parts().iter().chain(behind)
    }

    /// The codec of the declared parts.
    pub fn declared(&self) -> &KeyCodec {
        &self.declared
    }

    /// Encodes the declared parts of the row in `record` and appends them. Returns whether one of
    /// the parts is NULL. In a secondary index, the caller appends the primary key.
    ///
    /// # Safety
    /// As for [`KeyCodec::encode_record`].
    ///
    /// # Errors
    /// As for [`KeyCodec::encode_record`].
    pub unsafe fn encode_record(&self, record: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        // SAFETY: the caller of this function keeps the requirement of `KeyCodec::encode_record`:
        // in `record`, the pointers of blob columns cover their lengths.
        unsafe { self.declared.encode_record(record, out) }
    }

    /// Appends the value of the row's entry in a secondary index: the unpack info of its columns.
    /// For most rows the value is empty.
    ///
    /// # Safety
    /// As for [`KeyCodec::encode_record`].
    ///
    /// # Errors
    /// As for [`KeyCodec::encode_record`].
    pub unsafe fn encode_value(&self, record: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        for (part, (unpack, _)) in self.parts().zip(&self.items) {
            if *unpack == UnpackInfo::Nothing {
                continue;
            }
            // SAFETY: the caller of this function guarantees, for the parts of both keys, that the
            // pointers of blob columns in `record` cover their lengths; `value` requires no more.
            if let Some(value) = unsafe { part.value(record) }? {
                unpack.put(part, value, out);
            }
        }
        if out[start..].iter().all(|&byte| byte == 0) {
            out.truncate(start);
        }
        Ok(())
    }

    /// Encodes a key image and appends the key. The image has some of the first declared parts, or
    /// all of them. In the latter case parts of the primary key may follow, as in the server's
    /// extended keys: those whose columns are not declared parts.
    ///
    /// # Errors
    /// `InvalidArgument` if the image ends inside a part or has more parts than the key.
    pub fn encode_image(&self, image: &[u8], out: &mut Vec<u8>) -> Result<KeyImageInfo> {
        let start = out.len();
        let mut rest = image;
        let mut info = self.declared.encode_image_parts(&mut rest, out, |_| {})?;
        for part in self.primary.iter().flat_map(KeyCodec::parts) {
            if rest.is_empty() {
                break;
            }
            if let Some(at) = self.declared_at(part.column) {
                self.copy_part(start, at, part.desc, out)?;
            } else {
                let value = part.take_image(&mut rest)?;
                info.has_null |= part.encode(value, out);
                info.parts += 1;
            }
        }
        if rest.is_empty() {
            Ok(info)
        } else {
            Err(Error::invalid("key image longer than the key"))
        }
    }

    fn declared_at(&self, column: u32) -> Option<usize> {
        let parts = self.declared.parts();
        parts.iter().position(|part| part.column == column)
    }

    /// `out` has a key from offset `start` on. Appends to `out` a copy of that key's declared part
    /// number `at`, descending if `desc`, whatever the direction of the part itself is.
    fn copy_part(&self, start: usize, at: usize, desc: bool, out: &mut Vec<u8>) -> Result<()> {
        let from = start + self.declared.skip(&out[start..], at)?;
        let to = start + self.declared.skip(&out[start..], at + 1)?;
        let copy = out.len();
        out.extend_from_within(from..to);
        if self.declared.parts()[at].desc != desc {
            for byte in &mut out[copy..] {
                *byte = !*byte;
            }
        }
        Ok(())
    }

    /// Length in bytes of the declared parts at the start of `key`. The primary key follows them.
    ///
    /// # Errors
    /// `Corruption`, without file name, if the bytes are no key of this index.
    pub fn declared_len(&self, key: &[u8]) -> Result<usize> {
        self.declared.skip(key, self.declared.parts().len())
    }

    /// Whether one of the declared parts at the start of `key` is NULL.
    ///
    /// # Errors
    /// `Corruption`, without file name, if the bytes are no key of this index.
    pub fn has_null(&self, key: &[u8]) -> Result<bool> {
        self.declared.has_null(key, self.declared.parts().len())
    }

    /// Whether the value of the column can be decoded from entries of the index.
    pub fn covers(&self, column: u32) -> bool {
        let mut parts = self.parts().zip(&self.items);
        parts.any(|(part, (_, source))| *source && part.column == column)
    }

    /// A plan that decodes the covered columns whose bit is set in `wanted`, or all covered columns
    /// if `wanted` is `None`. The bit of column `i` is bit `i % 8` of byte `i / 8`; missing bytes
    /// count as zero.
    pub fn plan(&self, wanted: Option<&[u8]>) -> IndexDecodePlan {
        let is_wanted = |column: u32| {
            let (byte, bit) = (column as usize / 8, column % 8);
            wanted.is_none_or(|bits| bits.get(byte).is_some_and(|byte| byte >> bit & 1 == 1))
        };
        let steps = self
            .parts()
            .zip(&self.items)
            .map(|(part, &(unpack, source))| DecodeStep {
                part: part.clone(),
                unpack,
                wanted: source && is_wanted(part.column),
            })
            .collect();
        IndexDecodePlan::new(self.record_len as usize, steps)
    }
}
