//! Foreign keys: a writer of referencing rows against a deleter of the row that they refer to.
//!
//! Table `d/p` is `id INT PRIMARY KEY`, table `d/c` is `id INT PRIMARY KEY, p INT, KEY (p)` with a
//! foreign key from `p` to `id`. Pause points run one side in the middle of the other.

mod concurrent_ddl;
mod copying_alters;

use crate::schema::{column, int_index};
use firn::base::options::Options;
use firn::base::pause_points::{self, PausePoint};
use firn::base::{ErrorKind, ForeignKeyViolation, Result};
use firn::catalog::{
    ForeignKeyColumn, ForeignKeyRequest, NewForeignKey, NewTable, ReferentialAction, TableLocking,
    TableRename, TableSchema,
};
use firn::db::Db;
use firn::env::{Env, MemEnv};
use firn::rowcode::ColumnKind;
use firn::table::{RowScratch, Table, WriteFlags};
use firn::txn::{Isolation, Transaction};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

fn schema(names: &[&str], keys: &[(&str, bool, u32)]) -> TableSchema {
    let columns = names.iter().zip(0..).map(|(name, i)| {
        let int = ColumnKind::Fixed { len: 4 };
        column(i + 1, name, int, 1 + 4 * i as usize)
    });
    let indexes = keys.iter();
    TableSchema {
        version: 1,
        older: std::sync::Arc::default(),
        record_len: 1 + 4 * names.len() as u32,
        null_bytes: 1,
        columns: columns.collect(),
        indexes: indexes
            .map(|(name, unique, column)| int_index(name, *unique, *column))
            .collect(),
        primary: Some(0),
        auto_increment: None,
        locking: TableLocking::Pessimistic,
    }
}

fn record(values: &[i32]) -> Vec<u8> {
    let mut record = vec![0];
    for value in values {
        record.extend_from_slice(&value.to_le_bytes());
    }
    record
}

/// A foreign key from the column `p` to the column `referenced` of `d/p`.
fn request(referenced: &str, on_delete: ReferentialAction) -> ForeignKeyRequest {
    ForeignKeyRequest {
        added: vec![NewForeignKey {
            columns: vec![ForeignKeyColumn {
                name: "p".into(),
                referenced: referenced.into(),
                chars: 0,
            }],
            parent: "d/p".into(),
            on_delete,
            ..NewForeignKey::default()
        }],
        table_text: "c".into(),
        checks: true,
        ..ForeignKeyRequest::default()
    }
}

struct World {
    db: Arc<Db>,
    parent: Arc<Table>,
    child: Arc<Table>,
    statement: AtomicU64,
}

/// The columns of the referenced table, and its index that the foreign key uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Referenced {
    Primary,
    Unique,
    Plain,
}

impl World {
    fn new(on_delete: ReferentialAction, referenced: Referenced) -> Self {
        let options = Options {
            background_jobs: 0,
            ..Options::default()
        };
        let env: Arc<dyn Env> = Arc::new(MemEnv::new());
        let db = Db::open(env, Path::new("/db"), options, None).unwrap();
        let parent = schema(
            &["id", "u", "k"],
            &[("PRIMARY", true, 0), ("u", true, 1), ("k", false, 2)],
        );
        let child = schema(&["id", "p"], &[("PRIMARY", true, 0), ("p", false, 1)]);
        let new = |schema: &TableSchema| NewTable {
            schema: schema.clone(),
            frm: b"",
            version: b"",
            created_micros: 0,
        };
        let column = match referenced {
            Referenced::Primary => "id",
            Referenced::Unique => "u",
            Referenced::Plain => "k",
        };
        let request = request(column, on_delete);
        db.catalog().create("d/p", new(&parent)).unwrap();
        let catalog = db.catalog();
        catalog
            .create_referencing("d/c", new(&child), 0, &request)
            .unwrap();
        let parent = Table::open(catalog, "d/p", parent, &[]).unwrap();
        let child = Table::open(catalog, "d/c", child, &[]).unwrap();
        let world = Self {
            db: Arc::clone(&db),
            parent,
            child,
            statement: AtomicU64::new(0),
        };
        let mut txn = world.begin(0);
        world.insert_parent(&mut txn, 1).unwrap();
        world.insert_parent(&mut txn, 2).unwrap();
        txn.commit().unwrap();
        world
    }

