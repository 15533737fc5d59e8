use super::*;

fn counts(n: u64) -> IndexCounts {
    IndexCounts {
        entries: n,
        deletes: n / 3,
        raw_bytes: 10 * n,
        blob_bytes: n % 2,
    }
}

/// Commits to ten thousand tables with two indexes each share no mutex.
#[test]
fn very_many_indexes_need_no_mutex() {
    const INDEXES: u32 = 20_000;
    let table = IndexCountTable::new();
    assert_eq!(table.of(7), IndexCounts::default());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (1..=INDEXES).for_each(|index| table.add(index, counts(index.into()))));
        }
    });
    assert!(table.overflow.lock().is_empty());
    let right = |index: u32| {
        let mut sum = IndexCounts::default();
        (0..4).for_each(|_| sum.add(counts(index.into())));
        sum
    };
    for index in 1..=INDEXES {
        assert_eq!(table.of(index), right(index));
    }
    assert_eq!(table.of(INDEXES + 1), IndexCounts::default());
    let all = table.all();
    assert!(all.iter().map(|(index, _)| *index).eq(1..=INDEXES));
    assert!(all.iter().all(|(index, found)| *found == right(*index)));
}

#[test]
fn tables_come_with_the_indexes_that_need_them() {
    let table = IndexCountTable::new();
    let made = || table.tables.iter().filter(|t| t.get().is_some()).count();
    (1..=20).for_each(|index| table.add(index, counts(1)));
    assert_eq!(made(), 1);
    (1..=1000).for_each(|index| table.add(index, counts(1)));
    assert!((2..=3).contains(&made()), "{}", made());
}

/// Indexes that find no slot in any table are counted in the map.
#[test]
fn indexes_without_a_slot_are_counted() {
    let table = IndexCountTable::new();
    // Their hashes agree in all bits that choose a slot.
    let multiplier: u32 = 0x9e37_79b1;
    let mut inverse: u32 = 1;
    for _ in 0..5 {
        inverse = inverse.wrapping_mul(2u32.wrapping_sub(multiplier.wrapping_mul(inverse)));
    }
    let same = (1..=100u32).map(|low| low.wrapping_mul(inverse));
    let same: Vec<u32> = same.collect();
    for index in &same {
        table.add(*index, counts(5));
        table.add(*index, counts(2));
    }
    let in_tables = TABLES * PROBES;
    assert_eq!(table.overflow.lock().len(), same.len() - in_tables);
    for index in &same {
        let mut sum = counts(5);
        sum.add(counts(2));
        assert_eq!(table.of(*index), sum);
    }
    assert_eq!(table.all().len(), same.len());
}
