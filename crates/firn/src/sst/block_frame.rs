//! The frame of every stored block: a header, the payload (compressed or raw), a checksum.

use super::block_compression::{Payload, StoredCodec, decompress};
use super::decode_error::{DecodeError, Decoded};
use super::dictionary::DigestedDictionary;
use super::format::{BlockKind, Handle};
use crate::base::varint;
use crate::base::{checksum, encryption_envelope};

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
    // The fourth byte of the header is reserved and 0.
    out.extend_from_slice(&[codec as u8, kind as u8, encryption_envelope::NONE, 0]);
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

const SHORT: DecodeError = DecodeError::Corrupt("block shorter than its header");

/// The decoded header of a stored block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StoredHeader {
    pub(super) codec: StoredCodec,
    pub(super) kind: BlockKind,
    pub(super) raw_len: usize,
    /// Id of the dictionary that the payload needs; `Some` only with
    /// [`StoredCodec::ZstdDictionary`].
    pub(super) dictionary: Option<u32>,
}

/// Compares a stored block with its checksum and returns its header and its payload, which is still
/// compressed.
pub(super) fn check(
    stored: &[u8],
    (file_id, offset): (u64, u64),
) -> Decoded<(StoredHeader, &[u8])> {
    let covered = stored.len().checked_sub(CHECKSUM_LEN).ok_or(SHORT)?;
    let (covered, sum) = stored.split_at(covered);
    if checksum::placed(covered, file_id, offset).to_le_bytes() != sum {
        return Err(DecodeError::Corrupt("block checksum"));
    }
    let (header, mut payload) = covered.split_at_checked(HEADER_LEN).ok_or(SHORT)?;
    let codec = StoredCodec::from_u8(header[0])?;
    let kind = BlockKind::from_u8(header[1])?;
    if header[2] != encryption_envelope::NONE {
        return Err(DecodeError::Encrypted);
    }
    if header[3] != 0 {
        return Err(DecodeError::Unsupported("block flags"));
    }
    let raw_len = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
    let dictionary = match codec {
        StoredCodec::ZstdDictionary => Some(varint::take_u32_le(&mut payload).ok_or(SHORT)?),
        _ => None,
    };
    let header = StoredHeader {
        codec,
        kind,
        raw_len,
        dictionary,
    };
    Ok((header, payload))
}

/// Whether [`check`] accepts a stored block.
pub(super) fn is_intact(stored: &[u8], place: (u64, u64)) -> bool {
    check(stored, place).is_ok()
}

/// Decompresses the payload of a stored block, as [`check`] returns it. `dictionary` is the one
/// that the header names.
pub(super) fn expand(
    header: &StoredHeader,
    payload: &[u8],
    dictionary: Option<&DigestedDictionary>,
) -> Decoded<Vec<u8>> {
    decompress(header.codec, dictionary, payload, header.raw_len)
}

/// Adapts the checksum of a stored block that moves from `from` to `to`, pairs of file id and
/// offset. Only the term of the checksum that depends on the position is replaced. The checksum is
/// not computed again from the bytes, so a byte that changed in memory meanwhile is still detected
/// by the next reader.
pub(super) fn relocate(stored: &mut [u8], from: (u64, u64), to: (u64, u64)) {
    let Some(sum) = stored.last_chunk_mut::<CHECKSUM_LEN>() else {
        return;
    };
    let moved = u64::from_le_bytes(*sum)
        .wrapping_sub(checksum::place_term(from.0, from.1))
        .wrapping_add(checksum::place_term(to.0, to.1));
    *sum = moved.to_le_bytes();
}

/// Checks and decompresses a stored block that needs no dictionary and lies at `place`, a pair of
/// file id and offset. A block whose kind is not `kind` is corruption.
pub(super) fn open_as(kind: BlockKind, stored: &[u8], place: (u64, u64)) -> Decoded<Vec<u8>> {
    let (header, payload) = check(stored, place)?;
    let raw = expand(&header, payload, None)?;
    match header.kind == kind {
        true => Ok(raw),
        false => Err(DecodeError::Corrupt("block of another kind than expected")),
    }
}