    fn begin(&self, timeout_us: u64) -> Transaction {
        let mut txn = self.db.new_transaction(self.db.new_owner(0));
        let id = self.statement.fetch_add(1, Ordering::Relaxed) + 1;
        txn.begin_statement(id, Isolation::RepeatableRead, timeout_us, false);
        txn
    }

    fn insert_parent(&self, txn: &mut Transaction, id: i32) -> Result<()> {
        let (row, mut scratch) = (record(&[id, id, id]), RowScratch::default());
        let flags = WriteFlags::default();
        // SAFETY: blob columns must point to their bytes; the tables have none.
        unsafe { self.parent.insert(txn, &row, flags, &mut scratch) }.map(|_| ())
    }

    fn delete_parent(&self, txn: &mut Transaction, id: i32) -> Result<()> {
        let (row, mut scratch) = (record(&[id, id, id]), RowScratch::default());
        let flags = WriteFlags::default();
        // SAFETY: blob columns must point to their bytes; the tables have none.
        unsafe { self.parent.delete(txn, &row, None, flags, &mut scratch) }
    }

    fn insert_child(&self, txn: &mut Transaction, id: i32, parent: i32) -> Result<()> {
        let (row, mut scratch) = (record(&[id, parent]), RowScratch::default());
        let flags = WriteFlags::default();
        // SAFETY: blob columns must point to their bytes; the tables have none.
        unsafe { self.child.insert(txn, &row, flags, &mut scratch) }.map(|_| ())
    }

    /// Whether the committed rows keep the foreign key.
    fn is_whole(&self) -> bool {
        self.orphans().is_empty()
    }

    fn orphans(&self) -> Vec<String> {
        let point = self.db.context().super_versions.latest();
        firn::table::check_foreign_keys(&self.db.catalog().known(), "d/c", &point, &|| false)
            .unwrap()
            .problems
    }
}

fn violation(result: &Result<()>) -> Option<ForeignKeyViolation> {
    match result.as_ref().err()?.kind() {
        ErrorKind::ForeignKey(broken) => Some(broken.violation),
        other => panic!("{other:?}"),
    }
}

const ALL: [Referenced; 3] = [Referenced::Primary, Referenced::Unique, Referenced::Plain];

/// A deleter that runs whole between the check of a referencing row and its write fails with a lock
/// timeout, because the check has locked the referenced value.
#[test]
fn no_deleter_comes_between_check_and_write() {
    for referenced in ALL {
        let world = Rc::new(World::new(ReferentialAction::Restrict, referenced));
        let deleted = Rc::new(RefCell::new(None));
        let mut txn = world.begin(0);
        {
            let (world, deleted) = (Rc::clone(&world), Rc::clone(&deleted));
            pause_points::on_this_thread(move |point| {
                if point == PausePoint::ReferenceLocked && deleted.borrow().is_none() {
                    let mut other = world.begin(0);
                    let result = world.delete_parent(&mut other, 1);
                    if result.is_ok() {
                        other.commit().unwrap();
                    }
                    *deleted.borrow_mut() = Some(result);
                }
            });
        }
        world.insert_child(&mut txn, 1, 1).unwrap();
        pause_points::clear();
        let result = deleted.borrow_mut().take().expect("the point was passed");
        assert_eq!(
            *result.unwrap_err().kind(),
            ErrorKind::LockTimeout,
            "{referenced:?}"
        );
        txn.commit().unwrap();
        assert!(world.is_whole(), "{referenced:?}");
    }
}

