//! Optimistic tables: nothing is locked, and the first committer wins.

use super::prepared::{insert, open_in, record, schema};
use super::schema::open_or_create;
use firn::base::options::Options;
use firn::base::pause_points::{self, PausePoint};
use firn::base::{ErrorKind, Result};
use firn::catalog::{TableLocking, TableSchema};
use firn::db::Db;
use firn::env::{Env, MemEnv};
use firn::table::{
    Cursor, KeyImage, LockWait, ReadMode, RowScratch, Table, WriteFlags, WriteOutcome,
};
use firn::txn::{Isolation, LockMode, Transaction};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

mod scans;

const LEVELS: [Isolation; 2] = [Isolation::ReadCommitted, Isolation::RepeatableRead];

/// The schema `id INT PRIMARY KEY, k INT NULL, UNIQUE (k)`, optimistic.
fn optimistic() -> TableSchema {
    TableSchema {
        locking: TableLocking::Optimistic,
        ..schema()
    }
}

fn open(env: Arc<dyn Env>) -> (Arc<Db>, Arc<Table>) {
    let options = Options {
        background_jobs: 0,
        ..Options::default()
    };
    let db = Db::open(env, Path::new("/db"), options, None).unwrap();
    let table = open_or_create(&db, "d/t", optimistic());
    assert!(table.is_optimistic());
    (db, table)
}

/// A database with the rows 1 to 9, of which each has its id as `k`.
fn filled() -> (MemEnv, Arc<Db>, Arc<Table>) {
    let env = MemEnv::new();
    let (db, table) = open(Arc::new(env.clone()));
    let mut txn = Txn::begin(&db, &table, Isolation::ReadCommitted);
    (1..10).for_each(|id| txn.insert(id, Some(id)).unwrap());
    txn.commit().unwrap();
    (env, db, table)
}

/// A transaction on the table; each call is a statement.
struct Txn {
    txn: Transaction,
    table: Arc<Table>,
    isolation: Isolation,
    statement: u64,
    scratch: RowScratch,
}

fn done(written: WriteOutcome) {
    assert!(
        matches!(written, WriteOutcome::Done { .. } | WriteOutcome::Same),
        "{written:?}"
    );
}

impl Txn {
    fn begin(db: &Db, table: &Arc<Table>, isolation: Isolation) -> Self {
        Self {
            txn: db.new_transaction(db.new_owner(0)),
            table: Arc::clone(table),
            isolation,
            statement: 0,
            scratch: RowScratch::default(),
        }
    }

    fn statement(&mut self) {
        self.statement += 1;
        self.txn
            .begin_statement(self.statement, self.isolation, 0, false);
    }

    fn insert(&mut self, id: i32, k: Option<i32>) -> Result<()> {
        self.statement();
        insert(&self.table, &mut self.txn, id, k).map(done)
    }

    /// Looks a row up for a change or for sharing; returns its `k`.
    fn lock(&mut self, id: i32, mode: LockMode) -> Result<Option<Option<i32>>> {
        self.statement();
        self.find(id, mode)
    }

    fn find(&mut self, id: i32, mode: LockMode) -> Result<Option<Option<i32>>> {
        let mut cursor = Cursor::new(Arc::clone(&self.table));
        let mode = self.table.read_mode(&self.txn, ReadMode::Locking(mode));
        cursor.reset(Some(0), mode, LockWait::Fail).unwrap();
        let mut buffer = record(0, None);
        let key = id.to_le_bytes();
        let found = cursor.get(&mut self.txn, KeyImage::image(&key), &mut buffer)?;
        let k = || i32::from_le_bytes(buffer[5..9].try_into().unwrap());
        Ok(found.then(|| (buffer[0] == 0).then(k)))
    }

    /// UPDATE of one row by its primary key.
    fn update(&mut self, id: i32, k: Option<i32>) -> Result<()> {
        self.statement();
        let old = self.find(id, LockMode::Exclusive)?.expect("a row");
        let (old, new, flags) = (record(id, old), record(id, k), WriteFlags::default());
        let (table, scratch) = (&self.table, &mut self.scratch);
        // SAFETY: blob columns must point to their bytes; this table has none.
        unsafe { table.update(&mut self.txn, &old, &new, None, flags, scratch) }.map(done)
    }

