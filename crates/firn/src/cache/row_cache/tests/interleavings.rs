//! A model of a slow reader beside a commit, a freeze and a flush. `loom` runs it in every
//! interleaving.
//!
//! There is one key, with version 5 in the files. A writer commits version 10 into memtable 1,
//! which is frozen, loses its last writer and is flushed. Meanwhile a reader pins a super version,
//! looks up the cache, reads the file and fills the cache. A later read must find version 10, and
//! the reader must not find an older version than its super version has. The shard and the steps of
//! the flush are the cache's own code. There are two ways to break the order of the steps; a test
//! checks that the model detects each.

use super::super::cached_row::{CachedRow, RowVisibility};
use super::super::shard::{Shard, ShardLock, erase, raise, retire};
use crate::base::{InternalKey, Kind, Seqno, Value};
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::{Arc, Mutex};

const KEY: &[u8] = b"key";
const HASH: u64 = 7;
const OLD: Seqno = 5;
const NEW: Seqno = 10;

impl ShardLock for Mutex<Shard> {
    fn with<R>(&self, f: impl FnOnce(&Shard) -> R) -> R {
        f(&self.lock().unwrap())
    }
    fn with_mut<R>(&self, f: impl FnOnce(&mut Shard) -> R) -> R {
        f(&mut self.lock().unwrap())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Broken {
    Not,
    NoFloor,
    EraseFirst,
}

#[derive(Clone, Copy)]
struct View {
    active: u64,
    has_memtable: bool,
    in_files: Seqno,
    sealed: u64,
}

struct World {
    broken: Broken,
    /// The version in memtable 1; 0 before the commit.
    memtable: AtomicU64,
    visible: AtomicU64,
    view: Mutex<View>,
    shards: [Mutex<Shard>; 1],
}

impl World {
    fn new(broken: Broken) -> Self {
        Self {
            broken,
            memtable: AtomicU64::new(0),
            visible: AtomicU64::new(OLD),
            view: Mutex::new(View {
                active: 1,
                has_memtable: true,
                in_files: OLD,
                sealed: 0,
            }),
            shards: [Mutex::new(Shard::new(1 << 16, 1))],
        }
    }

    fn change(&self, f: impl FnOnce(&mut View)) {
        f(&mut self.view.lock().unwrap());
    }

    fn commit_and_flush(&self) {
        self.memtable.store(NEW, Ordering::Release);
        self.visible.store(NEW, Ordering::Release);
        self.change(|view| view.active = 2);
        self.change(|view| view.sealed = 1);
        let hashes = std::iter::once(HASH);
        if self.broken == Broken::EraseFirst {
            erase(&self.shards, hashes);
            raise(&self.shards, 1);
        } else {
            retire(&self.shards, 1, hashes);
        }
        self.change(|view| {
            view.has_memtable = false;
            view.in_files = NEW;
        });
    }

    fn read(&self) -> Seqno {
        let view = *self.view.lock().unwrap();
        let seqno = self.visible.load(Ordering::Acquire);
        if view.has_memtable {
            let there = self.memtable.load(Ordering::Acquire);
            if there != 0 && there <= seqno {
                return there;
            }
        }
        let row = self.shards[0].with(|shard| shard.get(HASH, KEY, seqno, view.active));
        if let Some(row) = row {
            return row.key().seqno;
        }
        let found = view.in_files;
        let row = CachedRow::new(
            InternalKey::new(KEY, found, Kind::Put),
            Value::EMPTY,
            RowVisibility {
                seqno: found,
                memtable: view.sealed,
            },
        );
        let sealed = match self.broken {
            Broken::NoFloor => u64::MAX,
            _ => view.sealed,
        };
        // The rule about the seqno of the seal point: fill only if the reader cannot have skipped a
        // version in the files or the sealed memtables.
        if view.sealed == 0 || seqno >= NEW {
            self.shards[0].with_mut(|shard| shard.fill(sealed, HASH, row));
        }
        found
    }
}

fn explore(broken: Broken) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let world = Arc::new(World::new(broken));
        let flusher = {
            let world = Arc::clone(&world);
            loom::thread::spawn(move || world.commit_and_flush())
        };
        world.read();
        world.read();
        flusher.join().unwrap();
        assert_eq!(world.read(), NEW);
        assert_eq!(world.read(), NEW);
    });
}

#[test]
fn nothing_stale_stays() {
    explore(Broken::Not);
}

#[test]
#[should_panic(expected = "left: 5")]
fn without_the_floor_a_slow_reader_leaves_a_stale_row() {
    explore(Broken::NoFloor);
}

#[test]
#[should_panic(expected = "left: 5")]
fn erasing_before_the_floor_rises_leaves_a_stale_row() {
    explore(Broken::EraseFirst);
}
