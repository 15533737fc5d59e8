use super::kit::*;
use crate::base::Value;
use crate::base::blob_buf::BlobBuf;
use crate::rowcode::*;
use rand::{Rng, SeedableRng, rngs::StdRng, seq::SliceRandom};

fn default_of(rng: &mut StdRng, column: &Column) -> InstantDefault {
    match random_field(rng, column) {
        None => InstantDefault::Null,
        Some(bytes) => InstantDefault::Bytes(bytes.into()),
    }
}

/// A newer version of the columns: drops, adds and reorders columns, changes nullability and widens
/// columns, as instant ALTER TABLE does.
fn altered(rng: &mut StdRng, old: &[Column], next_id: &mut u32) -> Vec<Column> {
    let mut columns: Vec<Column> = old.to_vec();
    if columns.len() > 1 && rng.random_bool(0.5) {
        columns.remove(rng.random_range(0..columns.len()));
    }
    for column in &mut columns {
        if rng.random_bool(0.2) {
            column.null.get_or_insert(NullBit { offset: 0, mask: 0 });
        }
        if let ColumnKind::VarChar { max, .. } = column.kind
            && rng.random_bool(0.5)
        {
            column.kind = ColumnKind::VarChar {
                len_bytes: 2,
                max: max + 100,
            };
        }
    }
    for mut column in random_columns(rng, 2) {
        column.id = *next_id;
        *next_id += 1;
        column.instant_default = default_of(rng, &column);
        columns.push(column);
    }
    columns.shuffle(rng);
    columns
}

#[test]
fn old_rows_read_as_the_newest_version() {
    for seed in 0..400 {
        let mut rng = StdRng::seed_from_u64(seed);
        let first = rng.random_range(1..6);
        let mut next_id = first as u32;
        let mut generations = vec![random_columns(&mut rng, first)];
        for _ in 0..rng.random_range(1..4) {
            let next = altered(&mut rng, generations.last().unwrap(), &mut next_id);
            generations.push(next);
        }
        let mut layouts = Vec::new();
        for (version, columns) in generations.iter_mut().enumerate() {
            let len = place(&mut rng, columns);
            layouts.push(RowLayout::new(version as u32, len, columns.clone()).unwrap());
        }
        let current = layouts.last().unwrap().clone();
        let older = layouts[..layouts.len() - 1].iter().rev();
        let older = older.map(RowLayout::row_version).collect();
        let format = RowFormat::new(current.clone(), older).unwrap();
        let plan = format.plan(None);
        for layout in &layouts {
            let fields: Vec<Field> = layout
                .columns()
                .iter()
                .map(|c| random_field(&mut rng, c))
                .collect();
            let mut record = vec![0xa5; layout.record_len()];
            fill(layout.columns(), &fields, &mut record);
            let (mut head, mut tail) = (Vec::new(), Vec::new());
            // SAFETY: the blob pointers in the record point into `fields`, which outlives the call.
            unsafe { layout.encode(&record, &mut head, &mut tail) }.unwrap();
            let mut decoded = vec![0x5a; current.record_len()];
            let mut blobs = BlobBuf::new();
            plan.decode(Value::split(&head, &tail), &mut decoded, &mut blobs)
                .unwrap();
            for column in current.columns().iter().filter(|c| c.stored) {
                let at = layout.columns().iter().position(|c| c.id == column.id);
                let expected = match (at, &column.instant_default) {
                    (Some(at), _) => fields[at].clone(),
                    (None, InstantDefault::Bytes(bytes)) => Some(bytes.to_vec()),
                    (None, _) => None,
                };
                let version = layout.version();
                assert_eq!(
                    read(column, &decoded),
                    expected,
                    "seed {seed} version {version}"
                );
            }
        }
    }
}

fn fixed(id: u32, len: u32, instant_default: InstantDefault) -> Column {
    Column {
        id,
        kind: ColumnKind::Fixed { len },
        offset: 1,
        null: None,
        stored: true,
        instant_default,
    }
}

#[test]
fn versions_that_cannot_be_read_are_refused() {
    let layout = |version, column| RowLayout::new(version, 16, vec![column]).unwrap();
    let old = layout(1, fixed(1, 4, InstantDefault::Impossible));
    let refused = |new: Column| {
        let older = [old.row_version()].into();
        RowFormat::new(layout(2, new), older).is_err()
    };
    assert!(refused(fixed(1, 8, InstantDefault::Impossible)));
    assert!(refused(fixed(2, 4, InstantDefault::Impossible)));
    assert!(refused(fixed(2, 4, InstantDefault::Null)));
    assert!(refused(fixed(2, 4, InstantDefault::Bytes([1, 2].into()))));
    assert!(!refused(fixed(
        2,
        4,
        InstantDefault::Bytes([1, 2, 3, 4].into())
    )));
    assert!(RowFormat::new(old.clone(), [old.row_version()].into()).is_err());
}
