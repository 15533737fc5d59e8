//! Encodes the entries of one index: declared parts, the primary key behind them, and the value.

use super::index_decode_plan::{DecodeStep, IndexDecodePlan};
use super::key_codec::{KeyCodec, KeyImageInfo};
use super::key_part::KeyPart;
use super::unpack_info::UnpackInfo;
use crate::base::{Error, Result};

/// Encodes and decodes the entries of one index.
///
/// The key of a secondary entry is the declared parts followed by the whole primary key, even if
/// both share columns, so that the primary key can be cut off instead of reassembled. The value
/// holds the bytes that the two keys cannot give back of the columns that they hold whole, so the
/// index covers these columns.
///
/// Example: an index on `name VARCHAR(9) COLLATE latin1_swedish_ci` of a table with primary key
/// `id`. The row (5, 'Ab') has the key `'AB'`, `5`, and the value `Ab`, from which a covering scan
/// takes `name`.
#[derive(Debug, Clone)]
pub struct IndexCodec {
    record_len: u32,
    declared: KeyCodec,
    primary: Option<KeyCodec>,
    /// For each part, declared ones first: the item it has in the value, and whether a plan takes
    /// the column from this part.
    items: Vec<(UnpackInfo, bool)>,
}

impl IndexCodec {
    /// The codec of the primary index. Entries hold the row, so nothing is decoded from their keys.
    pub fn primary(record_len: u32, key: KeyCodec) -> Self {
        Self::new(record_len, key, None)
    }

    /// The codec of a secondary index. `primary` is the key of the primary index, or `None` if that
    /// is hidden; then the bytes behind the declared parts are ignored.
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
                // Take the column from the first part that gives it back without an item, otherwise
                // from the first whole part.
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

    /// The key of the declared parts.
    pub fn declared(&self) -> &KeyCodec {
        &self.declared
    }

    /// Appends the declared parts of the row in `record`. Returns whether one is NULL. For a
    /// secondary entry, the caller appends the primary key.
    ///
    /// # Safety
    /// As for [`KeyCodec::encode_record`].
    ///
    /// # Errors
    /// As for [`KeyCodec::encode_record`].
    pub unsafe fn encode_record(&self, record: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        // SAFETY: this function shares the requirement on blob pointers with
        // `KeyCodec::encode_record`.
        unsafe { self.declared.encode_record(record, out) }
    }

    /// Appends the value of the row's entry in a secondary index. For most rows it is empty.
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
            // SAFETY: this function shares the requirement on blob pointers with
            // `KeyCodec::encode_record`, for the parts of both keys; `value` requires no more.
            if let Some(value) = unsafe { part.value(record) }? {
                unpack.put(part, value, out);
            }
        }
        if out[start..].iter().all(|&byte| byte == 0) {
            out.truncate(start);
        }
        Ok(())
    }

    /// Appends the key of a key image. The image holds the first declared parts, or all of them
    /// followed, as in the server's extended keys, by the first of those parts of the primary key
    /// whose columns are not declared.
    ///
    /// # Errors
    /// `InvalidArgument` if the image ends within a part or has more parts than the key.
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

    /// Appends a copy of declared part `at` of the key that starts at `start`.
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

    /// Length of the declared parts at the start of `key`, bytes; the primary key follows.
    ///
    /// # Errors
    /// `Corruption`, without file name, if the bytes are no key of this index.
    pub fn declared_len(&self, key: &[u8]) -> Result<usize> {
        self.declared.skip(key, self.declared.parts().len())
    }

    /// Whether entries of the index give back the value of a column.
    pub fn covers(&self, column: u32) -> bool {
        let mut parts = self.parts().zip(&self.items);
        parts.any(|(part, (_, source))| *source && part.column == column)
    }

    /// A plan for those covered columns whose bit is set in `wanted` (bit `i % 8` of byte `i / 8`
    /// for column `i`; missing bytes count as zero), or for all of them.
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
