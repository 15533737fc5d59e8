//! Stored blocks: header, payload, checksum.

use super::codec::{Payload, StoredCodec, decompress};
use super::damage::{Damage, Decoded};
use super::dictionary::Dictionary;
use super::format::{BlockKind, Handle};
use crate::base::checksum;
use crate::base::varint;
use std::sync::Arc;

const HEADER_LEN: usize = 8;
const CHECKSUM_LEN: usize = 8;

/// Appends the stored form of a block that will lie at `offset` of file `file_id`.
pub(super) fn put(
    out: &mut Vec<u8>,
    kind: BlockKind,
    (codec, dictionary, payload): Payload<'_>,
    raw_len: usize,
    (file_id, offset): (u64, u64),
) -> Handle {
    let start = out.len();
    // Third byte: the encryption envelope, none so far. Fourth: spare.
    out.extend_from_slice(&[codec as u8, kind as u8, 0, 0]);
    out.extend_from_slice(&(raw_len as u32).to_le_bytes());
    if codec == StoredCodec::ZstdDictionary {
        out.extend_from_slice(&dictionary.to_le_bytes());
    }
    out.extend_from_slice(payload);
    let checksum = checksum::placed(&out[start..], file_id, offset);
    out.extend_from_slice(&checksum.to_le_bytes());
    Handle {
        offset,
        len: (out.len() - start) as u32,
    }
}

/// Checks and decompresses a stored block.
pub(super) fn open(
    stored: &[u8],
    dictionaries: &[Arc<Dictionary>],
    (file_id, offset): (u64, u64),
) -> Decoded<(BlockKind, Vec<u8>)> {
    let short = Damage::Corrupt("block shorter than its header");
    let covered = stored.len().checked_sub(CHECKSUM_LEN).ok_or(short)?;
    let (covered, sum) = stored.split_at(covered);
    if checksum::placed(covered, file_id, offset).to_le_bytes() != sum {
        return Err(Damage::Corrupt("block checksum"));
    }
    let (header, mut payload) = covered.split_at_checked(HEADER_LEN).ok_or(short)?;
    let codec = StoredCodec::from_u8(header[0])?;
    let kind = BlockKind::from_u8(header[1])?;
    if header[2] != 0 || header[3] != 0 {
        return Err(Damage::Unsupported("block envelope"));
    }
    let raw_len = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
    let mut dictionary = None;
    if codec == StoredCodec::ZstdDictionary {
        let id = varint::take_u32_le(&mut payload).ok_or(short)?;
        dictionary = dictionaries.iter().find(|d| d.id() == id).map(|d| &**d);
    }
    Ok((kind, decompress(codec, dictionary, payload, raw_len)?))
}

/// As [`open`], for a block that must be of `kind`.
pub(super) fn open_as(
    kind: BlockKind,
    stored: &[u8],
    dictionaries: &[Arc<Dictionary>],
    place: (u64, u64),
) -> Decoded<Vec<u8>> {
    match open(stored, dictionaries, place)? {
        (found, raw) if found == kind => Ok(raw),
        _ => Err(Damage::Corrupt("block of another kind than expected")),
    }
}
