//! Failing calls and damaged files.

use super::rows::*;
use super::world::*;
use firn::db::{Db, ReadOnlyDb, repair};
use firn::env::fault::{CallClass, Errno, Fault};
use firn::env::{Env, FaultEnv};
use firn::table::{RowScratch, Table, WriteFlags};
use rand::Rng;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

#[test]
fn a_failed_write_or_sync_of_a_blob_fails_the_statement_alone() {
    let mut world = World::new(4);
    let mut rows = Rows::new();
    let mut txn = world.session();
    world.write(&mut txn, &mut rows, 30).unwrap();
    txn.commit().unwrap();
    let mut failed = 0;
    for nth in 1..40 {
        for (class, errno) in [
            (CallClass::Write, Errno::NoSpace),
            (CallClass::Write, Errno::Io),
            (CallClass::Sync, Errno::Io),
        ] {
            let mut txn = world.session();
            let mut next = rows.clone();
            if class == CallClass::Sync {
                // A commit syncs its blobs first.
                world.write(&mut txn, &mut next, 8).unwrap();
                let fault = Fault {
                    class,
                    nth: 1,
                    sticky: false,
                    errno,
                };
                let held = world.db.context().blobs.stats();
                let before = held.written.load(Ordering::Relaxed);
                world.fault.inject(fault);
                let committed = txn.commit();
                world.fault.clear();
                assert!(before > 0);
                match committed {
                    Ok(()) => rows = next,
                    Err(_) => {
                        failed += 1;
                        txn.rollback().unwrap();
                        if world.db.sync_log().is_err() {
                            // The log's sync has failed: the transaction wrote no blobs.
                            world.crash();
                            rows = scan(&mut world);
                        }
                    }
                }
            } else {
                world.fault.inject(Fault {
                    class,
                    nth: nth % 12 + 1,
                    sticky: false,
                    errno,
                });
                let written = world.write(&mut txn, &mut next, 8);
                world.fault.clear();
                match written {
                    Ok(()) => {
                        txn.commit().unwrap();
                        rows = next;
                    }
                    Err(_) => {
                        failed += 1;
                        txn.rollback().unwrap();
                    }
                }
            }
            world.check(&rows, &format!("call {nth} of {class:?}"));
        }
    }
    assert!(failed > 20, "{failed} faults were felt");
}

