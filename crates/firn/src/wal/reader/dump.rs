//! Lists the contents of one segment, damaged or not. This is for inspection by people; recovery
//! does not use it.

use super::super::frame::{CHECKSUM, FIRST_GROUP, GROUP_HEADER, GroupHeader, SegmentHeader};
use super::super::{Record, SegmentId};
use super::segments::SegmentReader;
use crate::base::Result;
use crate::base::checksum::xxh3;
use crate::env::Env;
use std::path::Path;

/// A stretch of a segment behind the header block: a group, or a gap between groups.
#[derive(Debug)]
pub enum SegmentPiece<'a> {
    /// An intact group. Recovery drops it if a group before it is missing: then its commits were
    /// never acknowledged as durable.
    Group {
        /// Offset of the group in the segment.
        offset: u64,
        /// Bytes of the group, padding included.
        len: u64,
        /// Header of the group.
        header: GroupHeader,
        /// Records of the group, up to the first one that does not decode.
        records: Vec<Record<'a>>,
    },
    /// Units that belong to no intact group.
    Gap {
        /// Offset of the first byte of the gap.
        from: u64,
        /// Offset behind the last byte of the gap.
        to: u64,
        /// The gap has only zeros: it was never written.
        blank: bool,
    },
}

/// Passes the groups and gaps of segment `id` to `f`, in order. Returns the segment's header, if it
/// is intact, and the size of the file in bytes.
///
/// # Errors
/// Those of the file system; `Unsupported` for a newer format.
pub fn dump_segment(
    env: &dyn Env,
    dir: &Path,
    id: SegmentId,
    f: &mut dyn FnMut(SegmentPiece<'_>),
) -> Result<(Option<SegmentHeader>, u64)> {
    let mut segment = SegmentReader::open(env, dir, id)?;
    let header = segment.header()?;
    if header.is_none() {
        segment.find_unit()?;
    }
    let unit = segment.unit();
    let size = segment.size();
    let name = segment.name.clone();
    let mut gap: Option<(u64, bool)> = None;
    let mut offset = FIRST_GROUP;
    while offset < size {
        let Some((group, bytes)) = segment.group(offset)? else {
            let block = segment.bytes(offset, unit)?.unwrap_or_default();
            let zero = block.iter().all(|&byte| byte == 0);
            let (_, blank) = gap.get_or_insert((offset, true));
            *blank &= zero;
            offset += unit;
            continue;
        };
        if let Some((from, blank)) = gap.take() {
            let to = offset;
            f(SegmentPiece::Gap { from, to, blank });
        }
        let mut payload = &bytes[GROUP_HEADER..GROUP_HEADER + group.payload_len as usize];
        let mut records = Vec::new();
        while !payload.is_empty()
            && let Ok(record) = Record::decode(&mut payload, &name, offset)
        {
            records.push(record);
        }
        let len = bytes.len() as u64;
        f(SegmentPiece::Group {
            offset,
            len,
            header: group,
            records,
        });
        offset += len;
    }
    if let Some((from, blank)) = gap {
        let to = size;
        f(SegmentPiece::Gap { from, to, blank });
    }
    Ok((header, size))
}

/// Returns a checksum over the stored checksums of the header and of all intact groups of segment
/// `id`, in order. A copy of the segment has the same fingerprint, even without the unused room
/// after the last group.
///
/// # Errors
/// Those of [`dump_segment`].
pub fn fingerprint(env: &dyn Env, dir: &Path, id: SegmentId) -> Result<u64> {
    let mut segment = SegmentReader::open(env, dir, id)?;
    let mut checksums = Vec::new();
    if segment.header()?.is_some() {
        checksums.extend_from_slice(segment.bytes(0, CHECKSUM as u64)?.unwrap_or_default());
    }
    let (unit, size) = (segment.unit(), segment.size());
    let mut offset = FIRST_GROUP;
    while offset < size {
        offset += match segment.group(offset)? {
            Some((_, bytes)) => {
                checksums.extend_from_slice(&bytes[..CHECKSUM]);
                bytes.len() as u64
            }
            None => unit,
        };
    }
    Ok(xxh3(&checksums))
}
