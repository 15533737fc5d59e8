use super::table::*;
use crate::keycode::*;
use rand::{Rng, SeedableRng, rngs::StdRng};

struct Entry {
    key: Vec<u8>,
    value: Vec<u8>,
}

fn entry(index: &IndexCodec, primary: &KeyCodec, record: &[u8]) -> Entry {
    let (mut key, mut value) = (Vec::new(), Vec::new());
    // SAFETY: the table has no blob columns, and the record has the table's length.
    unsafe {
        index.encode_record(record, &mut key).unwrap();
        primary.encode_record(record, &mut key).unwrap();
        index.encode_value(record, &mut value).unwrap();
    }
    Entry { key, value }
}

fn random_index(rng: &mut StdRng, table: &Table) -> (IndexCodec, KeyCodec) {
    let all: Vec<usize> = (0..table.columns.len()).collect();
    let primary = table.random_key(rng, &[0, 1], false);
    let declared = table.random_key(rng, &all, true);
    let index = IndexCodec::secondary(table.record_len, declared, Some(primary.clone()));
    (index, primary)
}

#[test]
fn entries_give_covered_columns_back() {
    for seed in 0..500 {
        let mut rng = StdRng::seed_from_u64(seed);
        let table = random_table(&mut rng);
        let (index, primary) = random_index(&mut rng, &table);
        let bits: u8 = rng.random();
        let bitmap = [bits];
        let wanted = [None, Some(&bitmap[..])][rng.random_range(0..2)];
        let plan = index.plan(wanted);
        for _ in 0..8 {
            let record = table.random_record(&mut rng);
            let Entry { key, value } = entry(&index, &primary, &record);
            let before = table.random_record(&mut rng);
            let mut decoded = before.clone();
            plan.decode(&key, &value, &mut decoded).unwrap();
            for (i, column) in table.columns.iter().enumerate() {
                let is_wanted = wanted.is_none() || bits >> i & 1 == 1;
                let source = if index.covers(i as u32) && is_wanted {
                    &record
                } else {
                    &before
                };
                let expected = value_of(column, source);
                assert_eq!(
                    value_of(column, &decoded),
                    expected,
                    "seed {seed} column {i}"
                );
            }
        }
    }
}

#[test]
fn the_primary_key_is_cut_off() {
    for seed in 0..200 {
        let mut rng = StdRng::seed_from_u64(seed);
        let table = random_table(&mut rng);
        let (index, primary) = random_index(&mut rng, &table);
        let record = table.random_record(&mut rng);
        let key = entry(&index, &primary, &record).key;
        let (mut declared, mut row) = (Vec::new(), Vec::new());
        // SAFETY: the table has no blob columns, and the record has the table's length.
        let has_null = unsafe {
            primary.encode_record(&record, &mut row).unwrap();
            index.encode_record(&record, &mut declared).unwrap()
        };
        let at = index.declared_len(&key).unwrap();
        assert_eq!(
            (&key[..at], &key[at..]),
            (&declared[..], &row[..]),
            "seed {seed}"
        );
        let parts = index.declared().parts().len();
        assert_eq!(index.declared().has_null(&key, parts).unwrap(), has_null);
    }
}

#[test]
fn prefixes_do_not_cover() {
    let mut rng = StdRng::seed_from_u64(5);
    for _ in 0..300 {
        let table = random_table(&mut rng);
        let (index, primary) = random_index(&mut rng, &table);
        for i in 0..table.columns.len() as u32 {
            let parts = index.declared().parts().iter().chain(primary.parts());
            let whole = parts.clone().any(|p| p.column == i && p.prefix.is_none());
            assert_eq!(index.covers(i), whole);
        }
    }
}

#[test]
fn damaged_entries_are_errors() {
    for seed in 0..4000 {
        let mut rng = StdRng::seed_from_u64(seed);
        let table = random_table(&mut rng);
        let (index, primary) = random_index(&mut rng, &table);
        let record = table.random_record(&mut rng);
        let Entry { mut key, mut value } = entry(&index, &primary, &record);
        for bytes in [&mut key, &mut value] {
            if rng.random_bool(0.7) && !bytes.is_empty() {
                let at = rng.random_range(0..bytes.len());
                bytes[at] ^= 1 << rng.random_range(0..8);
            }
            bytes.truncate(bytes.len() - rng.random_range(0..2).min(bytes.len()));
        }
        let mut decoded = vec![0; table.record_len as usize];
        if let Err(error) = index.plan(None).decode(&key, &value, &mut decoded) {
            assert!(error.is_corruption(), "seed {seed}");
        }
        if let Err(error) = index.declared_len(&key) {
            assert!(error.is_corruption(), "seed {seed}");
        }
    }
}

#[test]
fn most_entries_have_no_value() {
    use super::kit::*;
    let rules = Rules {
        weight_len: 1,
        levels: 1,
        no_pad: false,
        char_filled: false,
        form: TextForm::Bytes,
        simple: false,
    };
    let kind = PartKind::Text(identity(&rules));
    let text = part(kind, PartSource::VarChar { len_bytes: 1 }, 9);
    let codec = KeyCodec::new(20, vec![text]).unwrap();
    let index = IndexCodec::secondary(20, codec, None);
    let value = |text: &[u8]| {
        let mut record = vec![0; 20];
        record[1] = text.len() as u8;
        record[2..2 + text.len()].copy_from_slice(text);
        let mut value = Vec::new();
        // SAFETY: the index has no blob columns, and the record is long enough for its parts.
        unsafe { index.encode_value(&record, &mut value) }.unwrap();
        value
    };
    assert_eq!(value(b"abc"), b"");
    assert_eq!(value(b"abc  "), [2]);
}