    fn delete(&mut self, id: i32) -> Result<()> {
        self.statement();
        let old = self.find(id, LockMode::Exclusive)?.expect("a row");
        let (old, flags) = (record(id, old), WriteFlags::default());
        let (table, scratch) = (&self.table, &mut self.scratch);
        // SAFETY: blob columns must point to their bytes; this table has none.
        unsafe { table.delete(&mut self.txn, &old, None, flags, scratch) }
    }

    fn commit(&mut self) -> Result<()> {
        let committed = self.txn.commit();
        if committed.is_err() {
            self.txn.rollback().unwrap();
        }
        committed
    }
}

fn loses(result: Result<()>) {
    assert_eq!(*result.unwrap_err().kind(), ErrorKind::Deadlock);
}

fn read(db: &Db, table: &Arc<Table>, id: i32) -> Option<Option<i32>> {
    let mut txn = Txn::begin(db, table, Isolation::ReadCommitted);
    txn.lock(id, LockMode::Shared).unwrap()
}

#[test]
fn the_first_committer_wins_and_nothing_is_locked() {
    for isolation in LEVELS {
        let (_env, db, table) = filled();
        let mut one = Txn::begin(&db, &table, isolation);
        let mut two = Txn::begin(&db, &table, isolation);
        one.update(1, Some(11)).unwrap();
        two.update(1, Some(12)).unwrap();
        one.delete(2).unwrap();
        two.update(3, Some(13)).unwrap();
        for txn in [&one, &two] {
            assert_eq!(txn.txn.owner().locks_held(), 0);
        }
        two.commit().unwrap();
        loses(one.commit());
        assert_eq!(one.txn.owner().locks_held(), 0);
        assert_eq!(two.txn.owner().locks_held(), 0);
        assert_eq!(read(&db, &table, 1), Some(Some(12)));
        assert_eq!(read(&db, &table, 2), Some(Some(2)));
        one.update(1, Some(11)).unwrap();
        one.commit().unwrap();
        assert_eq!(db.context().locks.stats().conflicts, 1);
        assert_eq!(db.context().locks.stats().waits, 0);
    }
}

#[test]
fn a_row_is_validated_against_the_point_at_which_it_was_read() {
    for isolation in LEVELS {
        let (_env, db, table) = filled();
        let mut one = Txn::begin(&db, &table, isolation);
        let mut two = Txn::begin(&db, &table, isolation);
        one.update(1, Some(11)).unwrap();
        two.update(2, Some(12)).unwrap();
        two.commit().unwrap();
        // At READ COMMITTED the statement sees what `two` has done.
        one.update(2, Some(22)).unwrap();
        match isolation {
            Isolation::ReadCommitted => one.commit().unwrap(),
            _ => loses(one.commit()),
        }
        // A row that two statements read must fit the first one.
        one.lock(5, LockMode::Shared).unwrap();
        two.update(5, Some(15)).unwrap();
        two.commit().unwrap();
        one.update(5, Some(25)).unwrap();
        loses(one.commit());
        assert_eq!(read(&db, &table, 5), Some(Some(15)));
    }
}

#[test]
fn reads_for_update_are_validated() {
    for isolation in LEVELS {
        let (_env, db, table) = filled();
        let mut one = Txn::begin(&db, &table, isolation);
        let mut two = Txn::begin(&db, &table, isolation);
        one.lock(1, LockMode::Exclusive).unwrap();
        assert_eq!(one.lock(20, LockMode::Shared).unwrap(), None);
        two.update(1, Some(11)).unwrap();
        two.commit().unwrap();
        loses(one.commit());
        // Another engine has committed already.
        one.lock(1, LockMode::Shared).unwrap();
        two.update(1, Some(10)).unwrap();
        two.commit().unwrap();
        one.txn.forget_reads();
        one.commit().unwrap();
        one.lock(1, LockMode::Shared).unwrap();
        two.update(1, Some(12)).unwrap();
        two.commit().unwrap();
        one.update(2, Some(22)).unwrap();
        loses(one.commit());
        // A missing row counts as well.
        assert_eq!(one.lock(20, LockMode::Shared).unwrap(), None);
        one.update(2, Some(22)).unwrap();
        two.insert(20, None).unwrap();
        two.commit().unwrap();
        loses(one.commit());
    }
}

