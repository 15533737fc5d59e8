//! Garbage collection of blobs frees all unreferenced space, and nothing else.

use super::rows::*;
use super::world::*;
use firn::base::work_count::counted;
use firn::table::{Cursor, LockWait, ReadMode, RowScratch, WriteFlags};
use firn::txn::Isolation;
use std::sync::Arc;
use std::sync::atomic::Ordering;

#[test]
fn an_old_view_keeps_the_blobs_it_shows() {
    for seed in 0..6 {
        let mut world = World::new(seed);
        let mut rows = Rows::new();
        let mut txn = world.session();
        world.write(&mut txn, &mut rows, 60).unwrap();
        txn.commit().unwrap();
        // Keep a scan open on its first row.
        let mut reader = world.db.new_transaction(world.db.new_owner(0));
        world.statement += 1;
        reader.begin_statement(world.statement, Isolation::ReadCommitted, 0, true);
        let mut cursor = Cursor::new(Arc::clone(&world.table));
        cursor
            .reset(Some(0), ReadMode::Snapshot, LockWait::Fail)
            .unwrap();
        let mut buffer = vec![0; RECORD];
        assert!(cursor.first(&mut reader, &mut buffer).unwrap());
        let before = rows.clone();
        for _ in 0..40 {
            let mut txn = world.session();
            world.write(&mut txn, &mut rows, 10).unwrap();
            txn.commit().unwrap();
        }
        world.db.compact_all().unwrap();
        world.collect();
        let live = world.db.blobs();
        for (id, row) in &before {
            assert_eq!(row_of(&buffer, 0xff), (*id, row.clone()), "seed {seed}");
            cursor.next(&mut reader, &mut buffer).unwrap();
        }
        drop((cursor, reader));
        world.collect();
        let after = world.db.blobs();
        assert!(after.allocated < live.allocated, "{live:?}, then {after:?}");
        world.check(&rows, "at the end");
    }
}

#[test]
fn space_follows_what_lives() {
    for seed in 0..3 {
        let mut world = World::new(seed);
        let mut rows = Rows::new();
        let mut most = 0.0f64;
        for round in 0..75 {
            for _ in 0..5 {
                let mut txn = world.session();
                world.write(&mut txn, &mut rows, 8).unwrap();
                txn.commit().unwrap();
            }
            world.db.flush().unwrap();
            while world.db.compact_once().unwrap() {}
            world.collect();
            let report = world.db.blobs();
            if round > 20 && report.live > 0 {
                most = most.max(report.allocated as f64 / report.live as f64);
            }
        }
        world.db.compact_all().unwrap();
        world.db.context().blobs.seal_active();
        world.collect();
        let report = world.db.blobs();
        let stats = world.db.context().blobs.stats();
        let written = stats.written_bytes.load(Ordering::Relaxed);
        assert!(written > 10 * report.allocated, "{written} bytes written");
        // Small values leave parts of blocks unused. In a file system that cannot punch holes, up
        // to a third of a file is garbage.
        let most_at_rest = report.live + report.live / 2 + 16 * 4096;
        assert!(report.allocated < most_at_rest, "seed {seed}: {report:?}");
        assert!(most < 3.0, "seed {seed}: {most} times the blobs");
        world.check(&rows, "at the end");
        // Without rows, no blob file is left.
        let mut txn = world.session();
        let mut scratch = RowScratch::default();
        for (id, row) in &rows {
            let old = record(*id, row);
            let flags = WriteFlags::default();
            // SAFETY: the blob columns point into `row`, which outlives the call.
            unsafe {
                world
                    .table
                    .delete(&mut txn, &old, None, flags, &mut scratch)
            }
            .unwrap();
        }
        txn.commit().unwrap();
        world.db.compact_all().unwrap();
        world.db.context().blobs.seal_active();
        world.collect();
        assert_eq!(world.db.blobs().files, 0, "seed {seed}");
    }
}

/// A search that has found no garbage is not repeated before something has changed.
#[test]
fn an_idle_database_is_searched_once() {
    let mut world = World::new(1);
    let mut rows = Rows::new();
    let mut txn = world.session();
    world.write(&mut txn, &mut rows, 60).unwrap();
    txn.commit().unwrap();
    world.db.compact_all().unwrap();
    world.db.context().blobs.seal_active();
    while world.db.collect_blobs().unwrap() {}
    world.collect();
    let looked = |world: &World| counted(|| world.db.collect_blobs().unwrap()).1.blob_files;
    assert!(world.db.blobs().files > 0);
    assert_eq!(looked(&world), 0);
    let mut txn = world.session();
    world.write(&mut txn, &mut rows, 5).unwrap();
    txn.commit().unwrap();
    world.db.flush().unwrap();
    assert!(looked(&world) > 0, "another version");
    world.collect();
    assert_eq!(looked(&world), 0);
    // The values of a transaction that is rolled back are garbage once it releases their file.
    world.db.context().blobs.seal_active();
    world.collect();
    let files = world.db.blobs().files;
    let mut txn = world.session();
    let mut lost = rows.clone();
    world.write(&mut txn, &mut lost, 40).unwrap();
    world.db.context().blobs.seal_active();
    world.collect();
    assert_eq!(looked(&world), 0, "the transaction holds the file");
    assert!(world.db.blobs().files > files);
    txn.rollback().unwrap();
    world.collect();
    assert_eq!(world.db.blobs().files, files);
    world.check(&rows, "at the end");
}
