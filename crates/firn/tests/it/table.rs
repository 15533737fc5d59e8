//! Tables and cursors, compared with a model.

mod conditions;
mod gaps;
mod keyless_scans;
mod lock_key_prefix;
mod locking;
mod newer_than_snapshot;
mod unique_locks;

use crate::schema::{column, int_index, open_or_create};
use firn::base::Value;
use firn::base::options::Options;
use firn::catalog::{TableLocking, TableSchema};
use firn::db::Db;
use firn::env::{Env, MemEnv, ReadClass};
use firn::rowcode::ColumnKind;
use firn::table::{
    Cursor, KeyImage, LockWait, ReadMode, RowScratch, SeekMode, Table, WriteFlags, WriteOutcome,
};
use firn::txn::{Isolation, LockMode, Transaction};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

const RECORD: usize = 13;

/// The schema `id INT PRIMARY KEY, k INT, v INT, KEY (k)`.
fn schema() -> TableSchema {
    let columns = ["id", "k", "v"].iter().zip(0..).map(|(name, i)| {
        let int = ColumnKind::Fixed { len: 4 };
        column(i + 1, name, int, 1 + 4 * i as usize)
    });
    TableSchema {
        version: 1,
        older: std::sync::Arc::default(),
        record_len: RECORD as u32,
        null_bytes: 1,
        columns: columns.collect(),
        indexes: vec![int_index("PRIMARY", true, 0), int_index("k", false, 1)],
        primary: Some(0),
        auto_increment: None,
        locking: TableLocking::Pessimistic,
    }
}

/// Rows by primary key: id → (k, v).
type Rows = BTreeMap<i32, (i32, i32)>;

fn record((id, (k, v)): (i32, (i32, i32))) -> [u8; RECORD] {
    let mut record = [0; RECORD];
    record[1..5].copy_from_slice(&id.to_le_bytes());
    record[5..9].copy_from_slice(&k.to_le_bytes());
    record[9..].copy_from_slice(&v.to_le_bytes());
    record
}

fn row(record: &[u8]) -> (i32, (i32, i32)) {
    let number = |at: usize| i32::from_le_bytes(record[at..at + 4].try_into().unwrap());
    (number(1), (number(5), number(9)))
}

