//! LEB128 variable-length integers and length-prefixed bytes.
//!
//! The readers take a slice and advance it. `None` means that the bytes ended or the number is too
//! long; the caller, which knows file and offset, makes the error.

/// Longest encoding of a `u64`.
pub const MAX_LEN: usize = 10;

/// Appends `value`.
pub fn put_u64(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Takes a number from the front of `input`. Nearly all numbers fit one byte, so that case is
/// inlined.
#[inline]
pub fn take_u64(input: &mut &[u8]) -> Option<u64> {
    match input.split_first() {
        Some((&first, rest)) if first < 0x80 => {
            *input = rest;
            Some(u64::from(first))
        }
        _ => take_long(input),
    }
}

fn take_long(input: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for (i, &byte) in input.iter().enumerate().take(MAX_LEN) {
        if i == MAX_LEN - 1 && byte > 1 {
            return None;
        }
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            *input = &input[i + 1..];
            return Some(value);
        }
    }
    None
}

/// Takes a number that must fit 32 bits.
#[inline]
pub fn take_u32(input: &mut &[u8]) -> Option<u32> {
    take_u64(input)?.try_into().ok()
}

/// Appends the length of `bytes` and the bytes.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_u64(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Takes length-prefixed bytes.
pub fn take_bytes<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(take_u64(input)?).ok()?;
    take_exact(input, len)
}

/// Takes exactly `len` bytes.
pub fn take_exact<'a>(input: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (front, rest) = input.split_at_checked(len)?;
    *input = rest;
    Some(front)
}

/// Takes one byte.
pub fn take_u8(input: &mut &[u8]) -> Option<u8> {
    let (&first, rest) = input.split_first()?;
    *input = rest;
    Some(first)
}

/// Takes a little-endian `u32`.
#[allow(clippy::missing_panics_doc)] // No caller can cause it.
pub fn take_u32_le(input: &mut &[u8]) -> Option<u32> {
    take_exact(input, 4).map(|b| u32::from_le_bytes(b.try_into().expect("four bytes")))
}

/// Takes a little-endian `u64`.
#[allow(clippy::missing_panics_doc)] // No caller can cause it.
pub fn take_u64_le(input: &mut &[u8]) -> Option<u64> {
    take_exact(input, 8).map(|b| u64::from_le_bytes(b.try_into().expect("eight bytes")))
}

#[cfg(test)]
mod tests;
