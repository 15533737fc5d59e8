//! Random layouts and records for the tests of row formats.

use crate::rowcode::*;
use rand::{Rng, rngs::StdRng};

/// The value of a column; `None` is NULL.
pub type Field = Option<Vec<u8>>;

pub fn random_kind(rng: &mut StdRng) -> ColumnKind {
    match rng.random_range(0..6) {
        0 | 1 => ColumnKind::Fixed {
            len: rng.random_range(0..9),
        },
        2 => ColumnKind::Char {
            len: rng.random_range(0..40),
            pad: Pad::SPACE,
        },
        3 => ColumnKind::Char {
            len: 2 * rng.random_range(0..9),
            pad: Pad::new(&[0, 0x20]).unwrap(),
        },
        4 => {
            let len_bytes = rng.random_range(1..=2);
            ColumnKind::VarChar {
                len_bytes,
                max: rng.random_range(0..if len_bytes == 1 { 256 } else { 700 }),
            }
        }
        _ => ColumnKind::Blob {
            len_bytes: rng.random_range(1..=4),
        },
    }
}

/// Random columns with ids from 0 on. [`place`] gives them offsets and NULL bits.
pub fn random_columns(rng: &mut StdRng, count: usize) -> Vec<Column> {
    (0..count)
        .map(|id| Column {
            id: id as u32,
            kind: random_kind(rng),
            offset: 0,
            null: rng
                .random_bool(0.4)
                .then_some(NullBit { offset: 0, mask: 0 }),
            stored: rng.random_bool(0.9),
            instant_default: InstantDefault::Impossible,
        })
        .collect()
}

/// Gives the columns random offsets in a record buffer, sometimes with gaps between them. Returns
/// the length of the buffer.
pub fn place(rng: &mut StdRng, columns: &mut [Column]) -> u32 {
    let mut bit = 1;
    let null_bytes = (columns.len() as u32 + 1).div_ceil(8);
    let mut offset = null_bytes;
    for column in columns {
        column.offset = offset;
        offset += column.kind.record_len() + u32::from(rng.random_bool(0.1));
        if let Some(null) = &mut column.null {
            *null = NullBit {
                offset: bit / 8,
                mask: 1 << (bit % 8),
            };
            bit += 1;
        }
    }
    offset
}

fn some_bytes(rng: &mut StdRng, max: usize) -> Vec<u8> {
    let len = match rng.random_range(0..4) {
        0 => 0,
        1 => max,
        _ => rng.random_range(0..=max),
    };
    // Use many spaces and zeros, which a faulty codec could take for padding.
    (0..len)
        .map(|_| [b' ', 0, b'x', rng.random()][rng.random_range(0..4)])
        .collect()
}

pub fn random_field(rng: &mut StdRng, column: &Column) -> Field {
    if column.null.is_some() && rng.random_bool(0.3) {
        return None;
    }
    let max = match column.kind {
        ColumnKind::Fixed { len } => {
            return Some((0..len).map(|_| rng.random()).collect());
        }
        ColumnKind::Char { len, .. } => len as usize,
        ColumnKind::VarChar { max, .. } => max as usize,
        ColumnKind::Blob { len_bytes: 1 } => 255,
        ColumnKind::Blob { .. } => [300, 5000][usize::from(rng.random_bool(0.1))],
    };
    let mut bytes = some_bytes(rng, max);
    if let ColumnKind::Char { pad, .. } = column.kind {
        bytes.truncate(bytes.len() - bytes.len() % pad.as_bytes().len());
        bytes.truncate(pad.stripped_len(&bytes));
    }
    Some(bytes)
}

/// Writes `fields` to a record buffer as the server does. The record then points into `fields`,
/// which must outlive it.
pub fn fill(columns: &[Column], fields: &[Field], record: &mut [u8]) {
    for (column, field) in columns.iter().zip(fields) {
        if let Some(null) = column.null {
            record[null.offset as usize] &= !null.mask;
        }
        let Some(bytes) = field else {
            let null = column.null.unwrap();
            record[null.offset as usize] |= null.mask;
            continue;
        };
        let at = column.offset as usize;
        let room = &mut record[at..at + column.kind.record_len() as usize];
        match column.kind {
            ColumnKind::Fixed { .. } => room.copy_from_slice(bytes),
            ColumnKind::Char { pad, .. } => {
                pad.fill(room);
                room[..bytes.len()].copy_from_slice(bytes);
            }
            ColumnKind::VarChar { len_bytes, .. } => {
                let n = usize::from(len_bytes);
                room[..n].copy_from_slice(&bytes.len().to_le_bytes()[..n]);
                room[n..n + bytes.len()].copy_from_slice(bytes);
            }
            ColumnKind::Blob { len_bytes } => {
                let n = usize::from(len_bytes);
                room[..n].copy_from_slice(&bytes.len().to_le_bytes()[..n]);
                let address = bytes.as_ptr() as usize;
                room[n..].copy_from_slice(&address.to_ne_bytes());
            }
        }
    }
}

/// The value of a column in a record buffer.
pub fn read(column: &Column, record: &[u8]) -> Field {
    if let Some(null) = column.null
        && record[null.offset as usize] & null.mask != 0
    {
        return None;
    }
    let at = column.offset as usize;
    let field = &record[at..at + column.kind.record_len() as usize];
    let length = |n: u8| {
        let mut wide = [0; 8];
        wide[..usize::from(n)].copy_from_slice(&field[..usize::from(n)]);
        usize::from_le_bytes(wide)
    };
    Some(match column.kind {
        ColumnKind::Fixed { .. } => field.to_vec(),
        ColumnKind::Char { pad, .. } => field[..pad.stripped_len(field)].to_vec(),
        ColumnKind::VarChar { len_bytes, .. } => {
            let n = usize::from(len_bytes);
            field[n..n + length(len_bytes)].to_vec()
        }
        ColumnKind::Blob { len_bytes } => {
            let n = usize::from(len_bytes);
            let address = usize::from_ne_bytes(field[n..].try_into().unwrap());
            let len = length(len_bytes);
            if len == 0 {
                return Some(Vec::new());
            }
            // SAFETY: the decoder wrote the address of `len` bytes there. They are in the caller's
            // `BlobBuf`, which has not been cleared.
            unsafe { std::slice::from_raw_parts(address as *const u8, len) }.to_vec()
        }
    })
}