#[test]
fn damage_stays_with_its_value_and_a_repair_keeps_the_rest() {
    let mut world = World::new(0);
    let mut rows = Rows::new();
    for i in 0..6 {
        let mut row = world.row();
        (row.t, row.c) = (vec![1], None);
        row.b = (0..5000).map(|_| world.rng.random()).collect();
        rows.insert(i, row);
    }
    let mut txn = world.session();
    let mut scratch = RowScratch::default();
    for (id, row) in &rows {
        // SAFETY: the blob columns point into `rows`, which outlives the call.
        unsafe {
            let (table, flags) = (&world.table, WriteFlags::default());
            table.insert(&mut txn, &record(*id, row), flags, &mut scratch)
        }
        .unwrap();
    }
    txn.commit().unwrap();
    // A prepared transaction, which the repair must keep too.
    let mut txn = world.session();
    let prepared = Row {
        b: vec![9; 3000],
        ..rows[&0].clone()
    };
    // SAFETY: the blob columns point into `prepared`, which outlives the call.
    unsafe {
        let (table, flags) = (&world.table, WriteFlags::default());
        table.insert(&mut txn, &record(77, &prepared), flags, &mut scratch)
    }
    .unwrap();
    txn.prepare(b"x").unwrap();
    txn.detach(world.db.new_owner(0));
    drop(txn);
    world.db.compact_all().unwrap();
    world.db.close().unwrap();
    let env = world.env.kill();
    let names = env.list_dir(Path::new(DIR)).unwrap();
    let name = names.iter().find(|name| name.ends_with(".blob")).unwrap();
    // Damage the third blob: the file header has 64 bytes, each blob 32 + 5000 bytes.
    let change = |bytes: &mut Vec<u8>| bytes[64 + 2 * 5032 + 400] ^= 1;
    env.damage(&Path::new(DIR).join(name), change).unwrap();
    world.fault = FaultEnv::new(Arc::new(env.clone()));
    let (db, table) = open(&world.fault);
    let point = db.context().super_versions.clone();
    let report = table.check(&point, false, &|| false).unwrap();
    assert_eq!(report.problem_count, 1, "{:?}", report.problems);
    assert!(
        report.problems[0].contains(&name[..]),
        "{:?}",
        report.problems
    );
    db.close().unwrap();
    drop((table, point, db));

    let env: Arc<dyn Env> = Arc::new(env.kill());
    let look = ReadOnlyDb::open(Arc::clone(&env), Path::new(DIR)).unwrap();
    let mut lost = Vec::new();
    let repaired = repair(&look, Path::new("/new"), &mut |error| lost.push(error)).unwrap();
    assert_eq!((repaired.tables["d/t"], repaired.prepared), (6, 1));
    assert_eq!(lost.len(), 1, "{lost:?}");
    let told = lost[0].message();
    assert!(
        told.contains("d/t.PRIMARY (id = 2): column b is empty now"),
        "{told}"
    );
    drop(look);
    let db = Db::open(env, Path::new("/new"), options(THRESHOLD), None).unwrap();
    let table = Table::open(db.catalog(), "d/t", schema(), &[]).unwrap();
    assert!(db.commit_xid(b"x").unwrap());
    (world.db, world.table) = (db, table);
    rows.get_mut(&2).unwrap().b.clear();
    rows.insert(77, prepared);
    world.check(&rows, "repaired");
}

/// Only a manifest edit and the new file itself record that values were moved to another file.
#[test]
fn a_manifest_that_lost_its_end_costs_no_value() {
    // This seed's file system cannot punch holes, so garbage collection moves live values.
    let mut world = World::new(2);
    let mut rows = Rows::new();
    let stats = |world: &World| {
        let stats = world.db.context().blobs.stats();
        stats.rewritten_bytes.load(Ordering::Relaxed)
    };
    for round in 0..30 {
        let mut txn = world.session();
        world.write(&mut txn, &mut rows, 10).unwrap();
        txn.commit().unwrap();
        if round % 5 == 4 {
            world.db.compact_all().unwrap();
            world.collect();
        }
    }
    assert!(stats(&world) > 0);
    world.db.close().unwrap();
    let whole = world.env.kill();
    let manifest = |env: &dyn Env| {
        let names = env.list_dir(Path::new(DIR)).unwrap();
        let mut names = names.into_iter();
        names.find(|name| name.starts_with("MANIFEST")).unwrap()
    };
    let path = Path::new(DIR).join(manifest(&whole));
    for cut in [0, 1, 8, 16, 24, 32, 48, 64, 96, 128, 256] {
        let env = whole.kill();
        let change = |bytes: &mut Vec<u8>| bytes.truncate(bytes.len() - cut);
        env.damage(&path, change).unwrap();
        let env: Arc<dyn Env> = Arc::new(env);
        let look = ReadOnlyDb::open(Arc::clone(&env), Path::new(DIR)).unwrap();
        let mut lost = Vec::new();
        let target = Path::new("/new");
        let repaired = repair(&look, target, &mut |error| lost.push(error)).unwrap();
        assert_eq!(repaired.tables["d/t"], rows.len() as u64, "{cut}: {lost:?}");
        let emptied = lost.iter().find(|error| error.message().contains("empty"));
        assert!(emptied.is_none(), "{cut}: {lost:?}");
        drop(look);
        let db = Db::open(env, target, options(THRESHOLD), None).unwrap();
        let table = Table::open(db.catalog(), "d/t", schema(), &[]).unwrap();
        (world.db, world.table) = (db, table);
        world.check(&rows, &format!("repaired without the last {cut} bytes"));
    }
}
