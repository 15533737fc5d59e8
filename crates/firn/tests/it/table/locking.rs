//! Locking scans while other transactions commit.

use super::*;
use firn::base::ErrorKind;
use firn::base::pause_points::{self, PausePoint};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;

/// The position of a row in an index: the indexed value and the row's id.
fn place(index: usize, (id, (k, _)): (i32, (i32, i32))) -> (i32, i32) {
    (if index == 0 { id } else { k }, id)
}

impl World {
    pub(super) fn begin_at(&mut self, isolation: Isolation) -> Transaction {
        let mut txn = self.db.new_transaction(self.db.new_owner(0));
        self.statement += 1;
        txn.begin_statement(self.statement, isolation, 0, false);
        txn
    }

    /// Commits another transaction that inserts, changes and deletes rows that are not in `locked`.
    /// `gaps`: a scan may have locked gaps, and inserts into them fail.
    fn commit_beside(&mut self, rows: &mut Rows, locked: &BTreeSet<i32>, gaps: bool) {
        let mut txn = self.begin_at(Isolation::ReadCommitted);
        if self.rng.random_bool(0.2) {
            // The transaction spills each write to a file, and its commit replaces the memtable.
            let mutable = Arc::clone(&self.db.context().mutable);
            mutable.txn_memory_limit.store(1, Ordering::Relaxed);
        }
        let (flags, mut scratch) = (WriteFlags::default(), RowScratch::default());
        for _ in 0..self.rng.random_range(1..4) {
            let id = self.rng.random_range(0..60);
            if locked.contains(&id) {
                continue;
            }
            let new = (id, (self.rng.random_range(-50..50), self.rng.random()));
            let table = &self.table;
            // SAFETY: blob columns must point to their bytes; this table has none.
            let written = unsafe {
                match rows.get(&id).copied() {
                    None => table.insert(&mut txn, &record(new), flags, &mut scratch),
                    Some(old) if self.rng.random_bool(0.4) => {
                        let old = record((id, old));
                        rows.remove(&id);
                        table
                            .delete(&mut txn, &old, None, flags, &mut scratch)
                            .unwrap();
                        continue;
                    }
                    Some(old) => {
                        let old = record((id, old));
                        table.update(&mut txn, &old, &record(new), None, flags, &mut scratch)
                    }
                }
            };
            match written {
                Ok(WriteOutcome::Done { .. } | WriteOutcome::Same) => {
                    rows.insert(id, new.1);
                }
                // The scan has locked the gap.
                Err(error) if gaps && *error.kind() == ErrorKind::LockTimeout => {}
                other => panic!("{other:?}"),
            }
        }
        txn.commit().unwrap();
        let mutable = &self.db.context().mutable;
        mutable.txn_memory_limit.store(64 << 20, Ordering::Relaxed);
        // There are no background threads: flush, or the stall gate slows the writers down.
        match self.statement % 6 {
            0 => self.db.compact_all().unwrap(),
            1 if self.rng.random_bool(0.5) => self.db.flush().unwrap(),
            _ => {}
        }
    }
}

