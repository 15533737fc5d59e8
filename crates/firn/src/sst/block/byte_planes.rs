//! Byte planes: how arrays of items of equal length are stored.
//!
//! `n` items of `w` bytes are stored as `w` planes of `n` bytes: all first bytes, all second bytes,
//! and so on. A byte that is the same in all items becomes a repetition of that byte, and the bytes
//! of one plane have a similar distribution, which an entropy coder exploits. If most neighbouring
//! bytes of a plane differ by at most one (a counter, the upper bytes of a sorted number), the
//! plane stores the difference of each byte from the one before. A bitmap in front of the planes
//! has one bit for each plane, which is set if the plane stores differences.
//!
//! Worked example: items `01 07`, `02 07`, `03 07` become the planes `01 02 03` and `07 07 07`.
//! Both store differences, so the stored bytes are: bitmap `11`, then `01 01 01`, then `07 00 00`.

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

/// Undoes [`split`]: appends the `n` items of `w` bytes that `stored` holds. `None` if `stored` has
/// not the length for that. Overwrites `stored`.
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

/// Rows and columns of the square that [`transpose_tile`] transposes.
const TILE: usize = 16;

/// The starts of tiles that cover `len` rows or columns; `len` must be at least the size of a tile.
/// The last tile may overlap the one before it.
fn tiles(len: usize) -> impl Iterator<Item = usize> {
    let last = len - TILE;
    (0..last).step_by(TILE).chain(std::iter::once(last))
}

/// Transposes rows of `w` bytes: byte `j` of row `i` becomes byte `i` of row `j`.
fn transpose(from: &[u8], w: usize, to: &mut [u8]) {
    if w == 0 {
        return;
    }
    let n = from.len() / w;
    if n.min(w) < TILE {
        for (i, row) in from.chunks_exact(w).enumerate() {
            for (j, byte) in row.iter().enumerate() {
                to[j * n + i] = *byte;
            }
        }
        return;
    }
    for i in tiles(n) {
        for j in tiles(w) {
            transpose_tile(&from[i * w + j..], w, &mut to[j * n + i..], n);
        }
    }
}

/// Transposes the tile at the start of `from`, whose rows are `w` bytes apart, into the tile at the
/// start of `to`, whose rows are `n` bytes apart. In each of four rounds, lines `i` and `i + 8` are
/// interleaved into lines `2i` and `2i + 1`. Take the position of a byte as eight bits, four for
/// its line and four for its column: each round rotates these bits by one, so that after four
/// rounds line and column are exchanged.
#[inline(always)]
fn transpose_tile(from: &[u8], w: usize, to: &mut [u8], n: usize) {
    let mut tile = [bytemuck::cast::<_, Line>([0u8; TILE]); TILE];
    for (k, line) in tile.iter_mut().enumerate() {
        let mut bytes = [0; TILE];
        bytes.copy_from_slice(&from[k * w..][..TILE]);
        *line = bytemuck::cast(bytes);
    }
    for _ in 0..TILE.ilog2() {
        let before = tile;
        for i in 0..TILE / 2 {
            (tile[2 * i], tile[2 * i + 1]) = interleave(before[i], before[i + TILE / 2]);
        }
    }
    for (k, line) in tile.iter().enumerate() {
        let bytes: [u8; TILE] = bytemuck::cast(*line);
        to[k * n..][..TILE].copy_from_slice(&bytes);
    }
}

#[cfg(target_arch = "x86_64")]
type Line = std::arch::x86_64::__m128i;

/// Interleaves the bytes of two lines of a tile: the first byte of `a`, the first byte of `b`, and
/// so on. Uses instructions of SSE2, because compilers do not find them by themselves.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn interleave(a: Line, b: Line) -> (Line, Line) {
    use std::arch::x86_64::{_mm_unpackhi_epi8, _mm_unpacklo_epi8};
    // SAFETY: both functions need SSE2, which every x86_64 processor has.
    unsafe { (_mm_unpacklo_epi8(a, b), _mm_unpackhi_epi8(a, b)) }
}

#[cfg(not(target_arch = "x86_64"))]
type Line = [u8; TILE];

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn interleave(a: Line, b: Line) -> (Line, Line) {
    let zipped = |from: usize| {
        std::array::from_fn(|k| match k % 2 {
            0 => a[from + k / 2],
            _ => b[from + k / 2],
        })
    };
    (zipped(0), zipped(TILE / 2))
}

#[cfg(test)]
mod tests;
