//! Key prefix locks: locks of a key's value for a check that precedes a write.

use super::*;
use firn::base::ErrorKind;

fn locking_cursor(world: &World) -> Cursor {
    let mut cursor = Cursor::new(Arc::clone(&world.table));
    let mode = ReadMode::Locking(LockMode::Exclusive);
    cursor.reset(Some(1), mode, LockWait::Wait).unwrap();
    cursor
}

fn insert(world: &World, txn: &mut Transaction, new: (i32, (i32, i32))) -> bool {
    let (flags, mut scratch) = (WriteFlags::default(), RowScratch::default());
    // SAFETY: blob columns must point to their bytes; this table has none.
    match unsafe { world.table.insert(txn, &record(new), flags, &mut scratch) } {
        Ok(WriteOutcome::Done { .. }) => true,
        Err(error) if *error.kind() == ErrorKind::LockTimeout => false,
        other => panic!("{other:?}"),
    }
}

/// Two transactions make the same check before a write: the second waits, and then finds the row of
/// the first. The gap around the value stays open for others.
#[test]
fn the_second_check_of_a_value_waits_for_the_first() {
    for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead] {
        let mut world = World::new(1);
        let mut buffer = [0; RECORD];
        let (seven, eight) = (7_i32.to_le_bytes(), 8_i32.to_le_bytes());
        let (seven, eight) = (KeyImage::image(&seven), KeyImage::image(&eight));
        let mut first = world.begin_at(isolation);
        let mut second = world.begin_at(isolation);
        // Take a snapshot that is older than the row of the first transaction.
        second.pin();

        let mut checks = locking_cursor(&world);
        checks.lock_key_prefix(&first, seven).unwrap();
        assert!(
            !checks
                .seek(&mut first, seven, SeekMode::Exact, &mut buffer)
                .unwrap()
        );
        let mut others = locking_cursor(&world);
        let error = others.lock_key_prefix(&second, seven).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::LockTimeout, "{isolation:?}");
        others.lock_key_prefix(&second, eight).unwrap();
        assert!(
            !others
                .seek(&mut second, eight, SeekMode::Exact, &mut buffer)
                .unwrap()
        );

        let mut beside = world.begin_at(isolation);
        assert!(insert(&world, &mut beside, (1, (6, 0))), "{isolation:?}");
        beside.commit().unwrap();
        assert!(insert(&world, &mut first, (2, (7, 0))), "{isolation:?}");
        first.commit().unwrap();

        let mut others = locking_cursor(&world);
        others.lock_key_prefix(&second, seven).unwrap();
        assert!(
            others
                .seek(&mut second, seven, SeekMode::Exact, &mut buffer)
                .unwrap()
        );
        assert_eq!(row(&buffer), (2, (7, 0)));
        second.rollback().unwrap();
    }
}

/// A guarded scan ends with the guarded value, and waits for no row beyond it.
#[test]
fn a_guarded_scan_ends_with_its_value() {
    let mut world = World::new(1);
    let mut buffer = [0; RECORD];
    let mut holder = world.begin_at(Isolation::RepeatableRead);
    assert!(insert(&world, &mut holder, (1, (8, 0))));
    let mut txn = world.begin_at(Isolation::RepeatableRead);
    let seven = 7_i32.to_le_bytes();
    let seven = KeyImage::image(&seven);
    let mut cursor = locking_cursor(&world);
    // Without the guard the scan waits for the row behind the value.
    let waits = cursor.seek(&mut txn, seven, SeekMode::AtOrAfter, &mut buffer);
    assert_eq!(*waits.unwrap_err().kind(), ErrorKind::LockTimeout);
    let mut cursor = locking_cursor(&world);
    cursor.lock_key_prefix(&txn, seven).unwrap();
    let found = cursor.seek(&mut txn, seven, SeekMode::AtOrAfter, &mut buffer);
    assert!(!found.unwrap());
    txn.rollback().unwrap();
    holder.rollback().unwrap();
}