/// A deleter that has committed before the value is locked: the check finds no row.
#[test]
fn the_check_reads_after_it_has_locked() {
    for referenced in ALL {
        let world = Rc::new(World::new(ReferentialAction::Restrict, referenced));
        let mut txn = world.begin(0);
        // The snapshot still shows the row.
        txn.fix_snapshot();
        {
            let world = Rc::clone(&world);
            pause_points::on_this_thread(move |point| {
                if point == PausePoint::ReferenceSought {
                    let mut other = world.begin(0);
                    world.delete_parent(&mut other, 1).unwrap();
                    other.commit().unwrap();
                }
            });
        }
        let result = world.insert_child(&mut txn, 1, 1);
        pause_points::clear();
        assert_eq!(
            violation(&result),
            Some(ForeignKeyViolation::NoReferencedRow),
            "{referenced:?}"
        );
        txn.commit().unwrap();
        assert!(world.is_whole());
    }
}

/// A referencing row that commits before the deleter searches is found, although the deleter's
/// snapshot is older.
#[test]
fn the_deleter_searches_the_latest_commit() {
    for referenced in ALL {
        let world = Rc::new(World::new(ReferentialAction::Restrict, referenced));
        let mut txn = world.begin(0);
        txn.fix_snapshot();
        let mut other = world.begin(0);
        world.insert_child(&mut other, 1, 1).unwrap();
        other.commit().unwrap();
        let result = world.delete_parent(&mut txn, 1);
        assert_eq!(
            violation(&result),
            Some(ForeignKeyViolation::RowIsReferenced)
        );
        txn.rollback().unwrap();
        // A writer that comes while the deleter searches waits for it.
        let mut txn = world.begin(0);
        let written = Rc::new(RefCell::new(None));
        {
            let (world, written) = (Rc::clone(&world), Rc::clone(&written));
            pause_points::on_this_thread(move |point| {
                if point == PausePoint::ReferencesSought {
                    let mut other = world.begin(0);
                    *written.borrow_mut() = Some(world.insert_child(&mut other, 2, 2));
                }
            });
        }
        world.delete_parent(&mut txn, 2).unwrap();
        pause_points::clear();
        let result = written.borrow_mut().take().expect("the point was passed");
        assert_eq!(*result.unwrap_err().kind(), ErrorKind::LockTimeout);
        txn.rollback().unwrap();
    }
}

/// A transaction that has written without checks holds no lock of the value, but its row is found.
#[test]
fn a_deleter_waits_for_rows_that_were_not_checked() {
    let world = World::new(ReferentialAction::Restrict, Referenced::Primary);
    let mut txn = world.begin(0);
    let flags = WriteFlags {
        skip_foreign_keys: true,
        ..WriteFlags::default()
    };
    let (row, mut scratch) = (record(&[1, 1]), RowScratch::default());
    // SAFETY: blob columns must point to their bytes; the table has none.
    unsafe { world.child.insert(&mut txn, &row, flags, &mut scratch) }.unwrap();
    let mut other = world.begin(0);
    let error = world.delete_parent(&mut other, 1).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::LockTimeout);
    txn.rollback().unwrap();
    world.delete_parent(&mut other, 1).unwrap();
    other.commit().unwrap();
}

/// A copying ALTER of the referenced table is refused while a transaction relies on its indexes,
/// and keeps others out until the copy has the name.
#[test]
fn no_index_is_replaced_under_a_reference() {
    let world = World::new(ReferentialAction::Restrict, Referenced::Primary);
    let mut txn = world.begin(0);
    world.insert_child(&mut txn, 1, 1).unwrap();
    let catalog = world.db.catalog();
    let swap = || catalog.rename_referencing("d/p", "d/#sql-backup", &TableRename::default());
    assert_eq!(*swap().unwrap_err().kind(), ErrorKind::LockTimeout);
    txn.commit().unwrap();
    swap().unwrap();
    let mut txn = world.begin(0);
    let error = world.insert_child(&mut txn, 2, 1).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::LockTimeout);
    let back = TableRename::default();
    catalog
        .rename_referencing("d/#sql-backup", "d/p", &back)
        .unwrap();
    world.insert_child(&mut txn, 2, 1).unwrap();
    txn.commit().unwrap();
    assert!(world.is_whole());
    let mut txn = world.begin(0);
    let result = world.delete_parent(&mut txn, 1);
    assert_eq!(
        violation(&result),
        Some(ForeignKeyViolation::RowIsReferenced)
    );
}