/// A compaction forgets the seqnos of old versions, and deletions that nobody needs.
#[test]
fn a_compaction_hides_no_conflict() {
    for isolation in LEVELS {
        for deletes in [false, true] {
            let (_env, db, table) = filled();
            let mut one = Txn::begin(&db, &table, isolation);
            let mut two = Txn::begin(&db, &table, isolation);
            one.lock(1, LockMode::Shared).unwrap();
            match deletes {
                true => two.delete(1).unwrap(),
                false => two.update(1, Some(11)).unwrap(),
            }
            two.commit().unwrap();
            db.compact_all().unwrap();
            one.insert(30, None).unwrap();
            loses(one.commit());
            assert_eq!(db.snapshot_age().commits, 0, "the snapshot is gone");
        }
    }
}

#[test]
fn inserts_of_one_key_and_of_one_unique_value() {
    for isolation in LEVELS {
        for (first, second) in [((20, 20), (20, 21)), ((20, 20), (21, 20))] {
            let (_env, db, table) = filled();
            let mut one = Txn::begin(&db, &table, isolation);
            let mut two = Txn::begin(&db, &table, isolation);
            one.insert(first.0, Some(first.1)).unwrap();
            two.insert(second.0, Some(second.1)).unwrap();
            // The keys are held from the prepare on.
            two.txn.prepare(b"x").unwrap();
            loses(one.commit());
            two.commit().unwrap();
            let mut txn = Txn::begin(&db, &table, isolation);
            txn.statement();
            let again = insert(&table, &mut txn.txn, first.0, Some(first.1)).unwrap();
            assert!(matches!(again, WriteOutcome::Duplicate { .. }));
        }
        // A flush in between: files cannot be asked for what they have newly.
        let (_env, db, table) = filled();
        let mut one = Txn::begin(&db, &table, isolation);
        one.insert(20, Some(20)).unwrap();
        let mut two = Txn::begin(&db, &table, isolation);
        two.insert(21, Some(20)).unwrap();
        two.commit().unwrap();
        db.flush().unwrap();
        loses(one.commit());
        // An unrelated flush is no conflict, and NULL is never taken.
        one.insert(30, Some(30)).unwrap();
        one.insert(31, None).unwrap();
        two.insert(40, Some(40)).unwrap();
        two.insert(41, None).unwrap();
        two.commit().unwrap();
        db.flush().unwrap();
        one.commit().unwrap();
    }
}

#[test]
fn a_prepared_transaction_keeps_its_keys() {
    for (crash, commits) in [(false, true), (false, false), (true, true), (true, false)] {
        let (env, mut db, mut table) = filled();
        let mut one = Txn::begin(&db, &table, Isolation::RepeatableRead);
        one.update(1, Some(100)).unwrap();
        one.insert(20, Some(20)).unwrap();
        one.lock(9, LockMode::Shared).unwrap();
        one.txn.prepare_to_stay(b"x").unwrap();
        if crash {
            drop((one, db));
            (db, table) = open(Arc::new(env.crash(1)));
        } else {
            let fresh = db.new_owner(0);
            one.txn.detach(fresh);
        }
        let mut two = Txn::begin(&db, &table, Isolation::ReadCommitted);
        for id in [1, 20] {
            match id {
                1 => two.delete(1).unwrap(),
                _ => two.insert(20, None).unwrap(),
            }
            loses(two.commit());
        }
        two.insert(21, Some(20)).unwrap();
        loses(two.commit());
        two.update(9, Some(99)).unwrap();
        two.update(2, Some(22)).unwrap();
        two.commit().unwrap();
        let known = match commits {
            true => db.commit_xid(b"x").unwrap(),
            false => db.rollback_xid(b"x").unwrap(),
        };
        assert!(known);
        assert_eq!(read(&db, &table, 20).is_some(), commits);
        two.update(1, Some(101)).unwrap();
        two.commit().unwrap();
    }
}