struct World {
    db: Arc<Db>,
    table: Arc<Table>,
    rows: Rows,
    rng: SmallRng,
    statement: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        Self::with_files(seed, Options::default().target_file_size)
    }

    fn with_files(seed: u64, target_file_size: u64) -> Self {
        let options = Options {
            background_jobs: 0,
            // The block cache is far smaller than the rows, so that blocks are evicted and read
            // again.
            block_cache_size: 32 << 10,
            block_size: 512,
            target_file_size,
            ..Options::default()
        };
        let env: Arc<dyn Env> = Arc::new(MemEnv::new());
        let db = Db::open(env, Path::new("/db"), options, None).unwrap();
        let table = open_or_create(&db, "d/t", schema());
        Self {
            db,
            table,
            rows: Rows::new(),
            rng: SmallRng::seed_from_u64(seed),
            statement: 0,
        }
    }

    fn begin(&mut self, txn: &mut Transaction) {
        self.statement += 1;
        txn.begin_statement(self.statement, Isolation::RepeatableRead, 0, false);
    }

    fn session(&mut self) -> Transaction {
        let mut txn = self.db.new_transaction(self.db.new_owner(0));
        self.begin(&mut txn);
        txn
    }

    /// Runs `f` in a transaction and commits it.
    fn change(&mut self, f: &dyn Fn(&mut Transaction)) {
        let mut txn = self.session();
        f(&mut txn);
        txn.commit().unwrap();
    }

    /// Makes `count` random inserts, updates and deletes in `txn`, and the same changes in `rows`.
    fn write(&mut self, txn: &mut Transaction, rows: &mut Rows, count: u32) {
        let mut scratch = RowScratch::default();
        for _ in 0..count {
            let id = self.rng.random_range(0..3000);
            let new = (self.rng.random_range(-50..50), self.rng.random());
            let flags = WriteFlags::default();
            let (table, remove) = (&self.table, self.rng.random_bool(0.3));
            let fresh = record((id, new));
            // SAFETY: blob columns must point to their bytes; this table has none.
            let done = unsafe {
                match rows.get(&id).copied() {
                    None => table.insert(txn, &fresh, flags, &mut scratch),
                    Some(old) if remove => {
                        table
                            .delete(txn, &record((id, old)), None, flags, &mut scratch)
                            .unwrap();
                        rows.remove(&id);
                        continue;
                    }
                    Some(old) => {
                        let old = record((id, old));
                        table.update(txn, &old, &fresh, None, flags, &mut scratch)
                    }
                }
            };
            assert!(matches!(
                done.unwrap(),
                WriteOutcome::Done { .. } | WriteOutcome::Same
            ));
            rows.insert(id, new);
        }
    }

    /// Scans a range of an index and compares with `rows`.
    fn scan(&mut self, txn: &mut Transaction, cursor: &mut Cursor, rows: &Rows, context: &str) {
        let by_k = self.rng.random_bool(0.7);
        let lock = LockMode::Shared;
        let mode =
            [ReadMode::Snapshot, ReadMode::Locking(lock)][usize::from(self.rng.random_bool(0.2))];
        cursor
            .reset(Some(usize::from(by_k)), mode, LockWait::Fail)
            .unwrap();
        let space = if by_k { -60..60 } else { -10..3010 };
        let (a, b) = (
            self.rng.random_range(space.clone()),
            self.rng.random_range(space),
        );
        let (from, to) = (a.min(b), a.max(b));
        let at = |(&id, &(k, _)): (&i32, &(i32, i32))| if by_k { k } else { id };
        let mut expected: Vec<_> = rows
            .iter()
            .filter(|&entry| (from..=to).contains(&at(entry)))
            .map(|(&id, &rest)| (id, rest))
            .collect();
        if by_k {
            expected.sort_by_key(|&(id, (k, _))| (k, id));
        }
        let end = to.to_le_bytes();
        cursor
            .set_end_range(Some(KeyImage::image(&end)), true)
            .unwrap();
        let mut buffer = [0; RECORD];
        let start = from.to_le_bytes();
        let mut on = cursor
            .seek(
                txn,
                KeyImage::image(&start),
                SeekMode::AtOrAfter,
                &mut buffer,
            )
            .unwrap();
        let mut place = 0;
        let turns = self.rng.random_bool(0.3);
        loop {
            let found = on.then(|| row(&buffer));
            assert_eq!(
                found,
                expected.get(place).copied(),
                "{context}, row {place}"
            );
            if !on {
                break;
            }
            // Sometimes move a step back; the next move goes forward again.
            if turns && place > 0 && self.rng.random_range(0..20) == 0 {
                assert!(cursor.prev(txn, &mut buffer).unwrap());
                place -= 1;
                assert_eq!(row(&buffer), expected[place], "{context}, back to {place}");
            }
            on = cursor.next(txn, &mut buffer).unwrap();
            place += 1;
        }
        cursor.park();
    }
}

#[test]
fn ranges_agree_with_a_model() {
    for seed in 0..4 {
        let mut world = World::new(seed);
        let mut rows = Rows::new();
        for round in 0..8 {
            let mut txn = world.session();
            let count = [1500, 300, 20][round % 3];
            world.write(&mut txn, &mut rows, count);
            txn.commit().unwrap();
            match round % 4 {
                0 => world.db.compact_all().unwrap(),
                1 | 2 => world.db.flush().unwrap(),
                _ => {}
            }
            world.rows.clone_from(&rows);
            let mut txn = world.session();
            let mut cursor = Cursor::new(Arc::clone(&world.table));
            for scan in 0..12 {
                // The second half of the scans sees own writes.
                if scan == 6 {
                    world.write(&mut txn, &mut rows, 30);
                }
                let context = format!("seed {seed}, round {round}, scan {scan}");
                world.scan(&mut txn, &mut cursor, &rows, &context);
                world.begin(&mut txn);
            }
            txn.rollback().unwrap();
            rows.clone_from(&world.rows);
        }
    }
}

