//! Bloom filters in which all probes of one key fall into one cache line of 64 bytes.

use super::decode_error::{DecodeError, Decoded};

const LINE_BYTES: usize = 64;
const LINE_BITS: u64 = 512;

/// Bytes of the filter that fill one cache line.
#[derive(Clone, Copy, bytemuck::Zeroable, bytemuck::Pod)]
#[repr(C, align(64))]
struct Line([u8; LINE_BYTES]);

/// A filter over the user keys of one index partition. In memory it has the same bytes as on disk.
pub(super) struct Filter {
    probes: u32,
    lines: Vec<Line>,
}

/// The bits that a key sets in its cache line: the hash is multiplied repeatedly by a constant, and
/// the top nine bits of each product are the number of a bit.
fn bits(hash: u64, probes: u32) -> impl Iterator<Item = usize> {
    let mut h = (hash as u32) | 1;
    (0..probes).map(move |_| {
        h = h.wrapping_mul(0x9e37_79b9);
        ((u64::from(h) * LINE_BITS) >> 32) as usize
    })
}

fn line_of(hash: u64, lines: usize) -> usize {
    (((hash >> 32) * lines as u64) >> 32) as usize
}

/// The stored form of a filter over keys with these hashes.
pub(super) fn build(hashes: &[u64], bits_per_key: u32) -> Vec<u8> {
    // 0.6 probes for each bit per key, a little less than the optimum of 0.69: the fewer probes
    // cost few false positives, because a key's bits crowd into one cache line.
    let probes = (bits_per_key * 6 / 10).clamp(1, 16);
    let lines = (hashes.len() as u64 * u64::from(bits_per_key)).div_ceil(LINE_BITS) as usize;
    let mut out = vec![0; 1 + lines.max(1) * LINE_BYTES];
    out[0] = probes as u8;
    let body = &mut out[1..];
    for &hash in hashes {
        let start = line_of(hash, lines.max(1)) * LINE_BYTES;
        for bit in bits(hash, probes) {
            body[start + bit / 8] |= 1 << (bit % 8);
        }
    }
    out
}

impl Filter {
    pub(super) fn decode(stored: &[u8]) -> Decoded<Self> {
        let bad = DecodeError::Corrupt("filter size");
        let (&probes, body) = stored.split_first().ok_or(bad)?;
        if body.is_empty() || body.len() % LINE_BYTES != 0 || !(1..=16).contains(&probes) {
            return Err(bad);
        }
        let mut lines = vec![Line([0; LINE_BYTES]); body.len() / LINE_BYTES];
        bytemuck::cast_slice_mut(&mut lines).copy_from_slice(body);
        Ok(Self {
            probes: u32::from(probes),
            lines,
        })
    }

    /// Whether the partition may hold a key with this hash; `false` means that it does not.
    #[inline]
    pub(super) fn may_contain(&self, hash: u64) -> bool {
        let line = &self.lines[line_of(hash, self.lines.len())];
        bits(hash, self.probes).all(|bit| line.0[bit / 8] & (1 << (bit % 8)) != 0)
    }

    /// Bytes of memory that the filter takes.
    pub(super) fn memory(&self) -> usize {
        self.lines.len() * LINE_BYTES
    }
}

#[cfg(test)]
mod tests;
