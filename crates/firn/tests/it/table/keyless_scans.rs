//! Gliding: moves of a scan that leave the key of the row behind until something asks for it.

use super::*;

/// Whether a move glided, and whether it found a row.
fn next(cursor: &mut Cursor, txn: &mut Transaction, record: &mut [u8]) -> (bool, bool) {
    if cursor.can_skip_keys() {
        cursor.next_without_key(record).unwrap();
        return (true, true);
    }
    (false, cursor.next(txn, record).unwrap())
}

/// A world of `count` rows in one run of files: id 2n has k = n.
fn packed(seed: u64, count: i32) -> World {
    let mut world = World::new(seed);
    let mut txn = world.session();
    let (flags, mut scratch) = (WriteFlags::default(), RowScratch::default());
    for n in 0..count {
        let fresh = record((2 * n, (n, world.rng.random())));
        // SAFETY: blob columns must point to their bytes; this table has none.
        unsafe { world.table.insert(&mut txn, &fresh, flags, &mut scratch) }.unwrap();
        world.rows.insert(2 * n, row(&fresh).1);
    }
    txn.commit().unwrap();
    world.db.compact_all().unwrap();
    world
}

/// Each move after a glide starts from the row that the glide has read.
#[test]
fn any_move_may_follow_a_glide() {
    const ROWS: i32 = 3000;
    let mut glides = 0;
    for seed in 0..6 {
        let mut world = packed(seed, ROWS);
        let rows: Vec<_> = world.rows.iter().map(|(&id, &rest)| (id, rest)).collect();
        let mut txn = world.session();
        let mut cursor = Cursor::new(Arc::clone(&world.table));
        let mut buffer = [0; RECORD];
        cursor
            .reset(Some(0), ReadMode::Snapshot, LockWait::Fail)
            .unwrap();
        let mut at: Option<usize> = None;
        for step in 0..4000 {
            let (what, expected, on) = match (world.rng.random_range(0..40), at) {
                (0, _) => ("first", Some(0), cursor.first(&mut txn, &mut buffer)),
                (1, _) => {
                    let last = rows.len().checked_sub(1);
                    ("last", last, cursor.last(&mut txn, &mut buffer))
                }
                (2, _) | (3, None) => {
                    let id = world.rng.random_range(-5..2 * ROWS + 5);
                    let end = world.rng.random_bool(0.5).then_some(id + 400);
                    let image = end.map(i32::to_le_bytes);
                    let end = image.as_ref().map(|image| KeyImage::image(image));
                    cursor.set_end_range(end, true).unwrap();
                    // The model has no bounds, so the bound goes again before the seek.
                    cursor.set_end_range(None, true).unwrap();
                    let image = id.to_le_bytes();
                    let key = KeyImage::image(&image);
                    let on = cursor.seek(&mut txn, key, SeekMode::AtOrAfter, &mut buffer);
                    let to = rows.partition_point(|row| row.0 < id);
                    ("seek", Some(to), on)
                }
                (_, None) => continue,
                (3..=5, Some(at)) => (
                    "prev",
                    at.checked_sub(1),
                    cursor.prev(&mut txn, &mut buffer),
                ),
                (6, Some(at)) => {
                    cursor.park();
                    cursor.resume(ReadMode::Snapshot, LockWait::Fail);
                    let on = cursor.next(&mut txn, &mut buffer);
                    ("next after a pause", Some(at + 1), on)
                }
                (7, Some(at)) => {
                    let image = rows[at].0.to_le_bytes();
                    let key = KeyImage::image(&image);
                    let on = cursor.next_same(&mut txn, key, &mut buffer);
                    ("next with the same key", None, on)
                }
                (8, Some(at)) => {
                    cursor.unlock_row(&txn);
                    cursor.forget_row(&mut txn);
                    ("next", Some(at + 1), cursor.next(&mut txn, &mut buffer))
                }
                (_, Some(at)) => {
                    let (glided, on) = next(&mut cursor, &mut txn, &mut buffer);
                    glides += u32::from(glided);
                    ("next", Some(at + 1), Ok(on))
                }
            };
            at = expected.filter(|&at| at < rows.len());
            let found = on.unwrap().then(|| row(&buffer));
            let context = format!("seed {seed}, step {step}, {what}");
            assert_eq!(found, at.map(|at| rows[at]), "{context}");
        }
    }
    assert!(glides > 5000, "{glides} glides");
}

/// A filesort asks for the hidden key of each row that it has read.
#[test]
fn the_hidden_key_of_a_row_that_was_glided_to_is_its_own() {
    let world = World::new(1);
    let hidden = TableSchema {
        indexes: vec![int_index("k", false, 1)],
        primary: None,
        ..schema()
    };
    let table = open_or_create(&world.db, "d/h", hidden);
    let mut txn = world.db.new_transaction(world.db.new_owner(0));
    txn.begin_statement(1, Isolation::RepeatableRead, 0, false);
    let (flags, mut scratch) = (WriteFlags::default(), RowScratch::default());
    for n in 0..500 {
        let fresh = record((n, (n, n)));
        // SAFETY: blob columns must point to their bytes; this table has none.
        unsafe { table.insert(&mut txn, &fresh, flags, &mut scratch) }.unwrap();
    }
    txn.commit().unwrap();
    world.db.compact_all().unwrap();
    txn.begin_statement(2, Isolation::RepeatableRead, 0, false);
    let mut cursor = Cursor::new(Arc::clone(&table));
    cursor
        .reset(None, ReadMode::Snapshot, LockWait::Fail)
        .unwrap();
    let mut buffer = [0; RECORD];
    let (mut on, mut glides) = (cursor.first(&mut txn, &mut buffer).unwrap(), 0);
    let (mut ids, mut glided) = (Vec::new(), false);
    while on {
        // Ask after some rows alone, so that glides follow each other.
        if row(&buffer).0 % 3 != 0 {
            glides += u32::from(glided);
            ids.push((row(&buffer).0, cursor.hidden_row_id().unwrap()));
        }
        (glided, on) = next(&mut cursor, &mut txn, &mut buffer);
    }
    assert!(glides > 100, "{glides} glides");
    assert_eq!(ids.len(), 333);
    let mut other = Cursor::new(Arc::clone(&table));
    other
        .reset(None, ReadMode::Snapshot, LockWait::Fail)
        .unwrap();
    for (n, id) in ids {
        let image = id.to_be_bytes();
        let reference = KeyImage::image(&image);
        assert!(other.get_row(&mut txn, reference, &mut buffer).unwrap());
        assert_eq!(row(&buffer).0, n, "hidden key {id}");
    }
}