/// A statement with several ranges uses one cursor, whose sources stay open from one range to the
/// next.
#[test]
fn a_cursor_reads_ranges_that_lie_in_different_files() {
    let mut world = World::with_files(3, 8 << 10);
    let mut txn = world.session();
    let mut scratch = RowScratch::default();
    for id in 0..6000 {
        let fresh = record((id, (id, world.rng.random())));
        let flags = WriteFlags::default();
        // SAFETY: blob columns must point to their bytes; this table has none.
        unsafe { world.table.insert(&mut txn, &fresh, flags, &mut scratch) }.unwrap();
    }
    txn.commit().unwrap();
    world.db.compact_all().unwrap();
    let by_k = world.table.entry().indexes[1].id;
    let view = world.db.context().super_versions.pin();
    let files = view.files().filter(|file| file.index(by_k).is_some());
    assert!(files.count() >= 3);
    let mut txn = world.session();
    let mut cursor = Cursor::new(Arc::clone(&world.table));
    cursor
        .reset(Some(1), ReadMode::Snapshot, LockWait::Fail)
        .unwrap();
    let mut buffer = [0; RECORD];
    for from in [10, 5900, 3000, 1200, 4500, 10] {
        let end = i32::to_le_bytes(from + 20);
        cursor
            .set_end_range(Some(KeyImage::image(&end)), true)
            .unwrap();
        let start = i32::to_le_bytes(from);
        let mut on = cursor
            .seek(
                &mut txn,
                KeyImage::image(&start),
                SeekMode::AtOrAfter,
                &mut buffer,
            )
            .unwrap();
        let mut found = Vec::new();
        while on {
            found.push(row(&buffer).0);
            on = cursor.next(&mut txn, &mut buffer).unwrap();
        }
        assert_eq!(found, Vec::from_iter(from..=from + 20));
    }
}

#[test]
fn a_cursor_decodes_the_columns_that_were_chosen_last() {
    let mut world = World::new(11);
    let mut txn = world.session();
    let mut rows = Rows::new();
    world.write(&mut txn, &mut rows, 500);
    txn.commit().unwrap();
    let mut txn = world.session();
    let mut cursor = Cursor::new(Arc::clone(&world.table));
    cursor
        .reset(Some(0), ReadMode::Snapshot, LockWait::Fail)
        .unwrap();
    // The bytes of the columns id, k and v in a record.
    let bytes = [1..5, 5..9, 9..13];
    for _ in 0..2000 {
        let wanted = world.rng.random_range(0..9_u8);
        // The number 8 stands for all columns.
        let bitmap = (wanted < 8).then_some([wanted]);
        cursor
            .set_columns(bitmap.as_ref().map(|bitmap| &bitmap[..]), false, &[])
            .unwrap();
        let at = world.rng.random_range(0..rows.len());
        let (&id, &columns) = rows.iter().nth(at).unwrap();
        let mut buffer = [0xaa; RECORD];
        let image = id.to_le_bytes();
        assert!(
            cursor
                .get(&mut txn, KeyImage::image(&image), &mut buffer)
                .unwrap()
        );
        let whole = record((id, columns));
        for (column, bytes) in bytes.iter().cloned().enumerate() {
            let expected = match wanted == 8 || wanted >> column & 1 == 1 {
                true => &whole[bytes.clone()],
                false => &[0xaa; 4][..],
            };
            assert_eq!(&buffer[bytes], expected, "column {column} of {wanted:#b}");
        }
    }
}

