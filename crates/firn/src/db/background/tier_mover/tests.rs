//! The thread that moves files, over a store whose calls may hang.

use super::*;
use crate::base::Value;
use crate::base::epoch::DatabaseId;
use crate::base::options::Options;
use crate::db::{Attached, Db};
use crate::env::{Env, MemEnv, ReadFile};
use crate::store::{FileId, RemoteSst};
use crate::txn::Isolation;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

const DIR: &str = "/db";
const ROWS: u64 = 4000;

/// Calls of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Beat,
    Open,
    Read,
}

/// A call that waits, once: it says that it has begun, and goes on when the other end is gone.
struct Gate {
    call: Call,
    entered: Sender<()>,
    opened: Receiver<()>,
}

/// A store of a map.
struct GatedStore {
    env: MemEnv,
    objects: Mutex<BTreeMap<FileId, Vec<u8>>>,
    gate: Mutex<Option<Gate>>,
}

impl GatedStore {
    fn new(env: &MemEnv) -> Arc<Self> {
        Arc::new(Self {
            env: env.clone(),
            objects: Mutex::default(),
            gate: Mutex::default(),
        })
    }

    /// The next call of this kind hangs. It has begun when the receiver hears of it, and goes on
    /// when the sender is dropped.
    fn hang_at(&self, call: Call) -> (Receiver<()>, Sender<()>) {
        let (entered, has_entered) = channel();
        let (open, opened) = channel();
        *self.gate.lock() = Some(Gate {
            call,
            entered,
            opened,
        });
        (has_entered, open)
    }

    /// Returns whether the call has hung. Only those of the thread that moves files do.
    fn pass(&self, call: Call) -> bool {
        if std::thread::current().name() != Some("firn-tier") {
            return false;
        }
        let gate = self.gate.lock().take_if(|gate| gate.call == call);
        let Some(gate) = gate else {
            return false;
        };
        gate.entered.send(()).unwrap();
        let _ = gate.opened.recv();
        true
    }
}

struct Object {
    store: Arc<Stored>,
    bytes: Vec<u8>,
}

/// The store as a database has it.
struct Stored(Arc<GatedStore>);

impl ReadFile for Object {
    fn read_exact_at(&self, _: ReadClass, offset: u64, buf: &mut [u8]) -> Result<()> {
        if self.store.0.pass(Call::Read) {
            return Err(Error::new(ErrorKind::Unreachable, "not mounted any more"));
        }
        let from = offset as usize;
        buf.copy_from_slice(&self.bytes[from..from + buf.len()]);
        Ok(())
    }

    fn size(&self) -> Result<u64> {
        Ok(self.bytes.len() as u64)
    }
}

impl RemoteFiles for Stored {
    fn name(&self) -> &str {
        "a store"
    }

    fn belongs_to(&self, _: DatabaseId, _: bool) {}

    fn open(&self, file: &RemoteSst) -> Result<Arc<dyn ReadFile>> {
        self.0.pass(Call::Open);
        let bytes = self.0.objects.lock()[&file.id].clone();
        let store = Arc::new(Self(Arc::clone(&self.0)));
        Ok(Arc::new(Object { store, bytes }))
    }

    fn is_there(&self, file: &RemoteSst) -> Result<bool> {
        Ok(self.0.objects.lock().contains_key(&file.id))
    }

    fn upload(&self, file: &RemoteSst, path: &Path, _: &AtomicBool) -> Result<()> {
        let bytes = self.0.env.read(path)?;
        self.0.objects.lock().insert(file.id, bytes);
        Ok(())
    }

    fn release(&self, _: &RemoteSst) {}

    fn delete(&self, id: FileId) -> Result<()> {
        self.0.objects.lock().remove(&id);
        Ok(())
    }

    fn stop(&self) {}

    fn sweep(&self, _: &dyn Fn(FileId, u64) -> bool) -> Result<u64> {
        Ok(0)
    }

    fn shares_disk_with(&self, _: &Path) -> bool {
        false
    }

    fn beat(&self) {
        self.0.pass(Call::Beat);
    }
}

