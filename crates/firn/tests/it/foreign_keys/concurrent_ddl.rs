//! Foreign keys that come while a statement or another change of a definition is under way.

use super::*;
use firn::catalog::{DdlSession, MetadataLocks};
use std::sync::Mutex;

/// A host on which one session has locked the metadata of `d/c`, for writing or for reading only.
#[derive(Default)]
struct Host {
    reads: AtomicBool,
    writes: AtomicBool,
    asked: Mutex<Vec<(u64, String, bool)>>,
}

impl MetadataLocks for Host {
    fn is_held(&self, host: u64, table: &str, writes: bool) -> bool {
        self.asked
            .lock()
            .unwrap()
            .push((host, table.to_owned(), writes));
        match writes {
            true => self.writes.load(Ordering::Relaxed),
            false => self.reads.load(Ordering::Relaxed),
        }
    }
}

fn hosted(on_delete: ReferentialAction) -> (World, Arc<Host>) {
    let world = World::new(on_delete, Referenced::Primary);
    let host = Arc::new(Host::default());
    world
        .db
        .catalog()
        .set_metadata_locks(Arc::clone(&host) as _);
    let mut txn = world.begin(0);
    for (id, parent) in [(10, 1), (11, 1), (20, 2)] {
        world.insert_child(&mut txn, id, parent).unwrap();
    }
    txn.commit().unwrap();
    (world, host)
}

fn begin_of_host(world: &World) -> Transaction {
    let mut txn = world.db.new_transaction(world.db.new_owner(7));
    let id = world.statement.fetch_add(1, Ordering::Relaxed) + 1;
    txn.begin_statement(id, Isolation::RepeatableRead, 0, false);
    txn
}

/// DDL on the referencing table would not wait for the transaction, so the statement fails.
#[test]
fn a_cascade_needs_the_metadata_lock_of_the_table_that_it_changes() {
    let (world, host) = hosted(ReferentialAction::Cascade);
    host.reads.store(true, Ordering::Relaxed);
    let mut txn = begin_of_host(&world);
    let error = world.delete_parent(&mut txn, 1).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::TableDefChanged);
    assert!(!txn.has_writes());
    host.writes.store(true, Ordering::Relaxed);
    host.asked.lock().unwrap().clear();
    world.delete_parent(&mut txn, 1).unwrap();
    world.delete_parent(&mut txn, 2).unwrap();
    // Two rows with three referencing rows in one statement: one question.
    assert_eq!(*host.asked.lock().unwrap(), [(7, "d/c".to_owned(), true)]);
    // The next statement asks again.
    world.insert_parent(&mut txn, 3).unwrap();
    let id = world.statement.fetch_add(1, Ordering::Relaxed) + 1;
    txn.begin_statement(id, Isolation::RepeatableRead, 0, false);
    host.writes.store(false, Ordering::Relaxed);
    let error = world.delete_parent(&mut txn, 3).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::TableDefChanged);
    txn.commit().unwrap();
    assert!(world.is_whole());
}

/// A check reads an index of the referencing table, which DDL may replace.
#[test]
fn a_check_needs_the_metadata_lock_of_the_table_that_it_reads() {
    let (world, host) = hosted(ReferentialAction::Restrict);
    let mut txn = begin_of_host(&world);
    let error = world.delete_parent(&mut txn, 1).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::TableDefChanged);
    host.reads.store(true, Ordering::Relaxed);
    let result = world.delete_parent(&mut txn, 1);
    assert_eq!(
        violation(&result),
        Some(ForeignKeyViolation::RowIsReferenced)
    );
    txn.rollback().unwrap();
}

/// TRUNCATE begins while no foreign key refers to the table. Another session adds one, and a
/// transaction refers to a row, before TRUNCATE replaces the indexes.
#[test]
fn ddl_closes_a_table_to_which_no_foreign_key_refers_yet() {
    let world = Rc::new(World::new(ReferentialAction::Restrict, Referenced::Primary));
    let catalog = Arc::clone(world.db.catalog());
    let (without, with) = (
        ForeignKeyRequest::default(),
        request("id", ReferentialAction::Restrict),
    );
    catalog.drop_table("d/c").unwrap();
    let schema = || schema(&["id", "p"], &[("PRIMARY", true, 0), ("p", false, 1)]);
    let new = move || NewTable {
        schema: schema(),
        frm: b"",
        version: b"",
        created_micros: 0,
    };
    catalog
        .create_referencing("d/e", new(), 0, &without)
        .unwrap();
    let inserted = Rc::new(RefCell::new(None));
    {
        let (world, inserted) = (Rc::clone(&world), Rc::clone(&inserted));
        pause_points::on_this_thread(move |point| {
            if point == PausePoint::IndexesClosed && inserted.borrow().is_none() {
                let catalog = world.db.catalog();
                catalog.create_referencing("d/c", new(), 0, &with).unwrap();
                let mut txn = world.begin(0);
                *inserted.borrow_mut() = Some(world.insert_child(&mut txn, 1, 1));
                txn.rollback().unwrap();
            }
        });
    }
    catalog
        .truncate_referenced("d/p", &DdlSession::default())
        .unwrap();
    pause_points::clear();
    let result = inserted.borrow_mut().take().expect("the point was passed");
    assert_eq!(*result.unwrap_err().kind(), ErrorKind::LockTimeout);
    // The table is open again, and the new indexes count.
    let mut txn = world.begin(0);
    let result = world.insert_child(&mut txn, 1, 1);
    assert_eq!(
        violation(&result),
        Some(ForeignKeyViolation::NoReferencedRow)
    );
}

