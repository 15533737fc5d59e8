use super::*;
use crate::base::event_listener::EventListener;
use crate::base::health::FullDisk;
use crate::base::options::Options;
use crate::base::{ErrorKind, InternalKey, Value};
use crate::blob::{BlobSpan, TransactionBlobs};
use crate::db::Db;
use crate::env::fault::{CallClass, Errno, Fault};
use crate::env::{FaultEnv, MemEnv, ReadClass};
use crate::store::{FileKind, file_name};
use crate::txn::Isolation;
use crate::wal;
use parking_lot::Condvar;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn activities_are_listed_with_their_age_while_they_go_on() {
    let env = MemEnv::new();
    let activities = Activities::new(Arc::new(env.clone()));
    assert_eq!(activities.describe(), None);
    let first = activities.begin("a");
    env.advance_clock(3_000_000);
    let second = activities.begin("b");
    env.advance_clock(2_000_000);
    first.set("c");
    let text = "c (5 s so far); b (2 s so far)";
    assert_eq!(activities.describe().as_deref(), Some(text));
    drop(first);
    assert_eq!(activities.describe().as_deref(), Some("b (2 s so far)"));
    drop(second);
    assert_eq!(activities.describe(), None);
}

/// Collects the messages, and lets a test wait for one.
#[derive(Default)]
struct Messages {
    all: Mutex<Vec<(Severity, String)>>,
    more: Condvar,
}

impl EventListener for Messages {
    fn log(&self, severity: Severity, message: &str) {
        self.all.lock().push((severity, message.to_owned()));
        self.more.notify_all();
    }
}

impl Messages {
    /// Waits for a message that begins with `start`, and returns its place among all messages.
    fn wait_for(&self, start: &str) -> usize {
        let mut all = self.all.lock();
        loop {
            let found = all
                .iter()
                .position(|(_, message)| message.starts_with(start));
            if let Some(place) = found {
                return place;
            }
            let late = self
                .more
                .wait_for(&mut all, Duration::from_secs(120))
                .timed_out();
            assert!(!late, "no message {start:?} among {all:#?}");
        }
    }

    fn errors(&self) -> Vec<String> {
        let all = self.all.lock();
        let bad = all
            .iter()
            .filter(|(severity, _)| *severity != Severity::Note);
        bad.map(|(_, message)| message.clone()).collect()
    }
}

const DIR: &str = "/db";

fn wait_until(mut is_so: impl FnMut() -> bool) {
    let patience = 120_000;
    let so = (0..patience).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        is_so()
    });
    assert!(so, "not within {patience} ms");
}

fn open(env: &Arc<dyn Env>, background_jobs: usize, messages: &Arc<Messages>) -> Arc<Db> {
    let options = Options {
        background_jobs,
        wal_segment_size: 1 << 16,
        listener: Arc::<Messages>::clone(messages),
        ..Options::default()
    };
    options
        .mutable
        .memtable_size
        .store(64 << 20, Ordering::Relaxed);
    Db::open(Arc::clone(env), Path::new(DIR), options, None).unwrap()
}

/// Commits rows of 1000 bytes with these numbers.
fn write(db: &Db, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let mut txn = db.new_transaction(db.new_owner(0));
        txn.begin_statement(number, Isolation::ReadCommitted, 1000, true);
        let key = [&1000u32.to_be_bytes()[..], &number.to_be_bytes()].concat();
        txn.put(&key, Value::whole(&[7; 1000])).unwrap();
        txn.commit().unwrap();
    }
}

fn rows(db: &Db, numbers: std::ops::Range<u64>) -> usize {
    let mut txn = db.new_transaction(db.new_owner(0));
    txn.begin_statement(1, Isolation::ReadCommitted, 1000, false);
    let point = txn.read_point();
    let found = |&number: &u64| {
        let key = [&1000u32.to_be_bytes()[..], &number.to_be_bytes()].concat();
        let read = |key: InternalKey<'_>, _: Value<'_>| key.kind.is_put();
        txn.get(&point, &key, ReadClass::Point, read).unwrap() == Some(true)
    };
    numbers.filter(found).count()
}

/// Paths of the SSTs.
fn ssts(db: &Db) -> Vec<PathBuf> {
    let store = db.work.versions.source().store();
    let ids = store.list().unwrap().into_iter();
    ids.map(|id| store.path(FileKind::Sst, id)).collect()
}

