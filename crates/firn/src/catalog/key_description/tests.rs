use super::super::schema::{ColumnSchema, IndexPart, IndexSchema, TableLocking, TableSchema};
use super::super::table_entry::IndexEntry;
use super::*;
use crate::base::key::index_prefix;
use crate::base::record_buffer::NullBit;
use crate::rowcode::{Column, ColumnKind, InstantDefault};
use std::sync::Arc;

fn column(id: u32, name: &str, len: u32, null: Option<NullBit>) -> ColumnSchema {
    ColumnSchema {
        name: name.to_owned(),
        type_code: 3,
        chars: 0,
        interpretation: 0,
        column: Column {
            id,
            kind: ColumnKind::Fixed { len },
            offset: 1,
            null,
            stored: true,
            instant_default: InstantDefault::Impossible,
        },
    }
}

fn index(name: &str, parts: &[(u32, PartSchema, bool, u32)]) -> IndexSchema {
    let parts = parts
        .iter()
        .map(|(column, kind, desc, image_len)| IndexPart {
            column: *column,
            kind: kind.clone(),
            desc: *desc,
            prefix: None,
            image_len: *image_len,
        });
    IndexSchema {
        name: name.to_owned(),
        unique: false,
        parts: parts.collect(),
    }
}

/// d/t: id INT, k SMALLINT UNSIGNED NULL, c BINARY(2), b VARBINARY(4); PRIMARY (id), KEY k (k
/// DESC, c, b). d/h has a hidden clustered index.
fn known() -> CatalogState {
    let null = NullBit { offset: 0, mask: 1 };
    let signed = PartSchema::Int { signed: true };
    let unsigned = PartSchema::Int { signed: false };
    let schema = TableSchema {
        version: 1,
        older: std::sync::Arc::default(),
        record_len: 9,
        null_bytes: 1,
        columns: vec![
            column(1, "id", 4, None),
            column(2, "k", 2, Some(null)),
            column(5, "c", 2, None),
            ColumnSchema {
                column: Column {
                    kind: ColumnKind::VarChar {
                        len_bytes: 1,
                        max: 4,
                    },
                    ..column(6, "b", 5, None).column
                },
                ..column(6, "b", 5, None)
            },
        ],
        indexes: vec![
            index("PRIMARY", &[(0, signed, false, 4)]),
            index(
                "k",
                &[
                    (1, unsigned, true, 2),
                    (2, PartSchema::Fixed, false, 2),
                    (3, PartSchema::VarBytes, false, 4),
                ],
            ),
        ],
        primary: Some(0),
        auto_increment: None,
        locking: TableLocking::Pessimistic,
    };
    let ids = |id| IndexEntry { id, created: 0 };
    let table = TableEntry {
        name: "d/t".to_owned(),
        indexes: vec![ids(7), ids(8)],
        clustered: ids(7),
        schema,
        frm: Vec::new(),
        version: Vec::new(),
        created_micros: 0,
        foreign_keys: Vec::new(),
        original: None,
    };
    let hidden = TableEntry {
        name: "d/h".to_owned(),
        indexes: Vec::new(),
        clustered: ids(9),
        schema: TableSchema {
            indexes: Vec::new(),
            primary: None,
            ..table.schema.clone()
        },
        ..table.clone()
    };
    let mut known = CatalogState {
        retired: [(10, 5)].into(),
        ..CatalogState::default()
    };
    for table in [table, hidden] {
        known.put_table(Arc::new(table));
    }
    known
}

fn text(id: IndexId, rest: &[u8]) -> String {
    known().entry_text(&[&index_prefix(id)[..], rest].concat())
}

#[test]
fn entries_are_named_by_table_index_and_integers() {
    for (rest, what) in [
        (&[0x80, 0, 0, 7][..], "d/t.PRIMARY (id = 7)"),
        (&[0x7f, 0xff, 0xff, 0xff], "d/t.PRIMARY (id = -1)"),
        (&[0, 0, 0, 0], "d/t.PRIMARY (id = -2147483648)"),
        (&[0xff, 0xff, 0xff, 0xff], "d/t.PRIMARY (id = 2147483647)"),
        // A separator key may end anywhere.
        (&[0x80, 0], "d/t.PRIMARY (0x8000)"),
        (&[], "d/t.PRIMARY"),
    ] {
        assert_eq!(text(7, rest), what);
    }
    // The bytes of the first part are inverted, because it is descending; those of the parts behind
    // it are not.
    let descending = [&[0xfe, 0xff, 0xfa, 0x61, 0x62][..], b"de\0"].concat();
    assert_eq!(text(8, &descending), "d/t.k (k = 5, c = 0x6162, b = 'de')");
    // Append the row's key, and for `next` one more byte: the result is the smallest key above the
    // entry.
    let whole = [&descending[..], &[0x80, 0, 0, 7]].concat();
    assert_eq!(
        text(8, &whole),
        "d/t.k (k = 5, c = 0x6162, b = 'de', id = 7)"
    );
    let next = [&whole[..], &[0]].concat();
    assert_eq!(
        text(8, &next),
        "d/t.k (k = 5, c = 0x6162, b = 'de', id = 7, 0x00)"
    );
    let unprintable = [0xfe, 0xff, 0xfa, 0x61, 0x62, 0x61, 0xe4, 0];
    assert_eq!(
        text(8, &unprintable),
        "d/t.k (k = 5, c = 0x6162, b = 0x61e400)"
    );
    assert_eq!(text(8, &[0xff, 0x61]), "d/t.k (k = NULL, 0x61)");
    assert_eq!(text(9, &300u64.to_be_bytes()), "d/h (hidden row 300)");
    assert_eq!(text(10, &[1]), "dropped index 10 (0x01)");
    assert_eq!(text(11, &[1]), "index 11 (0x01)");
    assert_eq!(text(0, b"\x01d"), "the catalog (0x0164)");
    assert_eq!(known().entry_text(b"\x01"), "0x01");
    assert_eq!(known().column_text(7, 5), "c");
    assert_eq!(known().column_text(7, 9), "number 9");
}