/// A user key of index 7.
fn key(n: u32) -> Vec<u8> {
    [&7u32.to_be_bytes()[..], &n.to_be_bytes()].concat()
}

#[test]
fn many_keys_at_once_are_what_single_gets_find() {
    for seed in 0..4 {
        let world = World::new(seed);
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut snapshots = Vec::new();
        for round in 0..8u32 {
            let begin = || {
                let mut txn = world.db.new_transaction(world.db.new_owner(0));
                txn.begin_statement(1, Isolation::RepeatableRead, 0, false);
                txn
            };
            let mut txn = begin();
            for _ in 0..[1000, 100, 10][round as usize % 3] {
                let key = key(rng.random_range(0..2000));
                if rng.random_bool(0.2) {
                    txn.delete(&key).unwrap();
                } else {
                    let value = rng.random::<[u8; 40]>();
                    txn.put(&key, firn::base::Value::split(&value[..8], &value[8..]))
                        .unwrap();
                }
            }
            // Every third transaction stays uncommitted and sees its own writes.
            if round % 3 == 2 {
                snapshots.push(txn);
            } else {
                txn.commit().unwrap();
                snapshots.push(begin());
            }
            match rng.random_range(0..4) {
                0 => world.db.compact_all().unwrap(),
                1 | 2 => world.db.flush().unwrap(),
                _ => {}
            }
            for (i, txn) in snapshots.iter_mut().enumerate() {
                let point = txn.read_point();
                let wanted: Vec<Vec<u8>> = (0..rng.random_range(0..100))
                    .map(|_| key(rng.random_range(0..2100)))
                    .collect();
                let keys: Vec<&[u8]> = wanted.iter().map(|key| &key[..]).collect();
                let copy = |key: firn::base::InternalKey<'_>, value: firn::base::Value<'_>| {
                    let bytes = [value.head, value.tail].concat();
                    (key.user_key.to_vec(), key.seqno, key.kind, bytes)
                };
                let found = txn.multi_get(&point, &keys, |i, key, value| (i, copy(key, value)));
                assert_eq!(found.len(), keys.len());
                for (at, found) in found.into_iter().enumerate() {
                    let single = txn.get(&point, keys[at], ReadClass::Point, copy).unwrap();
                    let context = format!("seed {seed}, round {round}, snapshot {i}, key {at}");
                    assert_eq!(found.unwrap(), single.map(|one| (at, one)), "{context}");
                }
            }
        }
    }
}

#[test]
fn blocks_are_announced_until_they_are_cached() {
    let world = World::new(0);
    let mut txn = world.db.new_transaction(world.db.new_owner(0));
    txn.begin_statement(1, Isolation::RepeatableRead, 0, false);
    for n in 0..200 {
        txn.put(&key(n), firn::base::Value::whole(&[n as u8; 100]))
            .unwrap();
    }
    txn.commit().unwrap();
    let wanted = [key(10), key(11), key(150)];
    let keys = wanted.each_ref().map(|key| &key[..]);
    let announced = || {
        let point = world.db.context().super_versions.latest();
        firn::read::prefetch_blocks(&point.super_version, &keys, point.seqno)
    };
    assert_eq!(announced(), 0, "all is in the memtable");
    world.db.flush().unwrap();
    let blocks = announced();
    assert!((2..=3).contains(&blocks), "{blocks} blocks");
    txn.begin_statement(2, Isolation::RepeatableRead, 0, false);
    let point = txn.read_point();
    for found in txn.multi_get(&point, &keys, |i, _, value| (i, value.head[0])) {
        let (i, byte) = found.unwrap().unwrap();
        assert_eq!(byte, [10, 11, 150][i]);
    }
    assert_eq!(announced(), 0, "all is in the cache");
}

