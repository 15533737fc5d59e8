use super::*;
use crate::base::Value;
use crate::base::options::Options;
use crate::binlog::testing::{TestBinlog, xid_image};
use crate::db::{ReadOnlyDb, repair};
use crate::env::{Env, MemEnv, ReadClass};
use crate::txn::Isolation;

const DIR: &str = "data/#firn";
const FIRST: &str = "data/bin.000001";
const SECOND: &str = "data/bin.000002";
const THIRD: &str = "data/bin.000003";
const INDEX: &str = "data/bin.index";

fn env() -> MemEnv {
    let env = MemEnv::new();
    env.create_dir_all(Path::new("data")).unwrap();
    env
}

fn open(env: &MemEnv) -> Arc<Db> {
    let options = Options {
        background_jobs: 0,
        ..Options::default()
    };
    Db::open(Arc::new(env.clone()), Path::new(DIR), options, None).unwrap()
}

/// The key that transaction `xid` of server run `run` writes.
fn key(run: u8, xid: u64) -> Vec<u8> {
    let mut key = vec![0, 0, 0, 9, run];
    key.extend_from_slice(&xid.to_be_bytes());
    key
}

/// Prepares a transaction under `name` and ends its session without an outcome.
fn prepare_as(db: &Arc<Db>, run: u8, xid: u64, name: &[u8]) {
    let mut transaction = db.new_transaction(db.new_owner(0));
    transaction.begin_statement(1, Isolation::ReadCommitted, 0, false);
    let value = Value {
        head: b"v",
        tail: b"",
    };
    transaction.put(&key(run, xid), value).unwrap();
    transaction.prepare(name).unwrap();
    transaction.detach(db.new_owner(0));
}

fn prepare(db: &Arc<Db>, run: u8, xid: u64) {
    prepare_as(db, run, xid, &xid_image(xid));
}

fn committed(db: &Arc<Db>, run: u8, xids: &[u64]) -> Vec<u64> {
    let transaction = db.new_transaction(db.new_owner(0));
    let point = transaction.latest_point();
    let is_there = |xid: &&u64| {
        let found = transaction.get(&point, &key(run, **xid), ReadClass::Point, |_, _| ());
        found.unwrap().is_some()
    };
    xids.iter().filter(is_there).copied().collect()
}

fn index(env: &MemEnv, names: &[&str]) {
    let mut file = env.create(Path::new(INDEX)).unwrap();
    for name in names {
        file.append(name.as_bytes()).unwrap();
        file.append(b"\n").unwrap();
    }
    file.sync().unwrap();
}

fn read_all(env: &MemEnv, path: &Path) -> Vec<u8> {
    let file = env.open(path).unwrap();
    let mut bytes = vec![0; file.size().unwrap() as usize];
    file.read_exact_at(ReadClass::Log, 0, &mut bytes).unwrap();
    bytes
}

fn position(bytes: &[u8], wanted: &[u8]) -> usize {
    let mut windows = bytes.windows(wanted.len());
    windows.rposition(|window| window == wanted).unwrap()
}

/// The segment of the log with the highest number.
fn newest_log(env: &MemEnv) -> PathBuf {
    let names = env.list_dir(Path::new(DIR)).unwrap().into_iter();
    let newest = names.filter(|name| name.ends_with(".wal")).max().unwrap();
    Path::new(DIR).join(newest)
}

/// A server that starts with its binary log.
fn with_binlog() -> ServerStart {
    ServerStart {
        asks: true,
        server_decides_all: false,
        binlog_index: Some(PathBuf::from(INDEX)),
    }
}

/// The engine after a kill: its server run prepared 1, 2 and 3, and the binary log has 1 and 3. No
/// other server run followed.
fn killed() -> MemEnv {
    let env = env();
    TestBinlog::begin(10, true, true)
        .transaction(1, 9)
        .rotate("bin.000002")
        .save(&env, FIRST);
    let db = open(&env);
    db.note_server_run(Some(Path::new(FIRST))).unwrap();
    (1..=3).for_each(|xid| prepare(&db, 1, xid));
    prepare_as(&db, 1, 100, b"a client's");
    drop(db);
    TestBinlog::begin(20, false, true)
        .transaction(3, 9)
        .save(&env, SECOND);
    index(&env, &[FIRST, SECOND]);
    env
}

