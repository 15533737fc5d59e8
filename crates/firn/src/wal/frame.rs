//! The two frames of a segment: its header block, and the header of each group.
//!
//! A checksum covers the whole header block, and another one each group with its header, records
//! and padding. Both checksums include the segment's id and the offset. So old bytes of a recycled
//! segment, or a block that was written to the wrong offset, never pass as valid.

use super::{GroupNumber, LogEnd, SegmentId};
use crate::base::checksum::placed;
use crate::base::{Error, Result, encryption_envelope, varint};
use crate::env::{AlignedBuf, BLOCK, SECTOR};

/// Format version of groups and records. Segment headers have it too, if the segment's groups are
/// padded to whole blocks.
pub const FORMAT_VERSION: u16 = 1;

/// Format version of groups whose records are encrypted. This code does not read them.
const ENCRYPTED_VERSION: u16 = 2;

/// Format version of segment headers, if the segment's groups are padded to units smaller than a
/// block.
const UNITS_VERSION: u16 = 2;

/// Bytes of a group header.
pub const GROUP_HEADER: usize = 64;

/// Offset of a segment's first group.
pub const FIRST_GROUP: u64 = BLOCK as u64;

const SEGMENT_MAGIC: u32 = u32::from_le_bytes(*b"FWSG");
const GROUP_MAGIC: u32 = u32::from_le_bytes(*b"FWGR");
/// Bytes of the checksum with which a segment's header block and each group begin.
pub(super) const CHECKSUM: usize = 8;

/// The content of a segment's first block. It is durable before any group is written to the
/// segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Id of the segment.
    pub id: SegmentId,
    /// First segment of the incarnation of the log that wrote this segment.
    pub incarnation: SegmentId,
    /// The end of the log when the incarnation that wrote this segment began.
    pub base: LogEnd,
    /// Preallocated size of the segment file, bytes.
    pub size: u64,
    /// Bytes of the unit: groups begin at multiples of it and are padded to it. A power of 2 from
    /// [`SECTOR`] to [`BLOCK`].
    pub unit: usize,
}

impl SegmentHeader {
    /// Returns the header block, checksum included.
    pub fn encode(&self) -> AlignedBuf {
        let mut bytes = [0u8; BLOCK];
        let (version, unit) = match self.unit {
            BLOCK => (FORMAT_VERSION, 0),
            unit => (UNITS_VERSION, unit as u64),
        };
        put_magic(&mut bytes, SEGMENT_MAGIC, version);
        let fields = [
            self.id,
            self.incarnation,
            self.base.segment,
            self.base.group,
            self.size,
            unit,
        ];
        put_fields(&mut bytes[2 * CHECKSUM..], &fields);
        seal(&mut bytes, self.id, 0);
        let mut block = AlignedBuf::new();
        block.extend_from_slice(&bytes);
        block
    }

    /// Reads the header block of segment `id`. Returns `None` if `block` is no valid header of this
    /// segment: it was never written, is torn or is damaged.
    ///
    /// # Errors
    /// `Unsupported` if a newer version of the engine wrote the block.
    pub fn decode(block: &[u8], id: SegmentId, file: &str) -> Result<Option<Self>> {
        if block.len() != BLOCK || !is_sealed(block, SEGMENT_MAGIC, id, 0) {
            return Ok(None);
        }
        let mut fields = &block[2 * CHECKSUM..];
        let mut next = || varint::take_u64_le(&mut fields).unwrap_or_default();
        let mut header = Self {
            id: next(),
            incarnation: next(),
            base: LogEnd {
                segment: next(),
                group: next(),
            },
            size: next(),
            unit: BLOCK,
        };
        match (version(block), next()) {
            (FORMAT_VERSION, _) => {}
            (UNITS_VERSION, unit @ UNIT_MIN..UNIT_MAX) if unit.is_power_of_two() => {
                header.unit = unit as usize;
            }
            (newer, _) => return Err(unsupported(newer, file)),
        }
        Ok((header.id == id).then_some(header))
    }
}