/// The key of a row's entry in the index over `k`.
fn entry_key(world: &World, k: i32, id: i32) -> Vec<u8> {
    let index = world.table.entry().indexes[1].id;
    let part = |value: i32| (value as u32 ^ 0x8000_0000).to_be_bytes();
    [index.to_be_bytes(), part(k), part(id)].concat()
}

#[test]
fn a_check_names_what_an_index_lacks_and_has_too_much() {
    let mut world = World::new(7);
    let mut rows = Rows::new();
    let mut txn = world.session();
    world.write(&mut txn, &mut rows, 500);
    txn.commit().unwrap();
    let problems = |world: &World, extended| {
        let views = &world.db.context().super_versions;
        let report = world.table.check(views, extended, &|| false).unwrap();
        assert_eq!(report.rows, rows.len() as u64);
        report.problems.join("; ")
    };
    let (&id, &(k, _)) = rows.iter().next().unwrap();
    let own = entry_key(&world, k, id);
    let other = entry_key(&world, k + 1, id);
    let strange = entry_key(&world, k, 5000);
    let value = Value::EMPTY;
    for extended in [false, true] {
        assert_eq!(problems(&world, extended), "");
        world.change(&|txn| txn.delete(&own).unwrap());
        let found = problems(&world, extended);
        assert!(found.contains("has no entry"), "{extended}: {found}");
        // The number of entries is right and each names a row, but one has a wrong key.
        world.change(&|txn| txn.put(&other, value).unwrap());
        let found = problems(&world, extended);
        assert!(found.contains("has no entry"), "{extended}: {found}");
        world.change(&|txn| {
            txn.delete(&other).unwrap();
            txn.put(&own, value).unwrap();
            txn.put(&strange, value).unwrap();
        });
        let found = problems(&world, extended);
        assert!(found.contains("has no row"), "{extended}: {found}");
        world.change(&|txn| txn.delete(&strange).unwrap());
    }
}

/// A locking scan sees the changes that its own transaction makes after the scan has begun.
#[test]
fn a_locking_scan_sees_what_its_transaction_has_done_since() {
    for index in [0, 1] {
        let mut world = World::new(1);
        let flags = WriteFlags::default();
        let mut scratch = RowScratch::default();
        let table = Arc::clone(&world.table);
        let mut insert = |txn: &mut Transaction, id: i32, k: i32| {
            let row = record((id, (k, 0)));
            // SAFETY: blob columns must point to their bytes; this table has none.
            unsafe { table.insert(txn, &row, flags, &mut scratch) }.unwrap();
        };
        let mut txn = world.session();
        (1..=5).for_each(|id| insert(&mut txn, id, id));
        txn.commit().unwrap();
        let mut txn = world.session();
        let mark = txn.savepoint();
        insert(&mut txn, 6, 6);
        let mut cursor = Cursor::new(Arc::clone(&world.table));
        let mode = ReadMode::Locking(LockMode::Exclusive);
        cursor.reset(Some(index), mode, LockWait::Fail).unwrap();
        let mut buffer = [0; RECORD];
        let mut seen = Vec::new();
        let mut on = cursor.first(&mut txn, &mut buffer).unwrap();
        // The cursor's sources are open. Now roll row 6 back, delete row 3 and change row 4.
        txn.rollback_to(mark);
        let mut scratch = RowScratch::default();
        let (old, new) = (record((4, (4, 0))), record((4, (4, 9))));
        // SAFETY: blob columns must point to their bytes; this table has none.
        unsafe {
            let third = record((3, (3, 0)));
            world
                .table
                .delete(&mut txn, &third, None, flags, &mut scratch)
                .unwrap();
            world
                .table
                .update(&mut txn, &old, &new, None, flags, &mut scratch)
                .unwrap();
        }
        while on {
            seen.push(row(&buffer));
            on = cursor.next(&mut txn, &mut buffer).unwrap();
        }
        let expected = [(1, (1, 0)), (2, (2, 0)), (4, (4, 9)), (5, (5, 0))];
        assert_eq!(seen, expected, "index {index}");
    }
}