/// As [`killed`], but after another server run without the engine, whose transactions have the same
/// numbers.
fn killed_and_started_without() -> MemEnv {
    let env = killed();
    TestBinlog::begin(30, true, true)
        .transaction(2, 9)
        .save(&env, THIRD);
    index(&env, &[FIRST, SECOND, THIRD]);
    env
}

#[test]
fn the_binary_log_of_their_run_decides() {
    let env = killed_and_started_without();
    for _ in 0..2 {
        let db = open(&env);
        db.resolve_in_doubt(&with_binlog()).unwrap();
        assert_eq!(committed(&db, 1, &[1, 2, 3, 100]), [1, 3]);
        // A transaction with a client's xid stays prepared.
        assert_eq!(db.prepared_xids(), [b"a client's".to_vec()]);
    }
}

#[test]
fn the_server_decides_what_its_last_run_prepared() {
    let env = killed();
    let db = open(&env);
    db.resolve_in_doubt(&with_binlog()).unwrap();
    assert_eq!(db.prepared_xids().len(), 4);
    assert_eq!(committed(&db, 1, &[1, 2, 3]), []);
    // The engine decides if the server is running already, keeps no binary log now, or was shut
    // down cleanly.
    let running = ServerStart {
        asks: false,
        ..with_binlog()
    };
    let without = ServerStart {
        binlog_index: None,
        ..with_binlog()
    };
    for (start, closed) in [(running, false), (without, false), (with_binlog(), true)] {
        let env = killed();
        if closed {
            TestBinlog::begin(20, false, true)
                .transaction(3, 9)
                .stop()
                .save(&env, SECOND);
        }
        let db = open(&env);
        db.resolve_in_doubt(&start).unwrap();
        assert_eq!(committed(&db, 1, &[1, 2, 3]), [1, 3]);
        assert_eq!(db.prepared_xids().len(), 1);
    }
}

#[test]
fn runs_stay_apart_over_any_number_of_starts() {
    let env = killed();
    TestBinlog::begin(30, true, true).save(&env, THIRD);
    // The server was killed before it asked for prepared transactions; the next run gives out the
    // same numbers.
    let db = open(&env);
    db.note_server_run(Some(Path::new(THIRD))).unwrap();
    (4..=6).for_each(|xid| prepare(&db, 2, xid));
    drop(db);
    drop(open(&env));
    TestBinlog::begin(30, true, true)
        .transaction(2, 9)
        .transaction(4, 9)
        .stop()
        .save(&env, THIRD);
    let db = open(&env);
    db.resolve_in_doubt(&ServerStart::default()).unwrap();
    assert_eq!(committed(&db, 1, &[1, 2, 3]), [1, 3]);
    assert_eq!(committed(&db, 2, &[4, 5, 6]), [4]);
}

#[test]
fn what_is_not_known_stays_prepared() {
    let env = env();
    let db = open(&env);
    prepare(&db, 1, 1);
    drop(db);
    // The log later names another server run than that of transaction 1.
    TestBinlog::begin(10, true, true).save(&env, FIRST);
    let db = open(&env);
    db.note_server_run(Some(Path::new(FIRST))).unwrap();
    prepare(&db, 2, 2);
    drop(db);
    let db = open(&env);
    prepare(&db, 3, 3);
    drop(db);
    let db = open(&env);
    db.resolve_in_doubt(&ServerStart::default()).unwrap();
    assert_eq!(db.prepared_xids(), [xid_image(1), xid_image(3)]);
    assert_eq!(committed(&db, 2, &[2]), []);
}

