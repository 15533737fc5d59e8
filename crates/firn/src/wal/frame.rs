//! The two frames of a segment: its header block, and the header of each group.
//!
//! Both are covered, with everything up to the end of their last block, by a checksum that includes
//! the segment's id and the offset: bytes of a recycled segment's former life, or of a block that
//! landed elsewhere, never pass.

use super::{GroupNumber, LogEnd, SegmentId};
use crate::base::checksum::placed;
use crate::base::{Error, Result, varint};
use crate::env::{AlignedBuf, BLOCK};

/// Version of the format of segments, groups and records.
pub const FORMAT_VERSION: u16 = 1;

/// Bytes of a group header.
pub const GROUP_HEADER: usize = 64;

/// Offset of a segment's first group.
pub const FIRST_GROUP: u64 = BLOCK as u64;

const SEGMENT_MAGIC: u32 = u32::from_le_bytes(*b"FWSG");
const GROUP_MAGIC: u32 = u32::from_le_bytes(*b"FWGR");
const CHECKSUM: usize = 8;

/// What a segment's first block says; written, and durable, before any of its groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The segment; its epoch, too.
    pub id: SegmentId,
    /// First segment of the run of the engine that wrote this one.
    pub incarnation: SegmentId,
    /// Where the log ended when that run began.
    pub base: LogEnd,
    /// Bytes preallocated.
    pub size: u64,
}

impl SegmentHeader {
    /// The header block.
    pub fn encode(&self) -> AlignedBuf {
        let mut bytes = [0u8; BLOCK];
        put_magic(&mut bytes, SEGMENT_MAGIC);
        let fields = [
            self.id,
            self.incarnation,
            self.base.segment,
            self.base.group,
            self.size,
        ];
        put_fields(&mut bytes[2 * CHECKSUM..], &fields);
        seal(&mut bytes, self.id, 0);
        let mut block = AlignedBuf::new();
        block.extend_from_slice(&bytes);
        block
    }

    /// Reads the header block of segment `id`: `None` if it is not one (never written, torn or
    /// damaged), an error if a newer version wrote it.
    pub fn decode(block: &[u8], id: SegmentId, file: &str) -> Result<Option<Self>> {
        if block.len() != BLOCK || !is_sealed(block, SEGMENT_MAGIC, id, 0) {
            return Ok(None);
        }
        check_version(block, file)?;
        let mut fields = &block[2 * CHECKSUM..];
        let mut next = || varint::take_u64_le(&mut fields).unwrap_or_default();
        let header = Self {
            id: next(),
            incarnation: next(),
            base: LogEnd {
                segment: next(),
                group: next(),
            },
            size: next(),
        };
        Ok((header.id == id).then_some(header))
    }
}

/// What stands before the records of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupHeader {
    /// The group.
    pub number: GroupNumber,
    /// All groups up to this one were durable when this one was sealed.
    pub known_synced: GroupNumber,
    /// The first group of this segment.
    pub segment_first: GroupNumber,
    /// The segment of the group before `segment_first`.
    pub previous_segment: SegmentId,
    /// Bytes of the records.
    pub payload_len: u32,
    /// Number of records.
    pub records: u32,
    /// Records of the group before, modulo 2^16; 0 if it has none, or this is the first of a run.
    /// A group may be written again with more records: a power cut may leave the earlier version,
    /// and this one behind it.
    pub previous_records: u16,
}

impl GroupHeader {
    /// Fills in the first [`GROUP_HEADER`] bytes of `group`, whose records follow them, for its
    /// place in segment `id` at `offset`.
    pub fn seal(&self, group: &mut AlignedBuf, id: SegmentId, offset: u64) {
        debug_assert_eq!(group.len(), GROUP_HEADER + self.payload_len as usize);
        group.pad_to_block();
        let bytes = group.as_mut_slice();
        put_magic(bytes, GROUP_MAGIC);
        bytes[14..16].copy_from_slice(&self.previous_records.to_le_bytes());
        let fields = [
            id,
            self.number,
            self.known_synced,
            self.segment_first,
            self.previous_segment,
            u64::from(self.payload_len) | u64::from(self.records) << 32,
        ];
        put_fields(&mut bytes[2 * CHECKSUM..], &fields);
        seal(bytes, id, offset);
    }