/// A stop cancels a compaction at its next block. One that hangs in the file system is named in the
/// error log while the stop waits for it.
#[test]
fn a_stop_cancels_a_large_compaction_and_names_it_while_it_hangs() {
    let env = FaultEnv::new(Arc::new(MemEnv::new()));
    let shared: Arc<dyn Env> = Arc::new(env.clone());
    let messages = Arc::<Messages>::default();
    let db = open(&shared, 0, &messages);
    for _ in 0..8 {
        write(&db, 0..5000);
        db.flush().unwrap();
    }
    let inputs = ssts(&db);
    let size = db.work.versions.current().size();
    db.close().unwrap();
    drop(db);

    inputs.iter().for_each(|path| env.hang(path));
    let db = open(&shared, 1, &messages);
    let compacts = || {
        db.work
            .activities
            .describe()
            .is_some_and(|text| text.contains("compaction"))
    };
    wait_until(compacts);
    std::thread::scope(|scope| {
        let stop = scope.spawn(|| db.close());
        messages.wait_for("stop: a compaction of ");
        assert!(messages.wait_for("stopping: ") < messages.wait_for("stop: a compaction of "));
        let written = env.count(CallClass::Write);
        let read = env.count(CallClass::Read);
        env.clear();
        stop.join().unwrap().unwrap();
        // The compaction would write and read blocks of a few KiB.
        let written = env.count(CallClass::Write) - written;
        let read = env.count(CallClass::Read) - read;
        assert!(
            written < 50 && read < 200,
            "{written} writes, {read} reads, {size} bytes"
        );
    });
    messages.wait_for("stopped in ");
    let compacted = &db.work.counters.compactions;
    assert_eq!(compacted.load(Ordering::Relaxed), 0);
    assert_eq!(messages.errors(), Vec::<String>::new());
    drop(db);
    assert_eq!(ssts(&open(&shared, 0, &messages)).len(), inputs.len());
}

#[test]
fn a_stop_cancels_a_flush_and_the_log_keeps_its_memtable() {
    let env: Arc<dyn Env> = Arc::new(MemEnv::new());
    let messages = Arc::<Messages>::default();
    let db = open(&env, 0, &messages);
    write(&db, 0..3000);
    db.work.stopping.store(true, Ordering::Release);
    let error = db.flush().unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Interrupted);
    assert_eq!(ssts(&db), Vec::<PathBuf>::new());
    db.close().unwrap();
    drop(db);
    let db = open(&env, 0, &messages);
    assert_eq!(rows(&db, 0..4000), 3000);
    assert_eq!(messages.errors(), Vec::<String>::new());
}

/// The flush thread takes its cancelled flush for no failure.
#[test]
fn a_stop_during_a_flush_reports_no_error() {
    let env = FaultEnv::new(Arc::new(MemEnv::new()));
    let shared: Arc<dyn Env> = Arc::new(env.clone());
    let messages = Arc::<Messages>::default();
    let db = open(&shared, 1, &messages);
    write(&db, 0..5000);
    let next = db.work.versions.new_file_id() + 1;
    let output = db.work.versions.source().store().path(FileKind::Sst, next);
    env.hang(&output);
    db.cx.pipeline.freeze();
    let flushes = || {
        let doing = db.work.activities.describe().unwrap_or_default();
        doing.contains("a flush of ")
    };
    wait_until(flushes);
    std::thread::scope(|scope| {
        let stop = scope.spawn(|| db.close());
        messages.wait_for("stop: a flush of ");
        env.clear();
        stop.join().unwrap().unwrap();
    });
    let flushed = &db.work.counters.flushes;
    assert_eq!(flushed.load(Ordering::Relaxed), 0);
    assert_eq!(messages.errors(), Vec::<String>::new());
    drop(db);
    let db = open(&shared, 0, &messages);
    assert_eq!(rows(&db, 0..5001), 5000);
}

#[test]
fn a_stop_on_a_full_disk_reports_no_failed_flush() {
    let env: Arc<dyn Env> = Arc::new(MemEnv::new());
    let messages = Arc::<Messages>::default();
    let db = open(&env, 0, &messages);
    write(&db, 0..1200);
    db.work.health.set_full(FullDisk::Compaction, true);
    db.work.stopping.store(true, Ordering::Release);
    let frozen = || db.cx.super_versions.pin().frozen.len();
    assert_eq!(frozen(), 0);
    db.recheck_full_disk();
    assert_eq!(frozen(), 1, "it tried to flush");
    assert_eq!(messages.errors(), Vec::<String>::new());
}

#[test]
fn a_stop_cancels_the_collection_of_blobs() {
    let env: Arc<dyn Env> = Arc::new(MemEnv::new());
    let messages = Arc::<Messages>::default();
    let db = open(&env, 0, &messages);
    let blobs = &db.cx.blobs;
    // A file whose only blob belongs to no row.
    let mut session = TransactionBlobs::new();
    let blob = blobs.write(&mut session, 0, &[7; 9000]).unwrap();
    drop(session);
    blobs.seal_active();
    let there = || blobs.files().list_blobs().unwrap();
    // The search chooses the file. It is not removed as long as somebody makes links.
    let links = blobs.hold_links();
    assert!(!db.collect_blobs().unwrap());
    drop(links);
    db.work.stopping.store(true, Ordering::Release);
    let error = db.collect_blobs().unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Interrupted);
    assert_eq!(there(), [blob.file]);
    db.work.stopping.store(false, Ordering::Release);
    assert!(db.collect_blobs().unwrap());
    assert_eq!(there(), Vec::<u64>::new());
    drop(db);

    // The stop tells the blob store, too.
    let db = open(&env, 1, &messages);
    let blobs = &db.cx.blobs;
    let mut session = TransactionBlobs::new();
    let blob = blobs.write(&mut session, 0, &[7; 9000]).unwrap();
    let file = blobs.all().pop().unwrap();
    let live = BlobSpan {
        offset: blob.offset,
        len: blob.span(),
    };
    db.close().unwrap();
    let error = blobs.rewrite(&file, &[live]).err().unwrap();
    assert_eq!(*error.kind(), ErrorKind::Interrupted);
    assert_eq!(messages.errors(), Vec::<String>::new());
}

