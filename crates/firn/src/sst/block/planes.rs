//! Byte planes: how arrays of equally long items are stored.
//!
//! `n` items of `w` bytes are stored as `w` planes of `n` bytes: all first bytes, all second bytes,
//! and so on. What is the same in all items becomes a run, and bytes of one place are alike, which
//! an entropy coder lives on. A plane whose neighbours mostly differ by at most one (a counter, the
//! upper bytes of a sorted number) is stored as differences. A bitmap in front, one bit a plane,
//! says which.
//!
//! Worked example: items `01 07`, `02 07`, `03 07` become planes `01 02 03` and `07 07 07`, and
//! stored: bitmap `11`, `01 01 01`, `07 00 00`.

/// Bytes that `n` items of `w` bytes take when stored as planes.
pub(super) fn stored_len(n: usize, w: usize) -> Option<usize> {
    n.checked_mul(w)?.checked_add(w.div_ceil(8))
}

/// Appends the planes of `items`, each `w` bytes long.
pub(super) fn split(items: &[u8], w: usize, out: &mut Vec<u8>) {
    let n = items.len() / w;
    let bitmap = out.len();
    let start = bitmap + w.div_ceil(8);
    out.resize(start + items.len(), 0);
    transpose(items, w, &mut out[start..]);
    for j in 0..w {
        let plane = start + j * n..start + (j + 1) * n;
        if is_smooth(&out[plane.clone()]) {
            out[bitmap + j / 8] |= 1 << (j % 8);
            let mut before = 0;
            for byte in &mut out[plane] {
                (*byte, before) = (byte.wrapping_sub(before), *byte);
            }
        }
    }
}

fn is_smooth(plane: &[u8]) -> bool {
    let small = |p: &&[u8]| p[1].wrapping_sub(p[0]).wrapping_add(1) <= 2;
    plane.windows(2).filter(small).count() * 2 >= plane.len()
}

/// Undoes [`split`]: appends the `n` items of `w` bytes that `stored` holds. `None` if its length
/// is another. Uses `stored` as scratch.
pub(super) fn join(stored: &mut [u8], n: usize, w: usize, out: &mut Vec<u8>) -> Option<()> {
    if stored.len() != stored_len(n, w)? {
        return None;
    }
    if n == 0 || w == 0 {
        return Some(());
    }
    let (bitmap, planes) = stored.split_at_mut(w.div_ceil(8));
    for (j, plane) in planes.chunks_exact_mut(n).enumerate() {
        if bitmap[j / 8] & (1 << (j % 8)) != 0 {
            let mut sum = 0u8;
            for byte in plane {
                sum = sum.wrapping_add(*byte);
                *byte = sum;
            }
        }
    }
    let start = out.len();
    out.resize(start + planes.len(), 0);
    transpose(planes, n, &mut out[start..]);
    Some(())
}

const TILE: usize = 8;

/// Turns rows of `w` bytes into columns: byte `j` of row `i` goes to place `i` of column `j`.
fn transpose(from: &[u8], w: usize, to: &mut [u8]) {
    if w == 0 {
        return;
    }
    let n = from.len() / w;
    let (tiled_n, tiled_w) = (n - n % TILE, w - w % TILE);
    for i in (0..tiled_n).step_by(TILE) {
        for j in (0..tiled_w).step_by(TILE) {
            let mut tile = [0u64; TILE];
            for (k, word) in tile.iter_mut().enumerate() {
                let at = (i + k) * w + j;
                if let Some(bytes) = from[at..].first_chunk::<TILE>() {
                    *word = u64::from_le_bytes(*bytes);
                }
            }
            transpose_tile(&mut tile);
            for (k, word) in tile.iter().enumerate() {
                let at = (j + k) * n + i;
                to[at..at + TILE].copy_from_slice(&word.to_le_bytes());
            }
        }
    }
    for i in 0..n {
        let first = if i < tiled_n { tiled_w } else { 0 };
        for j in first..w {
            to[j * n + i] = from[i * w + j];
        }
    }
}

/// Transposes 8 × 8 bytes: exchanges quarters, then their quarters, then those.
fn transpose_tile(t: &mut [u64; TILE]) {
    for (step, mask) in [
        (4, 0x0000_0000_ffff_ffff),
        (2, 0x0000_ffff_0000_ffff),
        (1, 0x00ff_00ff_00ff_00ff_u64),
    ] {
        let shift = step * 8;
        for i in (0..TILE).filter(|i| i & step == 0) {
            let (a, b) = (t[i], t[i + step]);
            t[i] = (a & mask) | ((b & mask) << shift);
            t[i + step] = ((a >> shift) & mask) | (b & !mask);
        }
    }
}

#[cfg(test)]
mod tests;
