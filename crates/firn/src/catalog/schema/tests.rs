use super::*;
use crate::base::ErrorKind;
use crate::base::record_buffer::{NullBit, Pad};
use crate::keycode::{CollationLevel, TextForm};
use crate::rowcode::InstantDefault;
use rand::{Rng, SeedableRng, rngs::StdRng};

#[derive(Debug)]
struct Plain;

impl Collator for Plain {
    fn sort_key(&self, _level: u32, text: &[u8], weights: &mut Vec<u8>) -> usize {
        weights.extend_from_slice(text);
        text.len()
    }

    fn prefix_len(&self, text: &[u8], chars: usize) -> usize {
        chars.min(text.len())
    }

    fn chars(&self, text: &[u8]) -> usize {
        text.len()
    }
}

fn column(id: u32, kind: ColumnKind, offset: u32, null: Option<NullBit>) -> ColumnSchema {
    ColumnSchema {
        name: format!("c{id}"),
        type_code: 3,
        chars: 0,
        interpretation: 7,
        column: Column {
            id,
            kind,
            offset,
            null,
            stored: true,
            instant_default: InstantDefault::Impossible,
        },
    }
}

fn part(column: u32, kind: PartSchema, image_len: u32) -> IndexPart {
    IndexPart {
        column,
        kind,
        desc: false,
        prefix: None,
        image_len,
    }
}

fn text() -> PartSchema {
    let level = CollationLevel {
        number: 0,
        space: 0x20,
        no_pad: false,
    };
    PartSchema::Text(CollationSchema {
        spec: CollationSpec {
            id: 47,
            name: "latin1_bin".into(),
            pad: Pad::SPACE,
            levels: vec![level],
            weight_len: 1,
            simple: Vec::new(),
            form: TextForm::Bytes,
            char_filled: false,
        },
        collator: Some(Arc::new(Plain)),
    })
}

fn schema() -> TableSchema {
    let null = NullBit { offset: 0, mask: 2 };
    let varchar = ColumnKind::VarChar {
        len_bytes: 1,
        max: 9,
    };
    let mut added = column(7, ColumnKind::Blob { len_bytes: 2 }, 15, None);
    added.column.instant_default = InstantDefault::Bytes(b"x".as_slice().into());
    let int = part(0, PartSchema::Int { signed: true }, 4);
    TableSchema {
        version: 2,
        older: std::sync::Arc::default(),
        record_len: 40,
        null_bytes: 1,
        columns: vec![
            column(0, ColumnKind::Fixed { len: 4 }, 1, None),
            column(1, varchar, 5, Some(null)),
            added,
        ],
        indexes: vec![
            IndexSchema {
                name: "PRIMARY".into(),
                unique: true,
                parts: vec![int],
            },
            IndexSchema {
                name: "by_text".into(),
                unique: false,
                parts: vec![part(1, text(), 9)],
            },
        ],
        primary: Some(0),
        auto_increment: Some(0),
        locking: TableLocking::Pessimistic,
    }
}

#[test]
fn definitions_round_trip() {
    let schema = schema();
    schema.check().unwrap();
    let bytes = schema.to_bytes();
    let read = TableSchema::from_bytes(&bytes).unwrap();
    assert_eq!(read.difference(&schema), None);
    assert_eq!(read.to_bytes(), bytes);
    assert_eq!(read.columns, schema.columns);
    assert_eq!(read.version, 2);
}

/// The definition of a table with one column, as format 1 has it.
#[test]
fn format_1_has_no_interpretation() {
    let bytes = [
        &[1, 1, 5, 1, 0, 0, 1][..],
        &[1, b'a', 3, 0, 9, 1, 1, 0, 0, 4, 0],
        &[0],
    ];
    let read = TableSchema::from_bytes(&bytes.concat()).unwrap();
    assert_eq!(
        (read.columns[0].column.id, read.columns[0].interpretation),
        (9, 0)
    );
    let mut given = read.clone();
    given.columns[0].interpretation = 7;
    assert_eq!(read.difference(&given), None);
    assert_eq!(
        TableSchema::from_bytes(&given.to_bytes()).unwrap().columns,
        given.columns
    );
    let newer = [&[4][..], &given.to_bytes()[1..]].concat();
    let error = TableSchema::from_bytes(&newer).unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::Unsupported);
}

