//! Gap locks: a scan and an insert race at every point between them, and one of the two sees the
//! other.

use super::*;
use firn::base::ErrorKind;
use firn::base::Result;
use firn::base::pause_points::{self, PausePoint};
use std::cell::RefCell;
use std::rc::Rc;

const NEW: (i32, (i32, i32)) = (25, (25, 0));

fn world() -> World {
    let mut world = World::new(1);
    let table = Arc::clone(&world.table);
    world.change(&move |txn| {
        for id in [10, 20, 30, 40] {
            insert(&table, txn, (id, (id, 0))).unwrap();
        }
    });
    world
}

fn insert(table: &Table, txn: &mut Transaction, row: (i32, (i32, i32))) -> Result<()> {
    let flags = WriteFlags::default();
    let mut scratch = RowScratch::default();
    // SAFETY: blob columns must point to their bytes; this table has none.
    let done = unsafe { table.insert(txn, &record(row), flags, &mut scratch) };
    done.map(|outcome| assert_eq!(outcome, WriteOutcome::Done { row_id: None }))
}

/// Reads all rows with locks. A row that another transaction has locked is an error.
fn scan(
    table: &Arc<Table>,
    txn: &mut Transaction,
    index: usize,
    forward: bool,
) -> Result<Vec<i32>> {
    let mut cursor = Cursor::new(Arc::clone(table));
    let mode = ReadMode::Locking(LockMode::Exclusive);
    cursor.reset(Some(index), mode, LockWait::Fail)?;
    let mut buffer = [0; RECORD];
    let mut ids = Vec::new();
    let mut on = match forward {
        true => cursor.first(txn, &mut buffer)?,
        false => cursor.last(txn, &mut buffer)?,
    };
    while on {
        ids.push(row(&buffer).0);
        on = match forward {
            true => cursor.next(txn, &mut buffer)?,
            false => cursor.prev(txn, &mut buffer)?,
        };
    }
    ids.sort_unstable();
    Ok(ids)
}

/// Calls `f` when this thread passes `point` for the `nth` time.
fn at_point(point: PausePoint, nth: usize, f: impl FnOnce() + 'static) {
    let mut f = Some(f);
    let mut passed = 0;
    pause_points::on_this_thread(move |at| {
        if at == point {
            passed += 1;
            if passed == nth
                && let Some(f) = f.take()
            {
                f();
            }
        }
    });
}

fn directions() -> impl Iterator<Item = (usize, bool)> {
    [(0, true), (0, false), (1, true), (1, false)].into_iter()
}