/// A file that nothing needs and that cannot be removed does not keep the database from opening.
#[test]
fn an_open_warns_of_a_file_that_it_cannot_remove() {
    let mut warned = 0;
    for nth in 1..=4 {
        let inner = MemEnv::new();
        let env = FaultEnv::new(Arc::new(inner.clone()));
        let shared: Arc<dyn Env> = Arc::new(env.clone());
        let messages = Arc::<Messages>::default();
        open(&shared, 0, &messages).close().unwrap();
        let kinds = [FileKind::Sst, FileKind::Sort, FileKind::Blob];
        let strays = kinds.map(|kind| Path::new(DIR).join(file_name(kind, 500)));
        for stray in &strays {
            inner.place(stray, vec![1]);
        }
        env.inject(Fault {
            class: CallClass::Remove,
            nth,
            sticky: false,
            errno: Errno::Io,
        });
        let db = open(&shared, 0, &messages);
        let left = || strays.iter().filter(|path| env.exists(path).unwrap());
        assert_eq!(left().count(), messages.errors().len(), "{nth}");
        warned += left().count();
        db.close().unwrap();
        drop(db);
        drop(open(&shared, 0, &messages));
        assert_eq!(left().count(), 0);
    }
    assert_eq!(warned, 3, "one warning for each file");
}

#[test]
fn a_start_says_which_step_it_is_at() {
    let env = FaultEnv::new(Arc::new(MemEnv::new()));
    let shared: Arc<dyn Env> = Arc::new(env.clone());
    let messages = Arc::<Messages>::default();
    let db = open(&shared, 0, &Arc::default());
    write(&db, 0..300);
    let log = db.work.wal.current_segment();
    assert!(log > 3, "the log has several segments");
    db.close().unwrap();
    drop(db);
    let names = env.list_dir(Path::new(DIR)).unwrap();
    let segments = names
        .iter()
        .filter_map(|name| wal::parse_segment_name(name));
    let next = segments.max().unwrap() + 1;

    let in_dir = |name: &str| Path::new(DIR).join(name);
    let steps = [
        (in_dir("CURRENT"), "start: reading the manifest ("),
        (
            in_dir(&wal::segment_name(log)),
            "start: looking for the log (",
        ),
        (
            in_dir(&wal::segment_name(next)),
            "start: beginning a new log (",
        ),
    ];
    steps.iter().for_each(|(path, _)| env.hang(path));
    let mut places = Vec::new();
    std::thread::scope(|scope| {
        let start = scope.spawn(|| open(&shared, 1, &messages));
        for (path, message) in &steps {
            places.push(messages.wait_for(message));
            env.answer(path);
        }
        let db = start.join().unwrap();
        places.push(messages.wait_for("recovery: 301 commits"));
        places.push(messages.wait_for("started in "));
        db.close().unwrap();
    });
    assert!(places.is_sorted(), "{places:?}");
}

#[test]
fn what_a_stop_leaves_is_deleted_step_by_step_after_the_next_start() {
    let env: Arc<dyn Env> = Arc::new(MemEnv::new());
    let messages = Arc::<Messages>::default();
    let db = open(&env, 0, &messages);
    let store = db.work.versions.source().store();
    let left: Vec<u64> = (0..1000).map(|_| db.work.versions.new_file_id()).collect();
    for &id in &left {
        store.create(id).unwrap();
    }
    store.create_sort(db.work.versions.new_file_id()).unwrap();
    db.close().unwrap();
    drop(db);

    let db = open(&env, 0, &messages);
    let at_open = 1000 - ssts(&db).len();
    assert!((1..200).contains(&at_open), "{at_open}");
    let names = env.list_dir(Path::new(DIR)).unwrap();
    assert!(
        !names.iter().any(|name| name.ends_with(".sort")),
        "{names:?}"
    );
    // The message names some of the files only.
    let place = messages.wait_for("removing 1000 SSTs that neither manifest nor log names: ");
    assert!(messages.all.lock()[place].1.len() < 200);
    // A step removes no more than the pacer allows.
    let before = ssts(&db).len();
    let stopping = AtomicBool::new(false);
    let versions = &db.work.versions;
    versions.delete_paced(1_000_000, &stopping).unwrap();
    versions.delete_paced(1_100_000, &stopping).unwrap();
    let step = before - ssts(&db).len();
    assert!((1..100).contains(&step), "{step}");
    // A stop ends it.
    stopping.store(true, Ordering::Relaxed);
    versions.delete_paced(2_000_000, &stopping).unwrap();
    assert_eq!(ssts(&db).len(), before - step);
    db.close().unwrap();
    assert!(!ssts(&db).is_empty(), "a stop does not delete them all");
}