/// Every kind of DDL that closes a table opens it again, whether foreign keys refer to it or not.
#[test]
fn ddl_opens_what_it_has_closed() {
    let world = World::new(ReferentialAction::Restrict, Referenced::Primary);
    let catalog = world.db.catalog();
    let rename = TableRename::default();
    for name in ["d/p", "d/c"] {
        catalog
            .truncate_referenced(name, &DdlSession::default())
            .unwrap();
        catalog
            .rename_referencing(name, "d/#sql-backup", &rename)
            .unwrap();
        catalog
            .rename_referencing("d/#sql-backup", name, &rename)
            .unwrap();
    }
    assert!(world.db.context().referenced.is_empty());
    catalog
        .rename_referencing("d/c", "d/#sql-backup", &rename)
        .unwrap();
    catalog.drop_table("d/#sql-backup").unwrap();
    assert!(world.db.context().referenced.is_empty());
}

/// The foreign keys that a table had before would lead to indexes that are gone.
#[test]
fn foreign_keys_that_cannot_be_resolved_refuse_writes() {
    let world = World::new(ReferentialAction::Restrict, Referenced::Primary);
    let mut damaged = schema(&["id", "p"], &[("PRIMARY", true, 0), ("p", false, 1)]);
    // The column lies beyond the record.
    damaged.columns[0].column.offset = 1000;
    let new = NewTable {
        schema: damaged,
        frm: b"",
        version: b"",
        created_micros: 0,
    };
    let key = ForeignKeyRequest {
        table_text: "x".into(),
        ..request("id", ReferentialAction::Restrict)
    };
    let mut txn = world.begin(0);
    world.insert_child(&mut txn, 1, 1).unwrap();
    txn.commit().unwrap();
    world
        .db
        .catalog()
        .create_referencing("d/x", new, 0, &key)
        .unwrap();
    let mut txn = world.begin(0);
    let error = world.delete_parent(&mut txn, 2).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::InvalidArgument);
    let error = world.insert_parent(&mut txn, 5).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::InvalidArgument);
    // The table itself and its other users are whole.
    world.insert_child(&mut txn, 2, 1).unwrap();
    txn.rollback().unwrap();
    world.db.catalog().drop_table("d/x").unwrap();
    let mut txn = world.begin(0);
    world.delete_parent(&mut txn, 2).unwrap();
    txn.commit().unwrap();
    assert!(world.is_whole());
}

/// DDL waits for a transaction that relies on the table, which waits for a row of another one,
/// which waits for the DDL to end. The last one is the victim; the others go on.
#[test]
fn a_deadlock_by_way_of_ddl_is_found() {
    const LONG_US: u64 = 60_000_000;
    let world = Arc::new(World::new(ReferentialAction::Restrict, Referenced::Primary));
    let mut relying = world.begin(LONG_US);
    world.insert_child(&mut relying, 1, 1).unwrap();
    let mut victim = world.begin(LONG_US);
    world.insert_parent(&mut victim, 77).unwrap();
    let ddl = {
        let world = Arc::clone(&world);
        thread::spawn(move || {
            let owner = world.db.new_owner(0);
            let session = DdlSession {
                checks: true,
                owner: Some(&owner),
                lock_timeout_us: LONG_US,
            };
            let rename = TableRename {
                session,
                ..TableRename::default()
            };
            let catalog = world.db.catalog();
            catalog.rename_referencing("d/p", "d/#sql-backup", &rename)?;
            catalog.rename_referencing("d/#sql-backup", "d/p", &rename)
        })
    };
    // The DDL has closed the table when nobody can rely on it any more.
    while world.insert_child(&mut world.begin(0), 100, 2).is_ok() {
        thread::yield_now();
    }
    let waiting = {
        let world = Arc::clone(&world);
        thread::spawn(move || {
            world.insert_parent(&mut relying, 77).unwrap();
            relying.commit().unwrap();
        })
    };
    let error = world.insert_child(&mut victim, 2, 2).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Deadlock);
    victim.rollback().unwrap();
    waiting.join().unwrap();
    ddl.join().unwrap().unwrap();
    let mut txn = world.begin(0);
    world.insert_child(&mut txn, 2, 77).unwrap();
    txn.commit().unwrap();
    assert!(world.is_whole());
}