fn try_open(store: &Arc<GatedStore>, background_jobs: usize, tier: Tier) -> Result<Arc<Db>> {
    let options = Options {
        background_jobs,
        wal_segment_size: 64 << 10,
        target_file_size: 32 << 10,
        block_size: 512,
        ..Options::default()
    };
    options.mutable.set_tier(tier);
    options.mutable.cold_after_s.store(0, Ordering::Relaxed);
    let attached = Attached {
        remote: Some(Arc::new(Stored(Arc::clone(store)))),
        ..Attached::default()
    };
    let env: Arc<dyn Env> = Arc::new(store.env.clone());
    Db::open_with(env, Path::new(DIR), options, None, attached)
}

fn tables(env: &MemEnv) -> Vec<(String, Vec<u8>)> {
    let names = env.list_dir(Path::new(DIR)).unwrap();
    let tables = names.into_iter().filter(|name| name.ends_with(".sst"));
    let mut tables: Vec<_> = tables
        .map(|name| {
            let bytes = env.read(&Path::new(DIR).join(&name)).unwrap();
            (name, bytes)
        })
        .collect();
    tables.sort();
    tables
}

fn key(n: u64) -> Vec<u8> {
    [&1_000_000_u32.to_be_bytes()[..], &n.to_be_bytes()].concat()
}

/// A closed database, all of whose files with rows are in the store.
fn all_remote(store: &Arc<GatedStore>) {
    let db = try_open(store, 0, Tier::Cold).unwrap();
    let mut txn = db.new_transaction(db.new_owner(0));
    txn.begin_statement(1, Isolation::RepeatableRead, 1_000_000, false);
    for n in 0..ROWS {
        let part = |part: u64| (n * 8 + part + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let text: String = (0..6).map(|n| format!("{:016x}", part(n))).collect();
        txn.put(&key(n), Value::split(text.as_bytes(), b""))
            .unwrap();
    }
    txn.commit().unwrap();
    db.compact_all().unwrap();
    while db.tier_step().unwrap() {}
    assert!(db.places().remote.files > 0);
    db.close().unwrap();
    drop(db);
    // The next open removes what the close has left.
    let db = try_open(store, 0, Tier::Cold).unwrap();
    db.work.versions.delete_obsolete().unwrap();
    db.close().unwrap();
}

/// A call that a network file system keeps may return when the database is closed: then the thread
/// touches no file of the data directory, and nobody opens that directory before.
#[test]
fn a_thread_that_is_left_changes_no_file() {
    for call in [Call::Beat, Call::Open, Call::Read] {
        let env = MemEnv::new();
        let store = GatedStore::new(&env);
        all_remote(&store);
        let (entered, release) = store.hang_at(call);
        let db = try_open(&store, 1, Tier::Local).unwrap();
        entered.recv().unwrap();
        db.close_within(Duration::from_millis(50)).unwrap();
        drop(db);
        let refused = try_open(&store, 0, Tier::Local).map(|_| ()).unwrap_err();
        assert_eq!(*refused.kind(), ErrorKind::Busy, "{call:?}: {refused}");
        // As the next process of the directory would write them.
        for id in store.objects.lock().keys() {
            let path = Path::new(DIR).join(file_name(FileKind::Sst, *id));
            let mut file = env.create(&path).unwrap();
            file.append(b"those of the next process").unwrap();
            file.sync().unwrap();
        }
        let left = tables(&env);
        drop(release);
        let lock = loop {
            match env.lock(&Path::new(DIR).join("LOCK")) {
                Ok(lock) => break lock,
                Err(_) => std::thread::yield_now(),
            }
        };
        assert!(tables(&env) == left, "{call:?}");
        drop(lock);
        let db = try_open(&store, 0, Tier::Local).unwrap();
        while db.tier_step().unwrap() {}
        let mut txn = db.new_transaction(db.new_owner(0));
        txn.begin_statement(1, Isolation::RepeatableRead, 1_000_000, false);
        let point = txn.read_point();
        for n in 0..ROWS {
            let found = txn.get(&point, &key(n), ReadClass::Point, |_, _| ());
            assert!(found.unwrap().is_some(), "{call:?}: row {n}");
        }
        txn.rollback().unwrap();
        drop(txn);
        db.close().unwrap();
    }
}
