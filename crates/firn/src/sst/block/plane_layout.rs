//! Converts data blocks between the form that is searched and the form that compresses best.

use super::byte_planes;
use super::header::{
    BlockHeader, BlockSection, HEAD_LEN_SAME, HEAD_PLANES, KEY_PLANES, SECTIONS, TAIL_LEN_SAME,
    TAIL_PLANES,
};

/// The sections of sectioned blocks that are stored as byte planes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::sst) struct PlaneLayout {
    /// Whether keys, trailers, lengths and value heads become byte planes. All of these are arrays
    /// of numbers.
    pub(in crate::sst) numbers: bool,
    /// Whether value tails become byte planes. That makes tails of codes and digits smaller, but
    /// tails of words larger.
    pub(in crate::sst) tails: bool,
}

/// Number of entries below which a block is stored without byte planes, because its planes would be
/// too short to compress better.
const ENTRIES_MIN: u32 = 8;
/// Value heads and tails wider than this are stored without byte planes: they are documents, not
/// numbers.
const WIDTH_MAX: u32 = 4096;

/// A raw block in its stored form, and the offset of its value tails in it. The offset is the
/// length of the block if there is no section for tails.
pub(in crate::sst) struct StoredForm {
    pub(in crate::sst) raw: Vec<u8>,
    pub(in crate::sst) tails_at: usize,
}

/// Converts a raw block from the read form, which the builder writes, to the stored form. In a
/// sectioned block, the sections that `shape` chooses become byte planes. A row-wise block stays as
/// it is.
pub(in crate::sst) fn to_stored_form(
    sectioned: bool,
    built: &[u8],
    shape: PlaneLayout,
) -> StoredForm {
    let mut input = built;
    let header = BlockHeader::take(sectioned, &mut input).expect("the builder wrote it");
    let mut target = header;
    let fits = |width: u32| (1..=WIDTH_MAX).contains(&width);
    if sectioned && header.entries >= ENTRIES_MIN {
        if shape.numbers {
            target.flags |= KEY_PLANES;
        }
        if shape.numbers && header.has(HEAD_LEN_SAME) && fits(header.head_len) {
            target.flags |= HEAD_PLANES;
        }
        if shape.tails && header.has(TAIL_LEN_SAME) && fits(header.tail_len) {
            target.flags |= TAIL_PLANES;
        }
    }
    let mut raw = Vec::with_capacity(built.len() + built.len() / 8);
    target.put(&mut raw);
    let mut tails_at = 0;
    let pieces = target.pieces().expect("the builder wrote it");
    for (part, piece) in pieces.iter().enumerate() {
        let (bytes, rest) = input.split_at(piece.len);
        input = rest;
        if part == BlockSection::Tails as usize {
            tails_at = raw.len();
        }
        match piece.plane_width {
            0 => raw.extend_from_slice(bytes),
            width => byte_planes::split(bytes, width, &mut raw),
        }
    }
    StoredForm { raw, tails_at }
}

/// Undoes [`to_stored_form`]. `None` if the sections do not add up to the length of `raw`.
pub(super) fn to_read_form(
    header: &BlockHeader,
    mut raw: Vec<u8>,
    header_len: usize,
) -> Option<Pieces> {
    let pieces = header.pieces()?;
    let entries = header.entries as usize;
    let mut stored = header_len;
    for piece in &pieces {
        stored = stored.checked_add(piece.stored_len(entries)?)?;
    }
    if stored != raw.len() {
        return None;
    }
    let mut bounds = [0; SECTIONS + 1];
    if pieces.iter().all(|p| p.plane_width == 0) {
        bounds[0] = header_len as u32;
        for (i, piece) in pieces.iter().enumerate() {
            bounds[i + 1] = bounds[i] + piece.len as u32;
        }
        return Some(Pieces { bytes: raw, bounds });
    }
    let mut bytes = Vec::with_capacity(raw.len());
    let mut at = header_len;
    for (i, piece) in pieces.iter().enumerate() {
        let end = at + piece.stored_len(entries)?;
        match piece.plane_width {
            0 => bytes.extend_from_slice(&raw[at..end]),
            width => byte_planes::join(&mut raw[at..end], entries, width, &mut bytes)?,
        }
        at = end;
        bounds[i + 1] = bytes.len() as u32;
    }
    Some(Pieces { bytes, bounds })
}

/// The sections of a block in read form.
pub(super) struct Pieces {
    pub(super) bytes: Vec<u8>,
    /// Section `i` lies between bounds `i` and `i + 1`.
    pub(super) bounds: [u32; SECTIONS + 1],
}