#[test]
fn without_a_binary_log_nothing_was_promised() {
    let env = env();
    let db = open(&env);
    db.note_server_run(None).unwrap();
    prepare(&db, 1, 1);
    drop(db);
    let db = open(&env);
    let without = ServerStart {
        binlog_index: None,
        ..with_binlog()
    };
    db.resolve_in_doubt(&without).unwrap();
    assert_eq!(db.prepared_xids().len(), 1);
    db.resolve_in_doubt(&with_binlog()).unwrap();
    assert_eq!(db.prepared_xids().len(), 0);
    assert_eq!(committed(&db, 1, &[1]), []);
}

#[test]
fn a_binary_log_that_is_gone_is_no_answer() {
    for gone in [true, false] {
        let env = killed_and_started_without();
        match gone {
            true => env.remove(Path::new(FIRST)).unwrap(),
            // The binary log file has the right name, but another server began it.
            false => TestBinlog::begin(11, true, true).save(&env, FIRST),
        }
        for _ in 0..2 {
            let db = open(&env);
            let error = db.resolve_in_doubt(&with_binlog()).unwrap_err();
            let words = error.to_string();
            for word in [
                "1, 2, 3",
                FIRST,
                "--tc-heuristic-recover",
                "Put the binary log back",
            ] {
                assert!(words.contains(word), "{word}: {words}");
            }
            assert_eq!(db.prepared_xids().len(), 4);
        }
        // With --tc-heuristic-recover the server decides.
        let db = open(&env);
        let told = ServerStart {
            server_decides_all: true,
            ..with_binlog()
        };
        db.resolve_in_doubt(&told).unwrap();
        assert_eq!(db.prepared_xids().len(), 4);
        drop(db);
        // The administrator puts the file back.
        TestBinlog::begin(10, true, true)
            .transaction(1, 9)
            .rotate("bin.000002")
            .save(&env, FIRST);
        let db = open(&env);
        db.resolve_in_doubt(&with_binlog()).unwrap();
        assert_eq!(committed(&db, 1, &[1, 2, 3]), [1, 3]);
    }
}

#[test]
fn a_repaired_copy_knows_the_runs() {
    let env = killed_and_started_without();
    // Prepare one more transaction of an unknown server run, and one of another server run.
    let db = open(&env);
    prepare(&db, 2, 7);
    db.note_server_run(Some(Path::new(THIRD))).unwrap();
    prepare(&db, 3, 8);
    drop(db);
    TestBinlog::begin(30, true, true)
        .transaction(2, 9)
        .transaction(8, 9)
        .save(&env, THIRD);
    let look = ReadOnlyDb::open(Arc::new(env.clone()), Path::new(DIR)).unwrap();
    let target = Path::new("data/repaired");
    let repaired = repair(&look, target, &mut |lost| panic!("{lost}")).unwrap();
    assert_eq!(repaired.prepared, 6);
    drop(look);
    env.rename(Path::new(DIR), Path::new("data/damaged"))
        .unwrap();
    env.rename(target, Path::new(DIR)).unwrap();
    let db = open(&env);
    db.resolve_in_doubt(&ServerStart::default()).unwrap();
    assert_eq!(committed(&db, 1, &[1, 2, 3]), [1, 3]);
    assert_eq!(committed(&db, 3, &[8]), [8]);
    assert_eq!(db.prepared_xids(), [xid_image(7), b"a client's".to_vec()]);
}

#[test]
fn a_binary_log_that_was_moved_is_asked() {
    let env = killed_and_started_without();
    env.create_dir_all(Path::new("moved")).unwrap();
    for path in [FIRST, SECOND, THIRD] {
        env.rename(Path::new(path), Path::new(&path.replace("data", "moved")))
            .unwrap();
    }
    index(&env, &["moved/bin.000003"]);
    let db = open(&env);
    db.resolve_in_doubt(&with_binlog()).unwrap();
    assert_eq!(committed(&db, 1, &[1, 2, 3]), [1, 3]);
}