#[test]
fn spilled_writes_are_validated() {
    let (_env, db, table) = filled();
    let mutable = Arc::clone(&db.context().mutable);
    mutable.txn_memory_limit.store(1, Ordering::Relaxed);
    for isolation in LEVELS {
        for clash in [false, true] {
            let mut one = Txn::begin(&db, &table, isolation);
            (100..160).for_each(|id| one.insert(id, Some(id)).unwrap());
            one.update(2, Some(1002)).unwrap();
            assert!(!one.txn.spilled_files().is_empty());
            let mut two = Txn::begin(&db, &table, isolation);
            two.insert(500, Some(if clash { 159 } else { 500 }))
                .unwrap();
            two.commit().unwrap();
            match clash {
                true => loses(one.commit()),
                false => one.commit().unwrap(),
            }
            let mut two = Txn::begin(&db, &table, isolation);
            two.delete(500).unwrap();
            two.update(2, Some(2)).unwrap();
            if !clash {
                (100..160).for_each(|id| two.delete(id).unwrap());
            }
            two.commit().unwrap();
        }
    }
}

#[test]
fn savepoints_keep_what_was_noted() {
    let (_env, db, table) = filled();
    let mut one = Txn::begin(&db, &table, Isolation::RepeatableRead);
    one.update(1, Some(11)).unwrap();
    let mark = one.txn.set_savepoint();
    one.update(2, Some(12)).unwrap();
    one.txn.rollback_to(mark);
    let mut two = Txn::begin(&db, &table, Isolation::RepeatableRead);
    two.update(2, Some(22)).unwrap();
    two.commit().unwrap();
    loses(one.commit());
    // The keys of a row that is a duplicate are not kept.
    one.statement();
    let written = insert(&table, &mut one.txn, 50, Some(3)).unwrap();
    assert!(matches!(written, WriteOutcome::Duplicate { index: 1 }));
    one.update(1, Some(11)).unwrap();
    two.insert(50, Some(50)).unwrap();
    two.commit().unwrap();
    one.commit().unwrap();
}

/// A read point must not lack a commit that its seqno covers: one that replaces the memtable comes
/// between the two loads.
#[test]
fn a_point_lacks_no_commit_up_to_its_seqno() {
    let (_env, db, table) = filled();
    let mutable = Arc::clone(&db.context().mutable);
    let mut one = Txn::begin(&db, &table, Isolation::ReadCommitted);
    // The transaction has a snapshot, and pins a new point with its next statement.
    one.lock(9, LockMode::Shared).unwrap();
    let (other, rows) = (Arc::clone(&db), Arc::clone(&table));
    let mut left = 1;
    pause_points::on_this_thread(move |point| {
        if point == PausePoint::Pinned && left > 0 {
            left -= 1;
            // Spilled changes become visible with a new memtable.
            mutable.txn_memory_limit.store(1, Ordering::Relaxed);
            let mut two = Txn::begin(&other, &rows, Isolation::RepeatableRead);
            two.update(1, Some(11)).unwrap();
            two.commit().unwrap();
        }
    });
    let seen = one.lock(1, LockMode::Exclusive).unwrap();
    pause_points::clear();
    one.update(2, Some(22)).unwrap();
    match seen {
        Some(Some(1)) => loses(one.commit()),
        seen => {
            assert_eq!(seen, Some(Some(11)));
            one.commit().unwrap();
        }
    }
}

/// A statement that says so before it reads has one read point, which the validation can use.
#[test]
fn a_statement_that_expects_changes_keeps_its_read_point() {
    for expects in [true, false] {
        let (_env, db, table) = filled();
        let mut one = Txn::begin(&db, &table, Isolation::ReadCommitted);
        one.statement();
        if expects {
            table.expect_changes(&mut one.txn);
        }
        let before = one.txn.read_point().seqno;
        let mut two = Txn::begin(&db, &table, Isolation::ReadCommitted);
        two.update(1, Some(11)).unwrap();
        two.commit().unwrap();
        let seen = one.find(1, LockMode::Exclusive).unwrap();
        assert_eq!(one.txn.pinned().seqno == before, expects);
        if expects {
            // A compaction must not hide the commit after the point.
            db.flush().unwrap();
            assert_eq!(seen, Some(Some(1)));
            one.update(2, Some(22)).unwrap();
            loses(one.commit());
        } else {
            assert_eq!(seen, Some(Some(11)));
            one.commit().unwrap();
        }
        assert_eq!(db.snapshot_age().commits, 0, "the snapshot is gone");
    }
}