    /// Whether this group was written behind a group of `records` records.
    pub fn follows(&self, records: u32) -> bool {
        self.previous_records == 0 || self.previous_records == records as u16
    }

    /// Bytes of the group in the segment, padding included, judged by its first block alone: `None`
    /// if that is not the start of a group of segment `id`.
    pub fn peek_len(block: &[u8], id: SegmentId) -> Option<u64> {
        if block.len() < GROUP_HEADER || !has_magic(block, GROUP_MAGIC) {
            return None;
        }
        let mut fields = &block[2 * CHECKSUM..GROUP_HEADER];
        if varint::take_u64_le(&mut fields)? != id {
            return None;
        }
        let payload_len = varint::take_u64_le(&mut &block[56..64])? as u32;
        Some(blocks_for(GROUP_HEADER + payload_len as usize) as u64)
    }

    /// Reads the header of a whole group (as long as [`GroupHeader::peek_len`] says): `None` if its
    /// checksum fails.
    pub fn decode(group: &[u8], id: SegmentId, offset: u64, file: &str) -> Result<Option<Self>> {
        if group.len() < BLOCK || !is_sealed(group, GROUP_MAGIC, id, offset) {
            return Ok(None);
        }
        check_version(group, file)?;
        let mut fields = &group[2 * CHECKSUM..GROUP_HEADER];
        let mut next = || varint::take_u64_le(&mut fields).unwrap_or_default();
        let epoch = next();
        let header = Self {
            number: next(),
            known_synced: next(),
            segment_first: next(),
            previous_segment: next(),
            payload_len: 0,
            records: 0,
            previous_records: u16::from_le_bytes([group[14], group[15]]),
        };
        let sizes = next();
        let header = Self {
            payload_len: sizes as u32,
            records: (sizes >> 32) as u32,
            ..header
        };
        let len = GROUP_HEADER + header.payload_len as usize;
        Ok((epoch == id && blocks_for(len) == group.len()).then_some(header))
    }
}

/// `len` rounded up to whole blocks.
pub fn blocks_for(len: usize) -> usize {
    len.div_ceil(BLOCK) * BLOCK
}

fn put_magic(bytes: &mut [u8], magic: u32) {
    bytes[8..12].copy_from_slice(&magic.to_le_bytes());
    bytes[12..14].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
}

fn has_magic(bytes: &[u8], magic: u32) -> bool {
    bytes[8..12] == magic.to_le_bytes()
}

fn put_fields(out: &mut [u8], fields: &[u64]) {
    for (slot, field) in out.chunks_exact_mut(8).zip(fields) {
        slot.copy_from_slice(&field.to_le_bytes());
    }
}

fn seal(bytes: &mut [u8], id: SegmentId, offset: u64) {
    let checksum = placed(&bytes[CHECKSUM..], id, offset);
    bytes[..CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
}

fn is_sealed(bytes: &[u8], magic: u32, id: SegmentId, offset: u64) -> bool {
    has_magic(bytes, magic)
        && bytes[..CHECKSUM] == placed(&bytes[CHECKSUM..], id, offset).to_le_bytes()
}

/// A sealed frame of a version that this code does not know was written by a newer one.
fn check_version(bytes: &[u8], file: &str) -> Result<()> {
    match u16::from_le_bytes([bytes[12], bytes[13]]) {
        FORMAT_VERSION => Ok(()),
        other => Err(Error::unsupported(format!(
            "log format version {other} in {file}"
        ))),
    }
}

#[cfg(test)]
mod tests;
