use super::kit::*;
use crate::base::Value;
use crate::base::blob_buf::BlobBuf;
use crate::rowcode::*;
use rand::{Rng, SeedableRng, rngs::StdRng};

struct Case {
    format: RowFormat,
    fields: Vec<Field>,
    head: Vec<u8>,
    tail: Vec<u8>,
}

fn random_case(rng: &mut StdRng) -> Case {
    let count = rng.random_range(1..14);
    let mut columns = random_columns(rng, count);
    let record_len = place(rng, &mut columns);
    let version = [1, 127, 128, 70000][rng.random_range(0..4)];
    let fields: Vec<Field> = columns.iter().map(|c| random_field(rng, c)).collect();
    let mut record: Vec<u8> = (0..record_len).map(|_| rng.random()).collect();
    fill(&columns, &fields, &mut record);
    let format = RowFormat::single(RowLayout::new(version, record_len, columns).unwrap());
    let (mut head, mut tail) = (Vec::new(), Vec::new());
    // SAFETY: the blob pointers in the record point into `fields`, which outlives the call.
    unsafe { format.encode(&record, &mut head, &mut tail) }.unwrap();
    Case {
        format,
        fields,
        head,
        tail,
    }
}

#[test]
fn rows_round_trip_through_any_column_set() {
    for seed in 0..600 {
        let mut rng = StdRng::seed_from_u64(seed);
        let case = random_case(&mut rng);
        let layout = case.format.current();
        let bits: [u8; 2] = rng.random();
        let wanted = [None, Some(&bits[..])][rng.random_range(0..2)];
        let plan = case.format.plan(wanted);
        let before: Vec<u8> = (0..layout.record_len()).map(|_| rng.random()).collect();
        let mut record = before.clone();
        let mut blobs = BlobBuf::new();
        plan.decode(
            Value::split(&case.head, &case.tail),
            &mut record,
            &mut blobs,
        )
        .unwrap();
        for (i, (column, field)) in layout.columns().iter().zip(&case.fields).enumerate() {
            let is_wanted = wanted.is_none_or(|b| b[i / 8] >> (i % 8) & 1 == 1);
            if column.stored && is_wanted {
                assert_eq!(&read(column, &record), field, "seed {seed} column {i}");
            } else {
                let at = column.offset as usize;
                let range = at..at + column.kind.record_len() as usize;
                assert_eq!(
                    record[range.clone()],
                    before[range],
                    "seed {seed} column {i}"
                );
            }
        }
    }
}

#[test]
fn records_are_the_same_where_they_are_stored_alike() {
    let (mut same, mut others) = (0, 0);
    for seed in 0..2000 {
        let mut rng = StdRng::seed_from_u64(seed);
        let case = random_case(&mut rng);
        let layout = case.format.current();
        let mut fields = case.fields.clone();
        if rng.random() {
            let number = rng.random_range(0..fields.len());
            fields[number] = random_field(&mut rng, &layout.columns()[number]);
        }
        let record = |rng: &mut StdRng, fields: &[Field]| {
            let mut record: Vec<u8> = (0..layout.record_len()).map(|_| rng.random()).collect();
            fill(layout.columns(), fields, &mut record);
            record
        };
        let (a, b) = (record(&mut rng, &case.fields), record(&mut rng, &fields));
        let ids = layout.columns().iter().map(|column| column.id);
        let left_out: Vec<u32> = ids.filter(|_| rng.random_bool(0.2)).collect();
        let stored = |record: &[u8]| {
            let (mut head, mut tail) = (Vec::new(), Vec::new());
            // SAFETY: the blob pointers in the records point into `case.fields` and `fields`, which
            // outlive the call.
            unsafe { layout.encode_without(record, &left_out, &mut head, &mut tail) }.unwrap();
            (head, tail)
        };
        // SAFETY: the blob pointers in the records point into `case.fields` and `fields`, which
        // outlive the call.
        let is_same = unsafe { layout.is_same(&a, &b, &left_out) }.unwrap();
        assert_eq!(is_same, stored(&a) == stored(&b), "seed {seed}");
        *[&mut others, &mut same][usize::from(is_same)] += 1;
    }
    assert!(same > 400 && others > 400, "{same} same, {others} others");
}

#[test]
fn null_columns_leave_no_trace_of_the_record() {
    for seed in 0..200 {
        let mut rng = StdRng::seed_from_u64(seed);
        let case = random_case(&mut rng);
        let layout = case.format.current();
        let mut record: Vec<u8> = (0..layout.record_len()).map(|_| rng.random()).collect();
        fill(layout.columns(), &case.fields, &mut record);
        let (mut head, mut tail) = (Vec::new(), Vec::new());
        // SAFETY: the blob pointers in the record point into `case.fields`, which outlives the
        // call.
        unsafe { layout.encode(&record, &mut head, &mut tail) }.unwrap();
        assert_eq!((head, tail), (case.head, case.tail), "seed {seed}");
    }
}

#[test]
fn the_parts_are_found_without_a_schema() {
    for seed in 0..200 {
        let case = random_case(&mut StdRng::seed_from_u64(seed));
        let (mut lengths, bytes) = split_tail(&case.tail).unwrap();
        let mut total = 0;
        while !lengths.is_empty() {
            total += crate::base::varint::take_u64(&mut lengths).unwrap() as usize;
        }
        assert_eq!(total, bytes.len(), "seed {seed}");
    }
}

#[test]
fn damaged_rows_are_errors() {
    for seed in 0..4000 {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut case = random_case(&mut rng);
        for part in [&mut case.head, &mut case.tail] {
            if rng.random_bool(0.7) && !part.is_empty() {
                let at = rng.random_range(0..part.len());
                part[at] ^= 1 << rng.random_range(0..8);
            }
            part.truncate(part.len() - rng.random_range(0..2).min(part.len()));
        }
        let mut record = vec![0; case.format.current().record_len()];
        let value = Value::split(&case.head, &case.tail);
        let result = case
            .format
            .plan(None)
            .decode(value, &mut record, &mut BlobBuf::new());
        if let Err(error) = result {
            assert!(error.is_corruption(), "seed {seed}");
        }
    }
}

#[test]
fn adjacent_fixed_columns_are_copied_at_once() {
    let column = |id: u32, offset: u32| Column {
        id,
        kind: ColumnKind::Fixed { len: 4 },
        offset,
        null: None,
        stored: true,
        instant_default: InstantDefault::Impossible,
    };
    let columns = vec![column(0, 1), column(1, 5), column(2, 10)];
    let format = RowFormat::single(RowLayout::new(1, 14, columns).unwrap());
    let plan = format!("{:?}", format.plan(None));
    assert_eq!(plan.matches("CopyRange {").count(), 2, "{plan}");
}

#[test]
fn bad_layouts_are_refused() {
    let column = Column {
        id: 0,
        kind: ColumnKind::VarChar {
            len_bytes: 1,
            max: 256,
        },
        offset: 0,
        null: None,
        stored: true,
        instant_default: InstantDefault::Impossible,
    };
    assert!(RowLayout::new(1, 300, vec![column.clone()]).is_err());
    let good = Column {
        kind: ColumnKind::Fixed { len: 4 },
        ..column
    };
    assert!(RowLayout::new(1, 3, vec![good.clone()]).is_err());
    assert!(RowLayout::new(1, 4, vec![good.clone(), good.clone()]).is_err());
    assert!(RowLayout::new(1, 4, vec![good]).is_ok());
}
