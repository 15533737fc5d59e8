//! Checkpoints of databases with out-of-line values.

use super::rows::*;
use super::world::*;
use firn::db::ReadOnlyDb;
use firn::env::Env;
use rand::Rng;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Checks files, log and blob files in `dir`, as `firn check` does beside the tables.
fn look_at(world: &World, dir: &str, spilled: bool) {
    let env: Arc<dyn Env> = Arc::new(world.fault.clone());
    let look = ReadOnlyDb::open(env, Path::new(dir)).unwrap();
    let tree = look.tree().unwrap();
    for (_, file) in tree.version.files() {
        let survey = file.open().unwrap().survey(&mut |error| panic!("{error}"));
        assert_eq!(survey.checksum, file.checksum);
    }
    let log = look.log(&tree).unwrap();
    assert!(!log.end.torn_tail);
    assert_eq!(!log.files.is_empty(), spilled, "files that the log names");
    let mut found = |error| panic!("{error}");
    look.check_blob_positions(&log.point, &mut found).unwrap();
    look.check_prepared_blobs(&log, &mut found).unwrap();
    let blobs = look.blobs(&tree, &log).unwrap();
    assert_eq!(blobs.missing, [0; 0]);
    assert!(blobs.files.iter().any(|file| file.used.is_some()));
}

/// The checkpoint keeps punched and rewritten blob files, values that only the log names, spilled
/// transactions and a prepared one, whatever happens to the database afterwards.
#[test]
fn a_checkpoint_holds_values_and_spilled_transactions_as_they_were() {
    let (mut punched, mut rewritten) = (0, 0);
    for seed in 0..6 {
        let mut world = World::new(seed);
        let mut rows = Rows::new();
        for round in 0..30 {
            let mut txn = world.session();
            world.write(&mut txn, &mut rows, 10).unwrap();
            txn.commit().unwrap();
            if round % 5 == 4 {
                world.db.compact_all().unwrap();
                world.collect();
            }
        }
        let stats = world.db.context().blobs.stats();
        punched += stats.punched_bytes.load(Ordering::Relaxed);
        rewritten += stats.rewritten_bytes.load(Ordering::Relaxed);
        // From here on, every write spills the earlier writes of its transaction.
        let mutable = Arc::clone(&world.db.options().mutable);
        mutable.txn_memory_limit.store(0, Ordering::Relaxed);
        let mut txn = world.session();
        world.write(&mut txn, &mut rows, 10).unwrap();
        txn.commit().unwrap();
        let mut txn = world.session();
        let mut prepared = rows.clone();
        world.write(&mut txn, &mut prepared, 10).unwrap();
        txn.prepare(b"x").unwrap();
        txn.detach(world.db.new_owner(0));
        drop(txn);

        let flush = seed % 2 == 0;
        world.db.checkpoint(Path::new("/c"), flush).unwrap();
        look_at(&world, "/c", true);

        // The database goes on and frees garbage.
        assert!(world.db.commit_xid(b"x").unwrap());
        let mut later = prepared.clone();
        for _ in 0..10 {
            let mut txn = world.session();
            world.write(&mut txn, &mut later, 10).unwrap();
            txn.commit().unwrap();
            world.db.compact_all().unwrap();
            world.collect();
        }
        world.check(&later, "the database");
        world.db.close().unwrap();

        let (db, table) = open_in(&world.fault, "/c");
        (world.db, world.table) = (db, table);
        world.check(&rows, "the checkpoint");
        let outcome = world.rng.random();
        match outcome {
            true => assert!(world.db.commit_xid(b"x").unwrap()),
            false => assert!(world.db.rollback_xid(b"x").unwrap()),
        }
        if outcome {
            rows = prepared;
        }
        world.check(&rows, "the checkpoint, with an outcome");
        world.db.compact_all().unwrap();
        world.collect();
        world.check(&rows, "the checkpoint, compacted");
        // Garbage collection in the checkpoint has not changed the database.
        let (db, table) = open(&world.fault);
        (world.db, world.table) = (db, table);
        world.check(&later, "the database once more");
    }
    assert!(punched > 0 && rewritten > 0, "{punched}, {rewritten}");
}
