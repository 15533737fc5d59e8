//! Decodes the contents of WAL records and blocks: batches, table entries, table definitions, rows,
//! catalog entries, encryption envelopes. Each decoder must return a value or an error, never
//! panic; accepted input must decode again after it is encoded.
//!
//! The first byte of the input selects the decoder.

use firn::base::blob_buf::BlobBuf;
use firn::base::encryption_envelope::EncryptedUnit;
use firn::base::{ErrorKind, Kind, Value};
use firn::catalog::{CatalogState, TableEntry, TableLocking, TableSchema};
use firn::rowcode::{
    Column, ColumnKind, InstantDefault, NullBit, RowFormat, RowLayout, RowVersion, StoredColumn,
};
use firn::write::Batch;

/// Runs one input.
pub fn run(data: &[u8]) {
    let Some((mode, rest)) = data.split_first() else {
        return;
    };
    match mode % 6 {
        0 => run_batch(rest),
        1 => {
            if let Ok(entry) = TableEntry::decode("d/t", 9, rest) {
                let again = TableEntry::decode("d/t", 9, &entry.encode(&[]));
                assert_eq!(
                    again.expect("what was accepted once").index_ids(),
                    entry.index_ids()
                );
            }
        }
        2 => {
            if let Ok(schema) = TableSchema::from_bytes(rest) {
                let again = TableSchema::from_bytes(&schema.to_bytes());
                let again = again.expect("what was accepted once");
                assert_eq!(schema.difference(&again), None);
            }
        }
        3 => run_row(rest),
        4 => run_catalog(rest),
        _ => run_envelope(rest),
    }
}

/// The input is the length of a catalog key (one byte), the key without its index id, and the
/// entry's value.
fn run_catalog(bytes: &[u8]) {
    let Some((&split, bytes)) = bytes.split_first() else {
        return;
    };
    let (key, value) = bytes.split_at(bytes.len().min(usize::from(split)));
    let mut known = CatalogState::default();
    match known.add(key, 9, value) {
        Ok(()) => {
            let entries = known.tables.len() + known.retired.len();
            assert_eq!(entries + known.objects.len() + known.partitionings.len(), 1);
        }
        Err(error) => {
            let refused = error.is_corruption() || error.kind() == &ErrorKind::Unsupported;
            assert!(refused, "{error}");
        }
    }
}

fn run_envelope(bytes: &[u8]) {
    if let Some(sealed) = EncryptedUnit::take(bytes) {
        let mut again = Vec::new();
        sealed.put(&mut again);
        assert_eq!(again, bytes);
    }
}

fn run_batch(bytes: &[u8]) {
    let Ok(batch) = Batch::from_bytes(bytes.to_vec()) else {
        return;
    };
    let mut copy = Batch::new();
    let read = batch.for_each(|entry| copy.add(entry.user_key, entry.kind, entry.value));
    read.expect("what was accepted once");
    assert_eq!(copy.count(), batch.count());
}

fn run_row(bytes: &[u8]) {
    let Some((&split, bytes)) = bytes.split_first() else {
        return;
    };
    let (head, tail) = bytes.split_at(bytes.len().min(usize::from(split)));
    let mut record = vec![0; RECORD_LEN as usize];
    // The result does not matter: decoding must not panic.
    let _ = format()
        .plan(None)
        .decode(Value::split(head, tail), &mut record, &mut BlobBuf::new());
}

const RECORD_LEN: u32 = 40;

fn format() -> RowFormat {
    let column = |id, kind, offset, mask| Column {
        id,
        kind,
        offset,
        null: Some(NullBit { offset: 0, mask }),
        stored: true,
        instant_default: InstantDefault::Impossible,
    };
    let columns = vec![
        column(0, ColumnKind::Fixed { len: 4 }, 1, 1),
        column(
            1,
            ColumnKind::VarChar {
                len_bytes: 1,
                max: 20,
            },
            5,
            2,
        ),
        column(2, ColumnKind::Blob { len_bytes: 2 }, 26, 4),
    ];
    RowFormat::single(RowLayout::new(1, RECORD_LEN, columns).expect("a good layout"))
}

/// A version whose rows stored these columns, which are gone.
fn version(number: u32, ids: &[u32]) -> RowVersion {
    let column = |&id| StoredColumn {
        id,
        fixed_len: (id > 5).then_some(4),
        nullable: true,
    };
    RowVersion {
        number,
        columns: ids.iter().map(column).collect(),
    }
}

/// Initial inputs: valid ones for each decoder.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut batch = Batch::new();
    batch.add(b"\0\0\0\x07key", Kind::Put, Value::split(b"head", b"tail"));
    batch.add(b"\0\0\0\x07other", Kind::Delete, Value::EMPTY);
    let schema = TableSchema {
        version: 1,
        older: std::sync::Arc::default(),
        record_len: 8,
        null_bytes: 1,
        columns: Vec::new(),
        indexes: Vec::new(),
        primary: None,
        auto_increment: None,
        locking: TableLocking::Pessimistic,
    };
    let index = firn::catalog::IndexEntry { id: 7, created: 3 };
    let entry = TableEntry {
        name: "d/t".to_owned(),
        schema: schema.clone(),
        indexes: Vec::new(),
        clustered: index,
        frm: vec![1; 50],
        version: vec![2; 16],
        created_micros: 1,
        foreign_keys: Vec::new(),
        original: None,
    };
    let copy = TableEntry {
        original: Some("d/t".to_owned()),
        ..entry.clone()
    };
    let changed = TableSchema {
        version: 3,
        older: vec![version(2, &[4, 7]), version(1, &[4])].into(),
        ..schema.clone()
    };
    let mut record = vec![0; RECORD_LEN as usize];
    record[5..9].copy_from_slice(b"\x03abc");
    let (mut head, mut tail) = (Vec::new(), Vec::new());
    // SAFETY: blob columns must point to their bytes; the only one has length 0 in this record.
    unsafe { format().encode(&record, &mut head, &mut tail) }.expect("a good record");
    let row = [&[head.len() as u8][..], &head, &tail].concat();
    let of = |mode: u8, bytes: &[u8]| [&[mode][..], bytes].concat();
    vec![
        of(0, batch.as_bytes()),
        of(1, &entry.encode(&[])),
        of(1, &copy.encode(&[])),
        of(2, &schema.to_bytes()),
        of(2, &changed.to_bytes()),
        of(3, &row),
        of(4, b"\x05\x03\x04d/v\x01image"),
        of(4, b"\x04\x04d/t\x01par"),
        of(4, b"\x05\x02\0\0\0\x07"),
        of(5, &[7; 40]),
    ]
}
