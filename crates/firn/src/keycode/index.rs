//! The entries of one index: declared parts, the primary key behind them, and the value.

use super::codec::{KeyCodec, KeyImageInfo};
use super::part::KeyPart;
use super::plan::{IndexPlan, Step};
use super::unpack::Unpack;
use crate::base::{Error, Result};

/// Encodes and decodes the entries of one index.
///
/// The key of a secondary entry is the declared parts and then the whole primary key, even where
/// both share columns: the primary key is cut off, not put together. Its value is what the two keys
/// cannot give back of the columns they hold whole, so that the index covers these columns.
#[derive(Debug, Clone)]
pub struct IndexCodec {
    record_len: u32,
    declared: KeyCodec,
    primary: Option<KeyCodec>,
    /// For each part, declared ones first: what the value holds of it, and whether the column is
    /// taken from this part.
    items: Vec<(Unpack, bool)>,
}

impl IndexCodec {
    /// The primary index: entries hold the row, nothing is decoded from their keys.
    pub fn primary(record_len: u32, key: KeyCodec) -> Self {
        Self::new(record_len, key, None)
    }

    /// A secondary index. `primary` is the key of the primary index; None if that is hidden, and
    /// then whatever follows the declared parts is left alone.
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
        let gives = |i: usize| parts[i].is_whole() && Unpack::of(parts[i]) == Unpack::Nothing;
        let items = (0..parts.len())
            .map(|at| {
                let same = || (0..parts.len()).filter(|&i| parts[i].column == parts[at].column);
                // The first part that gives the value back by itself, else the first whole one.
                let source = same()
                    .find(|&i| gives(i))
                    .or_else(|| same().find(|&i| parts[i].is_whole()));
                if source == Some(at) {
                    (Unpack::of(parts[at]), true)
                } else {
                    (Unpack::Nothing, false)
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

    /// Appends the declared parts of the row in `record`. True if one is NULL. For a secondary
    /// entry, the primary key comes behind.
    ///
    /// # Safety
    /// As for [`KeyCodec::encode_record`].
    ///
    /// # Errors
    /// As for [`KeyCodec::encode_record`].
    pub unsafe fn encode_record(&self, record: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        // SAFETY: promised by the caller.
        unsafe { self.declared.encode_record(record, out) }
    }

    /// Appends the value of the row's entry in a secondary index; nothing for most rows.
    ///
    /// # Safety
    /// As for [`KeyCodec::encode_record`].
    ///
    /// # Errors
    /// As for [`KeyCodec::encode_record`].
    pub unsafe fn encode_value(&self, record: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        for (part, (unpack, _)) in self.parts().zip(&self.items) {
            if *unpack == Unpack::Nothing {
                continue;
            }
            // SAFETY: promised by the caller.
            if let Some(value) = unsafe { part.value(record) }? {
                unpack.put(part, value, out);
            }
        }
        if out[start..].iter().all(|&byte| byte == 0) {
            out.truncate(start);
        }
        Ok(())
    }

    /// Appends the key of a key image: the first declared parts, or all and then, as the server
    /// has it with extended keys, the first of those parts of the primary key whose columns are
    /// not declared.
    ///
    /// # Errors
    /// `InvalidArgument` if the image ends within a part or has more parts.
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

    /// Repeats declared part `at` of the key that starts at `start`.
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

    /// Length of the declared parts at the start of `key`; the primary key follows.
    ///
    /// # Errors
    /// `Corruption`, without file name, if the bytes are no such key.
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
    pub fn plan(&self, wanted: Option<&[u8]>) -> IndexPlan {
        let is_wanted = |column: u32| {
            let (byte, bit) = (column as usize / 8, column % 8);
            wanted.is_none_or(|bits| bits.get(byte).is_some_and(|byte| byte >> bit & 1 == 1))
        };
        let steps = self
            .parts()
            .zip(&self.items)
            .map(|(part, &(unpack, source))| Step {
                part: part.clone(),
                unpack,
                wanted: source && is_wanted(part.column),
            })
            .collect();
        IndexPlan::new(self.record_len as usize, steps)
    }
}