/// A locking scan meets the rows that others commit in front of it: in both directions, in the
/// primary index and in a secondary one.
#[test]
fn a_locking_scan_reads_on_at_the_newest_point() {
    for seed in 0..20 {
        let mut world = World::new(seed);
        let mut rows = Rows::new();
        let mut txn = world.session();
        world.write(&mut txn, &mut rows, 20);
        txn.commit().unwrap();
        for scan in 0..4 {
            for _ in 0..3 {
                world.commit_beside(&mut rows, &BTreeSet::new(), false);
            }
            let isolation = [Isolation::ReadCommitted, Isolation::RepeatableRead][scan % 2];
            let mut txn = world.begin_at(isolation);
            // Locking reads must ignore this older snapshot.
            txn.pin();
            let index = world.rng.random_range(0..2);
            let forward = world.rng.random_bool(0.6);
            let mode = ReadMode::Locking(LockMode::Exclusive);
            let mut cursor = Cursor::new(Arc::clone(&world.table));
            cursor.reset(Some(index), mode, LockWait::Fail).unwrap();
            let end = world.rng.random_range(10..70);
            let mut buffer = [0; RECORD];
            let mut locked = BTreeSet::new();
            let bounded = forward && world.rng.random_bool(0.5);
            if bounded {
                let key = i32::to_le_bytes(end);
                cursor
                    .set_end_range(Some(KeyImage::image(&key)), true)
                    .unwrap();
            }
            let mut on = match forward {
                true => cursor.first(&mut txn, &mut buffer).unwrap(),
                false => cursor.last(&mut txn, &mut buffer).unwrap(),
            };
            let mut last: Option<(i32, i32)> = None;
            loop {
                let places = rows.iter().map(|(&id, &rest)| (id, rest));
                let places = places.map(|row| (place(index, row), row));
                let expected = places
                    .filter(|(at, _)| {
                        let ahead = |last: (i32, i32)| (*at > last) == forward && *at != last;
                        last.is_none_or(ahead) && (!bounded || at.0 <= end)
                    })
                    .reduce(|a, b| if (a.0 < b.0) == forward { a } else { b })
                    .map(|(_, row)| row);
                let found = on.then(|| row(&buffer));
                let context = format!("seed {seed}, scan {scan}, after {last:?}");
                assert_eq!(found, expected, "{context}");
                let Some(found) = found else { break };
                locked.insert(found.0);
                last = Some(place(index, found));
                if world.rng.random_bool(0.7) {
                    let gaps = isolation == Isolation::RepeatableRead;
                    world.commit_beside(&mut rows, &locked, gaps);
                }
                on = match forward {
                    true => cursor.next(&mut txn, &mut buffer).unwrap(),
                    false => cursor.prev(&mut txn, &mut buffer).unwrap(),
                };
            }
            txn.rollback().unwrap();
        }
    }
}

/// The lock holder's commit replaces the memtable after the scan has pinned its super version and
/// before it reads the visible seqno: the scan's read point has the seqno of that commit, but a
/// super version without it. The row under the cursor is older than its lock, so the scan must read
/// it again.
#[test]
fn a_row_is_not_older_than_its_lock() {
    for index in [0, 1] {
        let mut world = World::new(1);
        let (flags, mut scratch) = (WriteFlags::default(), RowScratch::default());
        let table = Arc::clone(&world.table);
        let at = |id, v| record((id, (id, v)));
        let mut txn = world.session();
        for id in [1, 2] {
            // SAFETY: blob columns must point to their bytes; this table has none.
            unsafe { table.insert(&mut txn, &at(id, 10), flags, &mut scratch) }.unwrap();
        }
        txn.commit().unwrap();

        let mutable = Arc::clone(&world.db.context().mutable);
        mutable.txn_memory_limit.store(1, Ordering::Relaxed);
        let mut holder = world.session();
        for id in [1, 2] {
            let (old, new) = (at(id, 10), at(id, 11));
            // SAFETY: blob columns must point to their bytes; this table has none.
            unsafe { table.update(&mut holder, &old, &new, None, flags, &mut scratch) }.unwrap();
        }
        assert!(
            !holder.spilled_files().is_empty(),
            "its commit is one of files"
        );
        let holder = Rc::new(RefCell::new(holder));
        let commits = Rc::new(RefCell::new(0));

        let mut reader = world.session();
        let mut cursor = Cursor::new(Arc::clone(&world.table));
        let mode = ReadMode::Locking(LockMode::Exclusive);
        cursor.reset(Some(index), mode, LockWait::Fail).unwrap();
        let mut buffer = [0; RECORD];
        let (committed, count) = (Rc::clone(&holder), Rc::clone(&commits));
        pause_points::on_this_thread(move |point| {
            if point == PausePoint::Pinned && committed.borrow().is_active() {
                committed.borrow_mut().commit().unwrap();
                *count.borrow_mut() += 1;
            }
        });
        let found = cursor.first(&mut reader, &mut buffer);
        pause_points::clear();
        assert!(found.unwrap(), "index {index}");
        assert_eq!(*commits.borrow(), 1, "index {index}");
        assert_eq!(row(&buffer), (1, (1, 11)), "index {index}");
        assert!(cursor.next(&mut reader, &mut buffer).unwrap());
        assert_eq!(row(&buffer), (2, (2, 11)), "index {index}");
        assert!(!cursor.next(&mut reader, &mut buffer).unwrap());
    }
}