/// Definitions without properties are written as before, so that older versions read them.
#[test]
fn properties_round_trip_and_unknown_ones_are_refused() {
    let mut schema = schema();
    let plain = schema.to_bytes();
    assert_eq!(plain[0], 2);
    let read = TableSchema::from_bytes(&plain).unwrap();
    assert_eq!(read.locking, TableLocking::Pessimistic);
    schema.locking = TableLocking::Optimistic;
    let bytes = schema.to_bytes();
    assert_eq!(bytes[0], 3);
    assert_eq!(bytes[1..bytes.len() - 4], plain[1..]);
    assert_eq!(bytes[bytes.len() - 4..], [1, 1, 1, 1]);
    let read = TableSchema::from_bytes(&bytes).unwrap();
    assert_eq!(read.locking, TableLocking::Optimistic);
    assert_eq!(read.to_bytes(), bytes);
    let changed = |tail: [u8; 4]| {
        let bytes = [&bytes[..bytes.len() - 4], &tail].concat();
        TableSchema::from_bytes(&bytes).unwrap_err().kind().clone()
    };
    assert_eq!(changed([1, 9, 1, 1]), ErrorKind::Unsupported);
    assert!(matches!(
        changed([1, 1, 1, 2]),
        ErrorKind::Corruption { .. }
    ));
    assert!(matches!(
        changed([2, 1, 1, 1]),
        ErrorKind::Corruption { .. }
    ));
    let difference = read.difference(&TableSchema::from_bytes(&plain).unwrap());
    assert!(matches!(difference, Some(Difference::Harmless(_))));
}

/// `schema` after an ALTER that adds a column in front, or drops the one at `drop`.
fn altered(schema: &TableSchema, drop: Option<usize>) -> TableSchema {
    let mut new = schema.clone();
    let mut columns: Vec<_> = (0..schema.columns.len()).map(Some).collect();
    match drop {
        Some(at) => {
            new.columns.remove(at);
            columns.remove(at);
        }
        None => {
            let at = schema.columns.len() as u32;
            let mut added = column(at, ColumnKind::Fixed { len: 4 }, 1, None);
            added.column.instant_default = InstantDefault::Bytes([at as u8; 4].into());
            new.columns.insert(2, added);
            columns.insert(2, None);
        }
    }
    let indexes = (0..schema.indexes.len()).map(Some).collect();
    let change = SchemaChange {
        schema: new,
        columns,
        indexes,
    };
    assert_eq!(schema.change_trouble(&change), None);
    schema.changed_to(&change).unwrap()
}

#[test]
fn older_versions_round_trip_in_a_few_bytes() {
    let first = schema();
    let second = altered(&first, None);
    let third = altered(&second, Some(3));
    assert_eq!((second.version, third.version), (3, 4));
    // Ids are never used again.
    let fourth = altered(&altered(&third, Some(2)), None);
    let id = |schema: &TableSchema| schema.columns[2].column.id;
    assert_eq!((id(&second), id(&fourth)), (8, 9));
    let added = (fourth.to_bytes().len() - first.to_bytes().len()) as i64;
    assert!(added < 60, "{added} bytes for four versions");
    for schema in [&second, &third, &fourth] {
        let bytes = schema.to_bytes();
        let read = TableSchema::from_bytes(&bytes).unwrap();
        assert_eq!(
            (&read.older, &read.columns),
            (&schema.older, &schema.columns)
        );
        assert_eq!(read.to_bytes(), bytes);
    }
    // The property: two columns at the beginning, one at the end, none between.
    let bytes = second.to_bytes();
    assert_eq!(bytes[bytes.len() - 8..], [1, 2, 5, 1, 2, 2, 1, 0]);
    let columns: Vec<_> = second.older[0].columns.iter().map(|of| of.id).collect();
    assert_eq!(columns, [0, 1, 7]);
    let truncated = fourth.clone().without_older_versions();
    assert!(truncated.older.is_empty());
    assert!(TableSchema::from_bytes(&truncated.to_bytes()).is_ok());
}

#[test]
fn senseless_older_versions_are_refused() {
    let good = altered(&schema(), None);
    let with = |change: &dyn Fn(&mut Vec<RowVersion>)| {
        let mut changed = good.clone();
        let mut older = changed.older.to_vec();
        change(&mut older);
        changed.older = older.into();
        TableSchema::from_bytes(&changed.to_bytes())
    };
    assert!(with(&|_| {}).is_ok());
    let damaged = [
        with(&|older| older[0].number = 3),
        with(&|older| older.push(older[0].clone())),
        with(&|older| older[0].columns[0].fixed_len = Some(8)),
        with(&|older| older[0].columns[0].fixed_len = None),
        with(&|older| older[0].columns[0].nullable = true),
        // A version without a column that has no default for it.
        with(&|older| older[0].columns = older[0].columns[1..].to_vec()),
        with(&|older| older[0].columns[1].id = 0),
    ];
    for (at, read) in damaged.into_iter().enumerate() {
        assert!(
            read.is_err_and(|error| error.is_corruption()),
            "change {at}"
        );
    }
}

#[test]
fn columns_of_two_definitions_are_matched_by_id() {
    let old = schema();
    let new = altered(&altered(&old, None), Some(3));
    let at = |name: &str| old.column_in(name, &new).map(|of| of.column.id);
    assert_eq!((at("c0"), at("c1"), at("c7")), (Some(0), Some(1), None));
}

#[test]
fn codecs_need_the_collators() {
    let schema = schema();
    assert_eq!(schema.index_codecs().unwrap().len(), 2);
    let read = TableSchema::from_bytes(&schema.to_bytes()).unwrap();
    assert!(read.index_codecs().is_err());
    assert!(read.row_format().is_ok());
}