#[test]
fn an_insert_beside_a_scan_waits_or_is_found() {
    for (index, forward) in directions() {
        for point in [PausePoint::GapWanted, PausePoint::GapLocked] {
            for (nth, commits) in (1..10).flat_map(|nth| [(nth, true), (nth, false)]) {
                let context = format!("{index}, {forward}, {point:?} {nth}, commits: {commits}");
                let mut world = world();
                let table = Arc::clone(&world.table);
                let mut writer = world.session();
                let result = Rc::new(RefCell::new(None));
                {
                    let (table, result) = (Arc::clone(&table), Rc::clone(&result));
                    at_point(point, nth, move || {
                        let inserted = insert(&table, &mut writer, NEW);
                        if commits && inserted.is_ok() {
                            writer.commit().unwrap();
                        }
                        *result.borrow_mut() = Some((inserted, writer));
                    });
                }
                let mut reader = world.session();
                let found = scan(&table, &mut reader, index, forward);
                pause_points::clear();
                let Some((inserted, _writer)) = result.take() else {
                    assert_eq!(found.unwrap(), [10, 20, 30, 40], "{context}");
                    continue;
                };
                match (inserted, commits) {
                    (Ok(()), true) => assert_eq!(found.unwrap(), [10, 20, 25, 30, 40], "{context}"),
                    (Ok(()), false) => {
                        let error = found.expect_err(&context);
                        assert_eq!(*error.kind(), ErrorKind::LockNotAvailable, "{context}");
                    }
                    (Err(error), _) => {
                        assert_eq!(*error.kind(), ErrorKind::LockTimeout, "{context}");
                        assert_eq!(found.unwrap(), [10, 20, 30, 40], "{context}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_scan_beside_an_insert_finds_it_or_makes_it_wait() {
    for (index, forward) in directions() {
        for point in [PausePoint::InsertAllowed, PausePoint::Inserted] {
            for nth in 1..3 {
                let context = format!("{index}, {forward}, {point:?} {nth}");
                let mut world = world();
                let table = Arc::clone(&world.table);
                let mut reader = world.session();
                let result = Rc::new(RefCell::new(None));
                {
                    let (table, result) = (Arc::clone(&table), Rc::clone(&result));
                    at_point(point, nth, move || {
                        let found = scan(&table, &mut reader, index, forward);
                        *result.borrow_mut() = Some((found, reader));
                    });
                }
                let mut writer = world.session();
                let inserted = insert(&table, &mut writer, NEW);
                pause_points::clear();
                let (found, _reader) = result.take().expect("two entries are inserted");
                match found {
                    Ok(found) => {
                        assert_eq!(found, [10, 20, 30, 40], "{context}");
                        let error = inserted.expect_err(&context);
                        assert_eq!(*error.kind(), ErrorKind::LockTimeout, "{context}");
                        assert!(!writer.has_writes(), "{context}");
                    }
                    Err(error) => {
                        assert_eq!(*error.kind(), ErrorKind::LockNotAvailable, "{context}");
                        inserted.expect(&context);
                    }
                }
            }
        }
    }
}

#[test]
fn a_prepared_insert_without_session_is_found() {
    let mut world = world();
    let table = Arc::clone(&world.table);
    let mut writer = world.session();
    insert(&table, &mut writer, NEW).unwrap();
    writer.prepare(b"x").unwrap();
    writer.detach(world.db.new_owner(0));
    for (index, forward) in directions() {
        let mut reader = world.session();
        let error = scan(&table, &mut reader, index, forward).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::LockNotAvailable);
    }
    // A scan does not take the session's next transaction for the prepared one.
    insert(&table, &mut writer_again(&mut world, writer), (45, (45, 0))).unwrap();
    assert!(world.db.rollback_xid(b"x").unwrap());
    let mut reader = world.session();
    assert_eq!(
        scan(&table, &mut reader, 0, true).unwrap(),
        [10, 20, 30, 40]
    );
}

fn writer_again(world: &mut World, mut writer: Transaction) -> Transaction {
    world.begin(&mut writer);
    writer
}

#[test]
fn a_recovered_insert_is_found() {
    let env = MemEnv::new();
    let open = |env: &MemEnv| {
        let env: Arc<dyn Env> = Arc::new(env.clone());
        let options = Options {
            background_jobs: 0,
            ..Options::default()
        };
        Db::open(env, Path::new("/db"), options, None).unwrap()
    };
    let db = open(&env);
    let table = open_or_create(&db, "d/t", schema());
    let mut writer = db.new_transaction(db.new_owner(0));
    writer.begin_statement(1, Isolation::RepeatableRead, 0, false);
    insert(&table, &mut writer, NEW).unwrap();
    writer.prepare(b"x").unwrap();
    writer.detach(db.new_owner(0));
    drop((writer, table, db));
    let db = open(&env.kill());
    let table = open_or_create(&db, "d/t", schema());
    for (index, forward) in directions() {
        let mut reader = db.new_transaction(db.new_owner(0));
        reader.begin_statement(2, Isolation::RepeatableRead, 0, false);
        let error = scan(&table, &mut reader, index, forward).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::LockNotAvailable);
    }
    assert!(db.commit_xid(b"x").unwrap());
    let mut reader = db.new_transaction(db.new_owner(0));
    reader.begin_statement(3, Isolation::RepeatableRead, 0, false);
    assert_eq!(scan(&table, &mut reader, 1, false).unwrap(), [25]);
}