/// The header in front of the records of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupHeader {
    /// Number of the group.
    pub number: GroupNumber,
    /// When the group of this header was sealed, all groups up to `known_synced` were durable.
    pub known_synced: GroupNumber,
    /// Number of the first group in the group's segment.
    pub segment_first: GroupNumber,
    /// The segment of the group before `segment_first`.
    pub previous_segment: SegmentId,
    /// Bytes of the group's records, without header and padding.
    pub payload_len: u32,
    /// Number of records in the group.
    pub records: u32,
    /// Number of records of the previous group, modulo 2^16. It is 0 if the previous group has no
    /// records, or if this group is the first of an incarnation. It exposes a lost rewrite: a
    /// growing group is written again with more records, and a power cut may leave its earlier
    /// version in front of this group. The previous group then has fewer records than this number.
    pub previous_records: u16,
}

impl GroupHeader {
    /// Pads `group` to the segment's `unit` and writes this header over its first [`GROUP_HEADER`]
    /// bytes; the records stand behind them. The checksum is valid only at `offset` of segment
    /// `id`.
    pub fn seal(&self, group: &mut AlignedBuf, id: SegmentId, offset: u64, unit: usize) {
        debug_assert_eq!(group.len(), GROUP_HEADER + self.payload_len as usize);
        group.pad_to(unit);
        let bytes = group.as_mut_slice();
        put_magic(bytes, GROUP_MAGIC, FORMAT_VERSION);
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

    /// Whether the group before this one is complete, if `records` is the number of records that it
    /// has in the log now. It is not if it was rewritten with more records and a power cut brought
    /// back an earlier version. Also returns `true` if this header does not say how many records
    /// the previous group had.
    pub fn follows(&self, records: u32) -> bool {
        self.previous_records == 0 || self.previous_records == records as u16
    }

    /// Reads the length of a group, padded to `unit`, from its first bytes `start`. Returns `None`
    /// if `start` does not look like the start of a group of segment `id`. The checksum is not
    /// checked.
    pub fn peek_len(start: &[u8], id: SegmentId, unit: usize) -> Option<u64> {
        if start.len() < GROUP_HEADER || !has_magic(start, GROUP_MAGIC) {
            return None;
        }
        let mut fields = &start[2 * CHECKSUM..GROUP_HEADER];
        if varint::take_u64_le(&mut fields)? != id {
            return None;
        }
        let payload_len = varint::take_u64_le(&mut &start[56..64])? as u32;
        let len = GROUP_HEADER as u64 + u64::from(payload_len);
        Some(len.next_multiple_of(unit as u64))
    }

    /// Reads the header of `group`, which has all the bytes that [`GroupHeader::peek_len`] has
    /// returned. Returns `None` if the checksum does not match.
    ///
    /// # Errors
    /// `Unsupported` if the group is encrypted, or a newer version of the engine wrote it.
    pub fn decode(
        group: &[u8],
        id: SegmentId,
        offset: u64,
        unit: usize,
        file: &str,
    ) -> Result<Option<Self>> {
        if group.len() < GROUP_HEADER || !is_sealed(group, GROUP_MAGIC, id, offset) {
            return Ok(None);
        }
        match version(group) {
            FORMAT_VERSION => {}
            ENCRYPTED_VERSION => {
                let place = format_args!("the log group at offset {offset} of {file}");
                return Err(encryption_envelope::refused(place));
            }
            newer => return Err(unsupported(newer, file)),
        }
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
        let whole = len.next_multiple_of(unit) == group.len();
        Ok((epoch == id && whole).then_some(header))
    }
}

/// `len` rounded up to whole blocks.
pub fn blocks_for(len: usize) -> usize {
    len.next_multiple_of(BLOCK)
}

const UNIT_MIN: u64 = SECTOR as u64;
const UNIT_MAX: u64 = BLOCK as u64;

fn put_magic(bytes: &mut [u8], magic: u32, version: u16) {
    bytes[8..12].copy_from_slice(&magic.to_le_bytes());
    bytes[12..14].copy_from_slice(&version.to_le_bytes());
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

fn version(bytes: &[u8]) -> u16 {
    u16::from_le_bytes([bytes[12], bytes[13]])
}

/// The error for a header with a valid checksum and an unknown format version: a newer version of
/// the engine wrote it.
fn unsupported(version: u16, file: &str) -> Error {
    Error::unsupported(format!("log format version {version} in {file}"))
}

#[cfg(test)]
mod tests;