/// The lock holder's commit is a file that is already in the scan's super version, but becomes
/// visible only after the scan has taken its read point. The row under the cursor is older than its
/// lock, so the scan must read it again.
#[test]
fn a_row_is_not_older_than_its_lock_if_the_commit_was_in_a_file_before_it_was_visible() {
    for index in [0, 1] {
        let mut world = World::new(1);
        let (flags, mut scratch) = (WriteFlags::default(), RowScratch::default());
        let table = Arc::clone(&world.table);
        let (old, new) = (record((1, (1, 10))), record((1, (1, 11))));
        let mut txn = world.session();
        // SAFETY: blob columns must point to their bytes; this table has none.
        unsafe { table.insert(&mut txn, &old, flags, &mut scratch) }.unwrap();
        txn.commit().unwrap();

        let mutable = Arc::clone(&world.db.context().mutable);
        mutable.txn_memory_limit.store(1, Ordering::Relaxed);
        let mut holder = world.session();
        // SAFETY: blob columns must point to their bytes; this table has none.
        unsafe { table.update(&mut holder, &old, &new, None, flags, &mut scratch) }.unwrap();
        let (queued, is_queued) = mpsc::channel();
        let (allow, is_allowed) = mpsc::channel::<()>();
        let commit = std::thread::spawn(move || {
            pause_points::on_this_thread(move |point| {
                if point == PausePoint::Sequenced {
                    queued.send(()).unwrap();
                    is_allowed.recv().unwrap();
                }
            });
            holder.commit().unwrap();
        });
        is_queued.recv().unwrap();

        let mut reader = world.session();
        let mut cursor = Cursor::new(Arc::clone(&world.table));
        let mode = ReadMode::Locking(LockMode::Exclusive);
        cursor.reset(Some(index), mode, LockWait::Fail).unwrap();
        let mut buffer = [0; RECORD];
        let mut commit = Some(commit);
        pause_points::on_this_thread(move |point| {
            if point == PausePoint::LockWanted
                && let Some(commit) = commit.take()
            {
                allow.send(()).unwrap();
                commit.join().unwrap();
            }
        });
        let found = cursor.first(&mut reader, &mut buffer);
        pause_points::clear();
        assert!(found.unwrap(), "index {index}");
        assert_eq!(row(&buffer), (1, (1, 11)), "index {index}");
        assert!(!cursor.next(&mut reader, &mut buffer).unwrap());
    }
}

/// While the scan waits for the lock of a row, a compaction replaces all files, so the scan reads
/// the row again. That is a read of the range, and no point read.
#[test]
fn a_row_that_is_read_again_after_its_lock_counts_as_one_of_the_range() {
    const ROWS: i32 = 10;
    for index in [0, 1] {
        let options = Options {
            background_jobs: 0,
            block_cache_size: 0,
            row_cache_size: 0,
            ..Options::default()
        };
        let env: Arc<dyn Env> = Arc::new(MemEnv::new());
        let db = Db::open(env, Path::new("/db"), options, None).unwrap();
        let table = open_or_create(&db, "d/t", schema());
        let begin = |db: &Db| {
            let mut txn = db.new_transaction(db.new_owner(0));
            txn.begin_statement(1, Isolation::ReadCommitted, 0, false);
            txn
        };
        let insert = move |db: &Db, table: &Table, ids: std::ops::Range<i32>| {
            let (mut txn, mut scratch) = (begin(db), RowScratch::default());
            for id in ids {
                let (new, flags) = (record((id, (id, 0))), WriteFlags::default());
                // SAFETY: blob columns must point to their bytes; this table has none.
                unsafe { table.insert(&mut txn, &new, flags, &mut scratch) }.unwrap();
            }
            txn.commit().unwrap();
            db.compact_all().unwrap();
        };
        let reads = |db: &Db, class: ReadClass| {
            let mut all = db.file_reads();
            all.find(|one| one.class == class).unwrap().reads
        };
        insert(&db, &table, 0..ROWS);

        let mut txn = begin(&db);
        let mut cursor = Cursor::new(Arc::clone(&table));
        let mut buffer = [0; RECORD];
        // A whole key is a point; a reference, which a scan has found before, is none. The point
        // read is the last one, because the scan of the same cursor is none either.
        cursor
            .reset(Some(0), ReadMode::Snapshot, LockWait::Fail)
            .unwrap();
        let (key, made) = (KeyImage::image(&[3, 0, 0, 0]), || {
            [ReadClass::Point, ReadClass::Range].map(|class| reads(&db, class))
        });
        for (way, [points, ranges]) in [("reference", [0, 1]), ("seek", [1, 0]), ("get", [1, 0])] {
            let before = made();
            let found = match way {
                "reference" => cursor.get_row(&mut txn, key, &mut buffer),
                "seek" => cursor.seek(&mut txn, key, SeekMode::Exact, &mut buffer),
                _ => cursor.get(&mut txn, key, &mut buffer),
            };
            assert!(found.unwrap(), "{way}");
            assert_eq!(made(), [before[0] + points, before[1] + ranges], "{way}");
        }

        let mode = ReadMode::Locking(LockMode::Exclusive);
        cursor.reset(Some(index), mode, LockWait::Fail).unwrap();
        let (points, ranges) = (reads(&db, ReadClass::Point), reads(&db, ReadClass::Range));
        // Point reads of the inserts that check for duplicates.
        let beside = Rc::new(RefCell::new(0));
        let (host, counted) = (Arc::clone(&db), Rc::clone(&beside));
        let mut behind = 0;
        pause_points::on_this_thread(move |point| {
            if point == PausePoint::LockWanted {
                let before = reads(&host, ReadClass::Point);
                behind -= 1;
                insert(&host, &table, behind..behind + 1);
                *counted.borrow_mut() += reads(&host, ReadClass::Point) - before;
            }
        });
        let mut on = cursor.first(&mut txn, &mut buffer).unwrap();
        let mut found = 0;
        while on {
            assert_eq!(row(&buffer), (found, (found, 0)), "index {index}");
            found += 1;
            on = cursor.next(&mut txn, &mut buffer).unwrap();
        }
        pause_points::clear();
        assert_eq!(found, ROWS, "index {index}");
        let again = reads(&db, ReadClass::Point) - points - *beside.borrow();
        assert_eq!(again, 0, "index {index}");
        assert!(reads(&db, ReadClass::Range) - ranges > ROWS as u64);
        txn.rollback().unwrap();
    }
}