#[test]
fn a_repaired_copy_trusts_no_run_named_before_a_loss() {
    let env = killed();
    let db = open(&env);
    db.note_server_run(Some(Path::new(FIRST))).unwrap();
    prepare(&db, 2, 7);
    // The records that are damaged below name another server run, and prepare transactions of it.
    TestBinlog::begin(30, true, true).save(&env, THIRD);
    db.note_server_run(Some(Path::new(THIRD))).unwrap();
    prepare(&db, 3, 8);
    prepare(&db, 3, 9);
    drop(db);
    let log = newest_log(&env);
    let mut bytes = read_all(&env, &log);
    let at = position(&bytes, THIRD.as_bytes());
    bytes[at] ^= 1;
    let mut file = env.create(&log).unwrap();
    file.append(&bytes).unwrap();
    file.sync().unwrap();
    let look = ReadOnlyDb::open(Arc::new(env.clone()), Path::new(DIR)).unwrap();
    let target = Path::new("data/repaired");
    let mut lost = Vec::new();
    repair(&look, target, &mut |loss| lost.push(loss)).unwrap();
    assert!(!lost.is_empty());
    drop(look);
    let db = Db::open(
        Arc::new(env.clone()),
        target,
        Options {
            background_jobs: 0,
            ..Options::default()
        },
        None,
    )
    .unwrap();
    let left = db.cx.prepared.runs();
    let of = |xid| left.iter().any(|(image, _)| *image == xid_image(xid));
    assert!(of(1) && of(7), "named before the loss");
    assert!(db.prepared_xids().contains(&xid_image(9)));
    assert!(!of(9), "the record that named its run is lost");
}

#[test]
fn an_encrypted_binary_log_is_no_answer() {
    let env = killed();
    TestBinlog::begin(20, false, true)
        .encrypt()
        .transaction(3, 9)
        .save(&env, SECOND);
    let db = open(&env);
    let error = db.resolve_in_doubt(&ServerStart::default()).unwrap_err();
    let words = error.to_string();
    assert!(words.contains("is encrypted"), "{words}");
    assert!(!words.contains("Put the binary log back"), "{words}");
    assert_eq!(db.prepared_xids().len(), 4);
}

#[test]
fn each_segment_names_the_run() {
    let env = env();
    TestBinlog::begin(10, true, true).save(&env, FIRST);
    let options = Options {
        background_jobs: 0,
        wal_segment_size: 64 << 10,
        ..Options::default()
    };
    let db = Db::open(Arc::new(env.clone()), Path::new(DIR), options, None).unwrap();
    db.note_server_run(Some(Path::new(FIRST))).unwrap();
    // Write so much that segments are released, and with them the records that named the server
    // run.
    for round in 0..40 {
        for xid in round * 100 + 1..round * 100 + 60 {
            prepare(&db, 1, xid);
            if xid % 10 != 0 {
                db.commit_xid(&xid_image(xid)).unwrap();
            }
        }
        let open: Vec<Vec<u8>> = db.prepared_xids();
        if round % 3 == 2 {
            for image in open {
                db.rollback_xid(&image).unwrap();
            }
        }
        db.flush().unwrap();
    }
    let left = db.prepared_xids().len();
    assert!(left > 0);
    drop(db);
    let db = open(&env);
    assert_eq!(db.context().prepared.runs().len(), left);
}

/// `XA COMMIT … ONE PHASE`: the binary log names the server's number, the engine's log the client's
/// xid.
#[test]
fn the_binary_log_repeats_no_commit_under_a_clients_name() {
    let env = env();
    let db = open(&env);
    let mut transaction = db.new_transaction(db.new_owner(0));
    transaction.begin_statement(1, Isolation::ReadCommitted, 0, false);
    let value = Value {
        head: b"v",
        tail: b"",
    };
    transaction.put(&key(1, 1), value).unwrap();
    transaction.prepare_to_stay(b"a client's").unwrap();
    transaction
        .commit_prepared(Some((b"bin.000001", 4)))
        .unwrap();
    transaction.commit().unwrap();
    let after = env.crash(1);
    drop(transaction);
    drop(db);
    let db = open(&after);
    assert_eq!(committed(&db, 1, &[1]), [1]);
    assert!(db.prepared_xids().is_empty());
}
