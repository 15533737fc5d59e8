//! Encodes numbers from the little-endian form of the record buffer to bytes that sort as the
//! numbers do, and decodes them.

use super::damaged;
use super::key_reader::KeyReader;
use crate::base::Result;

/// Appends an integer in big-endian; if it is signed, with the sign bit flipped.
pub(super) fn encode_int(out: &mut Vec<u8>, little: &[u8], signed: bool) {
    let start = out.len();
    out.extend(little.iter().rev());
    if signed {
        out[start] ^= 0x80;
    }
}

pub(super) fn decode_int(reader: &mut KeyReader<'_>, room: &mut [u8], signed: bool) -> Result<()> {
    reader.fill(room)?;
    if signed {
        room[0] ^= 0x80;
    }
    room.reverse();
    Ok(())
}

/// Appends a FLOAT (4 bytes) or DOUBLE (8 bytes) in big-endian. Negative numbers have all bits
/// inverted, others have the sign bit set. -0.0 equals 0.0, so it is encoded as 0.0.
pub(super) fn encode_float(out: &mut Vec<u8>, little: &[u8]) {
    let start = out.len();
    if is_negative_zero(little) {
        out.resize(start + little.len(), 0);
    } else {
        out.extend(little.iter().rev());
    }
    if out[start] & 0x80 == 0 {
        out[start] |= 0x80;
    } else {
        for byte in &mut out[start..] {
            *byte = !*byte;
        }
    }
}

/// Decodes a float. The key has the same bytes for -0.0 and 0.0; `negative_zero`, from the unpack
/// info, tells that the number is -0.0.
pub(super) fn decode_float(
    reader: &mut KeyReader<'_>,
    room: &mut [u8],
    negative_zero: bool,
) -> Result<()> {
    reader.fill(room)?;
    if room[0] & 0x80 == 0 {
        for byte in room.iter_mut() {
            *byte = !*byte;
        }
    } else {
        room[0] &= 0x7f;
    }
    if negative_zero {
        if room.iter().any(|&byte| byte != 0) {
            return Err(damaged("negative zero that is not zero"));
        }
        room[0] = 0x80;
    }
    room.reverse();
    Ok(())
}

/// Whether the little-endian float is -0.0.
pub(super) fn is_negative_zero(little: &[u8]) -> bool {
    matches!(little.split_last(), Some((0x80, rest)) if rest.iter().all(|&byte| byte == 0))
}
