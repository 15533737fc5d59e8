//! Constants of the file format, block handles and the footer. `docs/formats/sst.md` has the byte
//! format.

use super::decode_error::{DecodeError, Decoded};
use crate::base::checksum;
use crate::base::varint;
use std::ops::RangeInclusive;

/// Format version that the writer writes, and the newest that the reader can read.
pub const FORMAT_VERSION: u32 = 1;

/// The last eight bytes of every SST.
pub(super) const MAGIC: [u8; 8] = *b"FIRN.SST";

/// Size of the footer in bytes; the same in all format versions.
pub(super) const FOOTER_LEN: usize = 72;

/// Feature flag in the footer of a file with encrypted blocks, which this version refuses to read.
const FEATURE_ENCRYPTED: u32 = 1;

/// Size in bytes of the largest raw block. The longest entry takes at most half of it.
pub(super) const RAW_BLOCK_MAX: usize = 1 << 30;

/// The kind of a block's content. It is stored in the block's header, so that a reader knows how to
/// decode the block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum BlockKind {
    /// Data block: entries, each value beside its key.
    RowWise = 1,
    /// Data block: entries, with keys, value heads and value tails in sections of their own.
    Sectioned = 2,
    /// The index entries of consecutive data blocks.
    IndexPartition = 3,
    /// The index entries of all index partitions.
    TopIndex = 4,
    /// The Bloom filter over the user keys of one index partition.
    Filter = 5,
    /// The properties of the file.
    Properties = 6,
    /// A compression dictionary.
    Dictionary = 7,
}

/// The kind bytes that have a meaning, reserved ones included.
pub(super) const KINDS: RangeInclusive<u8> = 1..=9;

impl BlockKind {
    pub(super) fn from_u8(byte: u8) -> Decoded<Self> {
        Ok(match byte {
            1 => Self::RowWise,
            2 => Self::Sectioned,
            3 => Self::IndexPartition,
            4 => Self::TopIndex,
            5 => Self::Filter,
            6 => Self::Properties,
            7 => Self::Dictionary,
            // These kinds are reserved for blocks with columnar data: 8 for the columns of rows, 9
            // for the directory of a group of columns. Nothing writes them.
            8 | 9 => return Err(DecodeError::Unsupported("columnar block")),
            _ => return Err(DecodeError::Unsupported("block kind")),
        })
    }

    pub(super) fn is_data(self) -> bool {
        matches!(self, Self::RowWise | Self::Sectioned)
    }
}

/// Offset and length in bytes of a stored block, its header and checksum included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Handle {
    pub(super) offset: u64,
    pub(super) len: u32,
}

impl Handle {
    pub(super) fn end(&self) -> u64 {
        self.offset.saturating_add(u64::from(self.len))
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        varint::put_u64(out, self.offset);
        varint::put_u64(out, u64::from(self.len));
    }

    pub(super) fn take(input: &mut &[u8]) -> Option<Self> {
        Some(Self {
            offset: varint::take_u64(input)?,
            len: varint::take_u32(input)?,
        })
    }
}

/// The last bytes of the file. They locate the properties and the top index, which locate all other
/// blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Footer {
    /// Offset of the first byte after the data blocks, where the tail begins.
    pub(super) meta_offset: u64,
    pub(super) top_index: Handle,
    pub(super) properties: Handle,
    pub(super) file_id: u64,
    pub(super) file_size: u64,
}

impl Footer {
    pub(super) fn encode(&self) -> [u8; FOOTER_LEN] {
        let mut out = Vec::with_capacity(FOOTER_LEN);
        out.extend_from_slice(&self.meta_offset.to_le_bytes());
        for handle in [self.top_index, self.properties] {
            out.extend_from_slice(&handle.offset.to_le_bytes());
            out.extend_from_slice(&handle.len.to_le_bytes());
        }
        out.extend_from_slice(&self.file_id.to_le_bytes());
        out.extend_from_slice(&self.file_size.to_le_bytes());
        out.extend_from_slice(&0u32.to_le_bytes());
        out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        let offset = self.file_size - FOOTER_LEN as u64;
        let checksum = checksum::placed(&out, self.file_id, offset);
        out.extend_from_slice(&checksum.to_le_bytes());
        out.extend_from_slice(&MAGIC);
        out.try_into().expect("the fields fill the footer")
    }

    /// Decodes the footer of a file that has `file_size` bytes and should have id `file_id`.
    pub(super) fn decode(bytes: &[u8; FOOTER_LEN], file_id: u64, file_size: u64) -> Decoded<Self> {
        let (covered, end) = bytes.split_at(FOOTER_LEN - 16);
        let (stored, magic) = end.split_at(8);
        if magic != MAGIC {
            return Err(DecodeError::Corrupt("no SST magic at the end"));
        }
        let offset = file_size - FOOTER_LEN as u64;
        if checksum::placed(covered, file_id, offset).to_le_bytes() != stored {
            return Err(DecodeError::Corrupt("footer checksum"));
        }
        let mut input = covered;
        let footer = Self::take(&mut input).ok_or(DecodeError::Corrupt("footer fields"))?;
        let flags = varint::take_u32_le(&mut input);
        let version = varint::take_u32_le(&mut input);
        if version == Some(FORMAT_VERSION) && flags == Some(FEATURE_ENCRYPTED) {
            return Err(DecodeError::Encrypted);
        }
        if version != Some(FORMAT_VERSION) || flags != Some(0) {
            return Err(DecodeError::Unsupported(
                "SST format version or feature flag",
            ));
        }
        if footer.file_id != file_id || footer.file_size != file_size {
            return Err(DecodeError::Corrupt("footer names another file or size"));
        }
        let meta = footer.meta_offset..offset + 1;
        let inside = |h: &Handle| meta.contains(&h.offset) && meta.contains(&h.end());
        if !inside(&footer.top_index) || !inside(&footer.properties) {
            return Err(DecodeError::Corrupt("footer handles"));
        }
        Ok(footer)
    }

    fn take(input: &mut &[u8]) -> Option<Self> {
        let meta_offset = varint::take_u64_le(input)?;
        let mut handle = || {
            Some(Handle {
                offset: varint::take_u64_le(input)?,
                len: varint::take_u32_le(input)?,
            })
        };
        let top_index = handle()?;
        let properties = handle()?;
        Some(Self {
            meta_offset,
            top_index,
            properties,
            file_id: varint::take_u64_le(input)?,
            file_size: varint::take_u64_le(input)?,
        })
    }
}
