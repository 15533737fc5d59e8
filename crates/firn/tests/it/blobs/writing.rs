//! Values that are written out of line, and values that are not.

use super::rows::*;
use super::world::*;
use firn::table::{
    BulkLoad, Cursor, KeyImage, LockWait, PartialColumn, ReadMode, RowScratch, SeekMode, WriteFlags,
};
use firn::txn::LockMode;
use std::sync::Arc;
use std::sync::atomic::Ordering;

#[test]
fn an_update_of_other_columns_writes_no_blob() {
    let mut world = World::new(5);
    let row = Row {
        n: 1,
        t: vec![1; 2000],
        b: vec![2; 100_000],
        c: Some(vec![3; 5000]),
    };
    let mut scratch = RowScratch::default();
    let flags = WriteFlags::default();
    let mut txn = world.session();
    // SAFETY: the blob columns point into `row`, which outlives the call.
    unsafe {
        let table = &world.table;
        table.insert(&mut txn, &record(1, &row), flags, &mut scratch)
    }
    .unwrap();
    txn.commit().unwrap();
    let db = Arc::clone(&world.db);
    let stats = db.context().blobs.stats();
    let written = || stats.written.load(Ordering::Relaxed);
    assert_eq!(written(), 3);
    let copy = row.clone();
    for n in 2..6 {
        if n == 4 {
            world.db.compact_all().unwrap();
        }
        let old = Row {
            n: n - 1,
            ..row.clone()
        };
        let new = Row { n, ..copy.clone() };
        let mut txn = world.session();
        // SAFETY: the blob columns point into `old` and `new`, the rows, which outlive the call.
        unsafe {
            let (old, new) = (record(1, &old), record(1, &new));
            let table = &world.table;
            table.update(&mut txn, &old, &new, None, flags, &mut scratch)
        }
        .unwrap();
        txn.commit().unwrap();
    }
    assert_eq!(written(), 3);
    let read = || stats.read.load(Ordering::Relaxed);
    let before = read();
    // A seek that wants other columns reads no blob.
    let mut txn = world.session();
    let mut cursor = Cursor::new(Arc::clone(&world.table));
    cursor
        .reset(Some(0), ReadMode::Snapshot, LockWait::Fail)
        .unwrap();
    cursor.set_columns(Some(&[3]), false, &[]).unwrap();
    let mut buffer = vec![0; RECORD];
    let key = 1i32.to_le_bytes();
    let seek = (KeyImage::image(&key), SeekMode::Exact);
    assert!(cursor.seek(&mut txn, seek.0, seek.1, &mut buffer).unwrap());
    assert_eq!(row_of(&buffer, 3).1.n, 5);
    assert_eq!(read(), before);
}

#[test]
fn what_an_update_has_not_read_stays_as_it_is_stored() {
    let mut world = World::new(6);
    let rows = [
        (vec![2; 100_000], Some(vec![3; 5000])),
        (vec![0; 100_000], None),
        (vec![0; 999], Some(vec![0; 1000])),
        (Vec::new(), Some(Vec::new())),
    ];
    let rows = (1..).zip(rows.map(|(b, c)| Row {
        b,
        c,
        ..Row::default()
    }));
    let mut rows: Rows = rows.collect();
    let mut scratch = RowScratch::default();
    let flags = WriteFlags::default();
    let mut txn = world.session();
    for (id, row) in &rows {
        // SAFETY: the blob columns point into `row`, which outlives the call.
        unsafe {
            world
                .table
                .insert(&mut txn, &record(*id, row), flags, &mut scratch)
        }
        .unwrap();
    }
    txn.commit().unwrap();
    let db = Arc::clone(&world.db);
    let stats = db.context().blobs.stats();
    let counts = || {
        let counts = [&stats.written, &stats.read];
        counts.map(|count| count.load(Ordering::Relaxed))
    };
    let before = counts();
    let mut cursor = Cursor::new(Arc::clone(&world.table));
    let unread = [3, 4].map(|column| PartialColumn {
        column,
        prefix: 0,
        length: true,
    });
    // The current threshold does not matter to stored values.
    for (n, threshold) in [(1, THRESHOLD), (2, 200_000), (3, 4000)] {
        let mutable = &world.db.options().mutable;
        mutable.blob_threshold.store(threshold, Ordering::Relaxed);
        for (id, row) in &mut rows {
            let mut txn = world.session();
            let mode = ReadMode::Locking(LockMode::Exclusive);
            cursor.reset(Some(0), mode, LockWait::Fail).unwrap();
            cursor.set_columns(None, false, &unread).unwrap();
            let mut old = vec![0; RECORD];
            let key = id.to_le_bytes();
            assert!(
                cursor
                    .get(&mut txn, KeyImage::image(&key), &mut old)
                    .unwrap()
            );
            let mut new = old.clone();
            new[N_AT..T_AT].copy_from_slice(&i32::to_le_bytes(n));
            // SAFETY: the blob columns point into the cursor's buffers, valid until it moves.
            unsafe {
                world
                    .table
                    .update(&mut txn, &old, &new, None, flags, &mut scratch)
            }
            .unwrap();
            txn.commit().unwrap();
            row.n = n;
        }
        assert_eq!(counts(), before, "threshold {threshold}");
        assert!(scan(&mut world) == rows, "threshold {threshold}");
        stats.read.store(before[1], Ordering::Relaxed);
    }
}

#[test]
fn a_load_puts_large_values_out_of_line() {
    for one_by_one in [false, true] {
        let mut world = World::new(9);
        let mut rows = Rows::new();
        let owner = world.db.new_owner(0);
        let table = Arc::clone(&world.table);
        let cx = Arc::clone(world.db.context());
        let mut load = BulkLoad::new(table, &cx, owner, one_by_one, 0).unwrap();
        let mut scratch = RowScratch::default();
        for id in 0..60 {
            let id = id * 7 % 60;
            let row = world.row();
            // SAFETY: the blob columns point into `row`, which outlives the call.
            unsafe { load.insert(&record(id, &row), WriteFlags::default(), &mut scratch) }.unwrap();
            rows.insert(id, row);
        }
        // Garbage collection must leave the load's files alone, though no row names them yet.
        cx.blobs.seal_active();
        world.collect();
        load.finish(&mut |_, _| Ok(())).unwrap();
        drop((load, cx));
        assert!(world.db.blobs().refs > 20);
        world.collect();
        world.check(&rows, "after the load");
        world.db.sync_log().unwrap();
        world.crash();
        world.collect();
        world.check(&rows, "after a crash");
    }
}

#[test]
fn no_threshold_keeps_very_long_values_in_rows() {
    const LONG: usize = 16 << 20;
    let mut world = World::new(0);
    let mutable = &world.db.options().mutable;
    mutable.blob_threshold.store(u64::MAX, Ordering::Relaxed);
    for (id, len, out_of_line) in [(1, LONG - 1, false), (2, LONG, true)] {
        let row = Row {
            b: vec![7; len],
            ..Row::default()
        };
        let mut txn = world.session();
        let (record, flags) = (record(id, &row), WriteFlags::default());
        let mut scratch = RowScratch::default();
        // SAFETY: the blob columns point into `row`, which outlives the call.
        unsafe { world.table.insert(&mut txn, &record, flags, &mut scratch) }.unwrap();
        assert_eq!(txn.write_bytes() < LONG as u64 / 2, out_of_line, "{len}");
        txn.commit().unwrap();
    }
}