/// After the scan has read an entry and before it locks the row, another transaction moves the row
/// behind the scan and commits, so the scan does not wait. The row exists all the time, so the scan
/// must find it.
#[test]
fn a_row_that_moves_behind_the_scan_is_found() {
    for (unique, index, forward, renames) in [false, true]
        .into_iter()
        .flat_map(|unique| [0, 1].map(|index| (unique, index)))
        .flat_map(|(unique, index)| [true, false].map(|forward| (unique, index, forward)))
        .flat_map(|(unique, index, forward)| [true, false].map(|r| (unique, index, forward, r)))
    {
        let context = format!("unique {unique}, index {index}, forward {forward}, {renames}");
        let mut world = World::new(1);
        if unique {
            let mut schema = schema();
            schema.indexes[1] = int_index("k", true, 1);
            world.table = open_or_create(&world.db, "d/u", schema);
        }
        let (flags, mut scratch) = (WriteFlags::default(), RowScratch::default());
        let table = Arc::clone(&world.table);
        let (old, new) = (
            record((10, (5, 1))),
            record((if forward { 3 } else { 20 }, (5, 2))),
        );
        let mut txn = world.session();
        // SAFETY: blob columns must point to their bytes; this table has none.
        unsafe { table.insert(&mut txn, &old, flags, &mut scratch) }.unwrap();
        txn.commit().unwrap();

        let mut mover = Some(world.session());
        let mut reader = world.begin_at(Isolation::ReadCommitted);
        let mut cursor = Cursor::new(Arc::clone(&world.table));
        let mode = ReadMode::Locking(LockMode::Exclusive);
        cursor.reset(Some(index), mode, LockWait::Fail).unwrap();
        pause_points::on_this_thread(move |point| {
            if point == PausePoint::LockWanted
                && let Some(mut txn) = mover.take()
            {
                // SAFETY: blob columns must point to their bytes; this table has none.
                unsafe {
                    if renames {
                        table
                            .update(&mut txn, &old, &new, None, flags, &mut scratch)
                            .unwrap();
                    } else {
                        table
                            .delete(&mut txn, &old, None, flags, &mut scratch)
                            .unwrap();
                        table.insert(&mut txn, &new, flags, &mut scratch).unwrap();
                    }
                }
                txn.commit().unwrap();
            }
        });
        let mut buffer = [0; RECORD];
        let key = 5i32.to_le_bytes();
        let found = match (index, forward) {
            (0, true) => cursor.first(&mut reader, &mut buffer),
            (0, false) => cursor.last(&mut reader, &mut buffer),
            (_, true) => cursor.seek(
                &mut reader,
                KeyImage::image(&key),
                SeekMode::Exact,
                &mut buffer,
            ),
            (_, false) => {
                let mode = SeekMode::LastWithPrefix;
                cursor.seek(&mut reader, KeyImage::image(&key), mode, &mut buffer)
            }
        };
        pause_points::clear();
        assert!(found.unwrap(), "{context}");
        assert_eq!(record(row(&buffer)), new, "{context}");
        let more = match forward {
            true => cursor.next(&mut reader, &mut buffer),
            false => cursor.prev(&mut reader, &mut buffer),
        };
        assert!(!more.unwrap(), "{context}");
    }
}