/// A SERIALIZABLE transaction locks rows and gaps; an optimistic one runs into these locks, and is
/// waited for while it commits.
#[test]
fn transactions_that_lock_meet_those_that_are_validated() {
    let (_env, db, table) = filled();
    let mut locker = Txn::begin(&db, &table, Isolation::Serializable);
    assert_eq!(locker.lock(5, LockMode::Shared).unwrap(), Some(Some(5)));
    assert_eq!(locker.lock(50, LockMode::Shared).unwrap(), None);
    let mut one = Txn::begin(&db, &table, Isolation::ReadCommitted);
    one.update(5, Some(55)).unwrap();
    loses(one.commit());
    // The gap above the last row is locked.
    one.insert(60, None).unwrap();
    loses(one.commit());
    one.update(4, Some(44)).unwrap();
    one.txn.prepare(b"x").unwrap();
    let refused = locker.lock(4, LockMode::Shared).unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::LockNotAvailable);
    one.commit().unwrap();
    assert_eq!(locker.lock(4, LockMode::Shared).unwrap(), Some(Some(44)));
    locker.update(4, Some(45)).unwrap();
    let mut two = Txn::begin(&db, &table, Isolation::RepeatableRead);
    two.update(4, Some(46)).unwrap();
    locker.commit().unwrap();
    loses(two.commit());
    // So does a session that applies another server's changes.
    let mut applier = Txn::begin(&db, &table, Isolation::ReadCommitted);
    applier.txn.lock_optimistic_tables(true);
    applier.update(4, Some(47)).unwrap();
    two.update(4, Some(48)).unwrap();
    loses(two.commit());
    applier.commit().unwrap();
    assert_eq!(read(&db, &table, 4), Some(Some(47)));
}

/// Of several transactions that conflict one commits, and each commit takes effect.
#[test]
fn sessions_that_clash_all_the_time_make_progress() {
    const THREADS: i32 = 4;
    let (_env, db, table) = filled();
    let done: i32 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (db, table) = (&db, &table);
                scope.spawn(move || {
                    let mut done = 0;
                    for round in 0..300 {
                        let isolation = LEVELS[(round % 2) as usize];
                        let mut txn = Txn::begin(db, table, isolation);
                        // Two rows in different orders. The values of k stay unique.
                        let rows = [(1, 1000), (2, 2_000_000)];
                        let order = (round + thread) % 2;
                        for at in [order, 1 - order] {
                            let (id, base) = rows[at as usize];
                            let k = txn.lock(id, LockMode::Exclusive).unwrap().unwrap().unwrap();
                            let k = if k < 1000 { base } else { k };
                            txn.update(id, Some(k + 1)).unwrap();
                        }
                        match txn.commit() {
                            Ok(()) => done += 1,
                            Err(error) => assert_eq!(*error.kind(), ErrorKind::Deadlock),
                        }
                    }
                    done
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    // A commit makes the others fail, and an attempt that fails may have been in the way of more.
    // With few processors one of four may commit, or one of five; without progress there would be
    // none.
    assert!(done >= 60, "{done} commits");
    assert_eq!(read(&db, &table, 1), Some(Some(1000 + done)));
    assert_eq!(read(&db, &table, 2), Some(Some(2_000_000 + done)));
    let conflicts = db.context().locks.stats().conflicts;
    assert_eq!(conflicts, (THREADS * 300 - done) as u64);
}

/// A database from before optimistic tables, and one whose definition changes.
#[test]
fn the_stored_definition_decides() {
    let env = MemEnv::new();
    let (db, table) = open_in(Arc::new(env.clone()), Options::default());
    assert!(!table.is_optimistic());
    let given = open_or_create(&db, "d/t", optimistic());
    assert!(!given.is_optimistic());
    assert!(given.warning().unwrap().contains("locking"));
}
