//! A table whose values may go out of line, and the conversion of its rows to records.

use crate::schema::{column, int_index};
use firn::catalog::{ColumnSchema, TableLocking, TableSchema};
use firn::rowcode::{Column, ColumnKind, NullBit};
use firn::table::PartialColumn;
use std::collections::BTreeMap;

pub const VARCHAR_MAX: usize = 3000;
pub const THRESHOLD: u64 = 1000;
pub const N_AT: usize = 5;
pub const T_AT: usize = 9;
pub const B_AT: usize = T_AT + 2 + VARCHAR_MAX;
pub const C_AT: usize = B_AT + 12;
pub const RECORD: usize = C_AT + 11;
pub const NULL: NullBit = NullBit { offset: 0, mask: 2 };

/// The schema `id INT PRIMARY KEY, n INT, t VARCHAR(3000), b LONGBLOB, c MEDIUMTEXT NULL, KEY (n)`.
pub fn schema() -> TableSchema {
    let varchar = ColumnKind::VarChar {
        len_bytes: 2,
        max: VARCHAR_MAX as u32,
    };
    let columns = [
        ("id", 1, ColumnKind::Fixed { len: 4 }, None),
        ("n", N_AT, ColumnKind::Fixed { len: 4 }, None),
        ("t", T_AT, varchar, None),
        ("b", B_AT, ColumnKind::Blob { len_bytes: 4 }, None),
        ("c", C_AT, ColumnKind::Blob { len_bytes: 3 }, Some(NULL)),
    ];
    let columns = columns.into_iter().zip(1..);
    let columns = columns.map(|((name, offset, kind, null), id)| {
        let plain = column(id, name, kind, offset);
        let column = Column {
            null,
            ..plain.column
        };
        ColumnSchema { column, ..plain }
    });
    TableSchema {
        version: 1,
        older: std::sync::Arc::default(),
        record_len: RECORD as u32,
        null_bytes: 1,
        columns: columns.collect(),
        indexes: vec![int_index("PRIMARY", true, 0), int_index("n", false, 1)],
        primary: Some(0),
        auto_increment: None,
        locking: TableLocking::Pessimistic,
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Row {
    pub n: i32,
    pub t: Vec<u8>,
    pub b: Vec<u8>,
    pub c: Option<Vec<u8>>,
}

pub type Rows = BTreeMap<i32, Row>;

/// The record of a row. Its blob columns point into `row`, which must outlive their use.
pub fn record(id: i32, row: &Row) -> Vec<u8> {
    let mut record = vec![0; RECORD];
    record[1..5].copy_from_slice(&id.to_le_bytes());
    record[N_AT..T_AT].copy_from_slice(&row.n.to_le_bytes());
    record[T_AT..T_AT + 2].copy_from_slice(&(row.t.len() as u16).to_le_bytes());
    record[T_AT + 2..T_AT + 2 + row.t.len()].copy_from_slice(&row.t);
    let point = |record: &mut [u8], at: usize, len_bytes: usize, bytes: &[u8]| {
        let len = (bytes.len() as u32).to_le_bytes();
        record[at..at + len_bytes].copy_from_slice(&len[..len_bytes]);
        let address = bytes.as_ptr() as usize;
        record[at + len_bytes..at + len_bytes + 8].copy_from_slice(&address.to_ne_bytes());
    };
    point(&mut record, B_AT, 4, &row.b);
    match &row.c {
        Some(c) => point(&mut record, C_AT, 3, c),
        None => NULL.set(&mut record, true),
    }
    record
}

/// The id of a record, and its columns whose bits are set in `wanted`; the others have default
/// values.
pub fn row_of(record: &[u8], wanted: u8) -> (i32, Row) {
    let number = |at: usize| i32::from_le_bytes(record[at..at + 4].try_into().unwrap());
    let blob = |at: usize, len_bytes: usize| {
        let mut len = [0; 4];
        len[..len_bytes].copy_from_slice(&record[at..at + len_bytes]);
        let len = u32::from_le_bytes(len) as usize;
        let address = record[at + len_bytes..at + len_bytes + 8]
            .try_into()
            .unwrap();
        let address = usize::from_ne_bytes(address);
        match len {
            0 => Vec::new(),
            // SAFETY: the callers pass a record that a cursor has filled, and do not move the
            // cursor before this returns, so the address is that of `len` bytes in its buffer.
            _ => unsafe { std::slice::from_raw_parts(address as *const u8, len) }.to_vec(),
        }
    };
    let mut row = Row::default();
    if wanted & 2 != 0 {
        row.n = number(N_AT);
    }
    if wanted & 4 != 0 {
        let len = u16::from_le_bytes([record[T_AT], record[T_AT + 1]]) as usize;
        row.t = record[T_AT + 2..T_AT + 2 + len].to_vec();
    }
    if wanted & 8 != 0 {
        row.b = blob(B_AT, 4);
    }
    if wanted & 16 != 0 && !NULL.is_set(record) {
        row.c = Some(blob(C_AT, 3));
    }
    (number(1), row)
}

pub fn masked(row: &Row, wanted: u8) -> Row {
    let mut row = row.clone();
    if wanted & 2 == 0 {
        row.n = 0;
    }
    if wanted & 4 == 0 {
        row.t.clear();
    }
    if wanted & 8 == 0 {
        row.b.clear();
    }
    if wanted & 16 == 0 {
        row.c = None;
    }
    row
}

/// The row as a reader with `parts` gets it: out-of-line values are cut or filled with zeros after
/// the prefix.
pub fn in_parts(row: &Row, parts: &[PartialColumn]) -> Row {
    let mut row = row.clone();
    for part in parts {
        let value = match part.column {
            2 => &mut row.t,
            3 => &mut row.b,
            _ => match &mut row.c {
                Some(c) => c,
                None => continue,
            },
        };
        let (len, prefix) = (value.len(), part.prefix as usize);
        if len < THRESHOLD as usize || prefix >= len {
            continue;
        }
        match part.length {
            false => value.truncate(prefix),
            // A VARCHAR fits into one chunk, which is read as a whole.
            true if prefix > 0 && part.column == 2 => {}
            true => value[prefix..].fill(0),
        }
    }
    row
}