/// A scan waits for the lock of a row, returns first a row that was committed before it in index
/// order, and then meets the locked row again. If that row does not match, its lock is released,
/// unless the statement has written the row meanwhile.
#[test]
fn a_row_that_is_met_again_is_unlocked_if_it_does_not_match() {
    for writes in [false, true] {
        let mut world = World::new(1);
        let (flags, mut scratch) = (WriteFlags::default(), RowScratch::default());
        let table = Arc::clone(&world.table);
        let (front, old, new) = (
            record((5, (5, 0))),
            record((10, (10, 0))),
            record((10, (10, 1))),
        );
        let mut txn = world.session();
        // SAFETY: blob columns must point to their bytes; this table has none.
        unsafe { table.insert(&mut txn, &old, flags, &mut scratch) }.unwrap();
        txn.commit().unwrap();

        let mode = ReadMode::Locking(LockMode::Exclusive);
        let mut buffer = [0; RECORD];
        let mut holder = world.session();
        let mut other = Cursor::new(Arc::clone(&world.table));
        other.reset(Some(0), mode, LockWait::Fail).unwrap();
        assert!(other.first(&mut holder, &mut buffer).unwrap());
        // SAFETY: blob columns must point to their bytes; this table has none.
        unsafe { table.insert(&mut holder, &front, flags, &mut scratch) }.unwrap();

        let mut reader = world.db.new_transaction(world.db.new_owner(0));
        reader.begin_statement(1, Isolation::ReadCommitted, 60_000_000, false);
        let mut cursor = Cursor::new(Arc::clone(&world.table));
        cursor.reset(Some(0), mode, LockWait::Wait).unwrap();
        pause_points::on_this_thread(move |point| {
            if point == PausePoint::LockRefused {
                holder.commit().unwrap();
            }
        });
        let found = cursor.first(&mut reader, &mut buffer);
        pause_points::clear();
        assert!(found.unwrap());
        assert_eq!(row(&buffer), (5, (5, 0)));
        cursor.unlock_row(&reader);
        if writes {
            // SAFETY: blob columns must point to their bytes; this table has none.
            unsafe { table.update(&mut reader, &old, &new, None, flags, &mut scratch) }.unwrap();
        }
        assert!(cursor.next(&mut reader, &mut buffer).unwrap());
        assert_eq!(row(&buffer), (10, (10, i32::from(writes))));
        cursor.unlock_row(&reader);
        assert_eq!(reader.owner().locks_held(), usize::from(writes));
    }
}

#[test]
fn a_scan_that_skips_many_locked_rows_hears_a_kill() {
    let mut world = World::new(1);
    let table = Arc::clone(&world.table);
    world.change(&|txn| {
        let mut scratch = RowScratch::default();
        for id in 0..3000 {
            let new = record((id, (id, 0)));
            // SAFETY: blob columns must point to their bytes; this table has none.
            unsafe { table.insert(txn, &new, WriteFlags::default(), &mut scratch) }.unwrap();
        }
    });
    let mode = ReadMode::Locking(LockMode::Exclusive);
    let mut buffer = [0; RECORD];
    let mut holder = world.session();
    let mut cursor = Cursor::new(Arc::clone(&world.table));
    cursor.reset(Some(0), mode, LockWait::Fail).unwrap();
    let mut locked = cursor.first(&mut holder, &mut buffer).unwrap();
    while locked {
        locked = cursor.next(&mut holder, &mut buffer).unwrap();
    }
    for index in [0, 1] {
        let mut reader = world.session();
        cursor.reset(Some(index), mode, LockWait::Skip).unwrap();
        assert!(!cursor.first(&mut reader, &mut buffer).unwrap());
        reader.owner().interrupt();
        let error = cursor.first(&mut reader, &mut buffer).unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::Interrupted);
        reader.owner().clear_interrupt();
    }
}