/// Threads insert and delete on both sides, with deadlocks and rollbacks. No committed row refers
/// to a row that is not there.
#[test]
fn no_interleaving_leaves_an_orphan() {
    for (seed, referenced) in ALL.into_iter().enumerate() {
        for action in [ReferentialAction::Restrict, ReferentialAction::Cascade] {
            let world = Arc::new(World::new(action, referenced));
            let threads = (0..4).map(|number| {
                let world = Arc::clone(&world);
                thread::spawn(move || {
                    let mut rng = SmallRng::seed_from_u64(number + 10 * seed as u64);
                    for step in 0..120 {
                        let mut txn = world.begin(2_000_000);
                        let mut good = true;
                        for _ in 0..rng.random_range(1..4) {
                            let parent = rng.random_range(1..5);
                            let child = 1000 * (number as i32 + 1) + step;
                            let done = match rng.random_range(0..4) {
                                0 => world.insert_parent(&mut txn, parent),
                                1 if world.exists(&mut txn, parent) => {
                                    world.delete_parent(&mut txn, parent)
                                }
                                _ => world.insert_child(&mut txn, child, parent),
                            };
                            if let Err(error) = &done
                                && !matches!(error.kind(), ErrorKind::ForeignKey(_))
                            {
                                good = false;
                                break;
                            }
                        }
                        match good && rng.random_bool(0.8) {
                            true => txn.commit().unwrap(),
                            false => txn.rollback().unwrap(),
                        }
                    }
                })
            });
            let threads: Vec<_> = threads.collect();
            threads.into_iter().for_each(|one| one.join().unwrap());
            assert_eq!(
                world.orphans(),
                Vec::<String>::new(),
                "{referenced:?} {action:?}"
            );
        }
    }
}

impl World {
    /// Locks the referenced row with this id for a deletion. Whether there is one.
    fn exists(&self, txn: &mut Transaction, id: i32) -> bool {
        use firn::table::{Cursor, KeyImage, LockWait, ReadMode, SeekMode};
        use firn::txn::LockMode;
        let mut cursor = Cursor::new(Arc::clone(&self.parent));
        let mode = ReadMode::Locking(LockMode::Exclusive);
        cursor.reset(Some(0), mode, LockWait::Wait).unwrap();
        let mut buffer = vec![0; self.parent.record_len()];
        let key = id.to_le_bytes();
        let found = cursor.seek(txn, KeyImage::image(&key), SeekMode::Exact, &mut buffer);
        found.unwrap_or(false)
    }
}

/// From REPEATABLE READ on, the deleter of a referenced row keeps its value from being referred to,
/// even by transactions that do not check. It locks no other value: to find the ends of the gap, it
/// would have to walk over the tombstones of all values that were deleted before.
#[test]
fn a_deleter_locks_the_value_and_not_its_neighbours() {
    for action in [ReferentialAction::Restrict, ReferentialAction::Cascade] {
        let world = World::new(action, Referenced::Primary);
        let mut txn = world.begin(0);
        if action == ReferentialAction::Cascade {
            for child in [5, 7] {
                world.insert_child(&mut txn, child, 1).unwrap();
            }
            txn.commit().unwrap();
            txn = world.begin(0);
        }
        world.delete_parent(&mut txn, 1).unwrap();
        let insert = |child: i32, parent: i32| {
            let mut other = world.begin(0);
            let flags = WriteFlags {
                skip_foreign_keys: true,
                ..WriteFlags::default()
            };
            let (row, mut scratch) = (record(&[child, parent]), RowScratch::default());
            // SAFETY: blob columns must point to their bytes; the table has none.
            unsafe { world.child.insert(&mut other, &row, flags, &mut scratch) }
        };
        // Below, between and above the rows that the cascade has deleted.
        for child in [4, 6, 8] {
            let error = insert(child, 1).unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::LockTimeout, "{action:?} {child}");
        }
        insert(1, 0).unwrap();
        insert(2, 2).unwrap();
        txn.rollback().unwrap();
    }
}