#[test]
fn differences_are_found() {
    type Change = fn(&mut TableSchema);
    let changes: [Change; 13] = [
        |s| s.columns[0].type_code = 4,
        |s| s.columns[0].column.kind = ColumnKind::Fixed { len: 8 },
        |s| s.columns[0].column.stored = false,
        |s| s.columns[1].column.null = None,
        |s| s.columns.truncate(2),
        |s| s.columns.swap(1, 2),
        |s| s.indexes.truncate(1),
        |s| s.indexes[1].unique = true,
        |s| s.indexes[1].parts[0].desc = true,
        |s| s.indexes[1].parts[0].prefix = Some(3),
        |s| s.indexes[0].parts[0].image_len = 8,
        |s| s.indexes[0].parts[0].kind = PartSchema::Int { signed: false },
        |s| s.primary = None,
    ];
    for (i, change) in changes.iter().enumerate() {
        let mut changed = schema();
        change(&mut changed);
        for (stored, given) in [(&changed, &schema()), (&schema(), &changed)] {
            let difference = stored.difference(given);
            assert!(
                matches!(difference, Some(Difference::Stored(_))),
                "change {i}: {difference:?}"
            );
        }
    }
    let mut renamed = schema();
    renamed.columns[0].name = "other".into();
    renamed.columns[0].column.id = 99;
    assert_eq!(renamed.difference(&schema()), None);
    let mut collated = schema();
    if let PartSchema::Text(collation) = &mut collated.indexes[1].parts[0].kind {
        collation.spec.levels[0].no_pad = true;
    }
    let Some(Difference::Stored(words)) = collated.difference(&schema()) else {
        panic!("other weights, other keys");
    };
    assert!(words.contains("by_text"), "{words}");
}

#[test]
fn what_rows_and_keys_do_not_depend_on_is_harmless() {
    type Change = fn(&mut TableSchema);
    let longer = |s: &mut TableSchema| {
        s.columns[1].column.kind = ColumnKind::VarChar {
            len_bytes: 2,
            max: 300,
        };
        s.indexes[1].parts[0].image_len = 300;
        s.record_len = 400;
        s.columns[2].column.kind = ColumnKind::Blob { len_bytes: 4 };
        s.columns[2].column.offset = 320;
    };
    let changes: [Change; 6] = [
        |s| s.auto_increment = None,
        |s| s.columns[0].interpretation = 8,
        |s| s.record_len += 1,
        |s| s.columns[2].column.offset += 1,
        |s| s.columns[1].column.null = Some(NullBit { offset: 0, mask: 4 }),
        longer,
    ];
    for (i, change) in changes.iter().enumerate() {
        let mut changed = schema();
        change(&mut changed);
        let difference = schema().difference(&changed);
        assert!(
            matches!(difference, Some(Difference::Harmless(_))),
            "change {i}: {difference:?}"
        );
        let same: Vec<_> = (0..schema().indexes.len()).map(Some).collect();
        let change = SchemaChange::of_indexes(changed, same);
        assert_eq!(schema().change_trouble(&change), None);
    }
    // Stored values of the longer column may not fit into the shorter one of the server's
    // definition.
    let mut changed = schema();
    longer(&mut changed);
    assert!(matches!(
        changed.difference(&schema()),
        Some(Difference::Stored(_))
    ));
    let mut virtual_columns = [schema(), schema()];
    virtual_columns[0].columns[2].column.stored = false;
    virtual_columns[1].columns[2].column.stored = false;
    virtual_columns[1].columns[2].type_code = 9;
    let [stored, given] = virtual_columns;
    assert!(matches!(
        stored.difference(&given),
        Some(Difference::Harmless(_))
    ));
}

#[test]
fn senseless_definitions_are_refused() {
    type Change = fn(&mut TableSchema);
    let changes: [Change; 6] = [
        |s| s.columns[0].column.offset = 38,
        |s| s.indexes[0].parts[0].column = 3,
        |s| s.primary = Some(1),
        |s| s.primary = Some(2),
        |s| s.auto_increment = Some(3),
        |s| s.indexes[1].parts[0].kind = PartSchema::Float,
    ];
    for (i, change) in changes.iter().enumerate() {
        let mut changed = schema();
        change(&mut changed);
        assert!(changed.check().is_err(), "change {i}");
    }
}

#[test]
fn damaged_definitions_are_errors() {
    let good = altered(&altered(&schema(), None), None).to_bytes();
    for seed in 0..3000 {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut bytes = good.clone();
        let at = rng.random_range(0..bytes.len());
        bytes[at] ^= 1 << rng.random_range(0..8);
        bytes.truncate(bytes.len() - rng.random_range(0..3));
        // Some damage yields another valid definition; none may panic.
        if let Ok(read) = TableSchema::from_bytes(&bytes) {
            read.check().unwrap();
        }
    }
    assert!(
        TableSchema::from_bytes(&good[..good.len() - 1])
            .unwrap_err()
            .is_corruption()
    );
    assert!(!TableSchema::from_bytes(&[9]).unwrap_err().is_corruption());
}
