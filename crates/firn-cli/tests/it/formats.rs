//! Databases of each format, kept as they were written. Every row is read, all commands understand
//! them, and they can be written on, which brings them to the newest format file by file.

use super::support::{Rows, Stopped, World, firn, json, open, options, read};
use firn::base::event_listener::Silent;
use firn::base::health::Health;
use firn::base::options::Options;
use firn::catalog::ServerObjectKind;
use firn::db::ReadOnlyDb;
use firn::env::{Env, PosixEnv};
use firn::wal::{Gtid, OutcomeRoom, Record, Wal, WalOptions, replay};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The expected content of a kept database, which has everything that a directory may hold.
#[derive(serde::Serialize, serde::Deserialize)]
struct Kept {
    rows: Rows,
    /// The prepared transactions, one in a batch and one in files, with the rows that they insert.
    prepared: Vec<(String, Rows)>,
}

/// Names of the kept databases, oldest format first.
const FORMATS: [&str; 3] = ["db-before-epochs", "db-with-epochs", "db-in-an-epoch"];

/// A counter that nothing else uses. It was set before the last flush, and again in the log.
const COUNTER: u64 = 1 << 50;

/// The last global transaction id in the log.
const GTID: Gtid = Gtid {
    domain: 3,
    server: 9,
    sequence: 77,
};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../firn/tests/fixtures")
}

fn kept(format: &str) -> Kept {
    let path = fixtures().join(format).join("rows.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// A copy of the database of `format`.
fn copy_of(format: &str, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for file in fixtures().join(format).join("db").read_dir().unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Small levels, files and log segments.
fn small() -> Options {
    Options {
        target_file_size: 32 << 10,
        base_level_size: 4 << 10,
        wal_segment_size: 32 << 10,
        blob_file_size: 16 << 10,
        blob_garbage_min: 1 << 10,
        // Only the test flushes.
        frozen_memtables_max: 1000,
        ..options()
    }
}

/// Appends log records that another writer makes: a commit's global transaction id, and the begin
/// of an epoch.
fn begin_epoch(dir: &Path) {
    let env: Arc<dyn Env> = Arc::new(PosixEnv::new());
    let look = ReadOnlyDb::open(Arc::clone(&env), dir).unwrap();
    let first = look.tree().unwrap().state.log_number;
    drop(look);
    let end = replay(&*env, dir, first, &mut |_, _| Ok(())).unwrap();
    let options = WalOptions {
        segment_size: 32 << 10,
        background: false,
        ..WalOptions::default()
    };
    let (health, silent) = (Arc::new(Health::new()), Arc::new(Silent));
    let (next, log_end) = (end.max_segment_id_seen + 1, end.log_end());
    let wal = Wal::create(env, dir, options, health, silent, next, log_end).unwrap();
    let gtid = Record::Gtid {
        seqno: 1,
        gtid: GTID,
    };
    let epoch = Record::Epoch {
        epoch: 2,
        after: 1 << 33,
    };
    wal.append(&[gtid, epoch], OutcomeRoom::Leave).unwrap();
    wal.close().unwrap();
}

/// Writes a fixture in the format that the code writes. Add a new name to [`FORMATS`] before.
#[test]
#[ignore = "writes a fixture that the other tests read"]
fn write_fixture() {
    let place = fixtures().join(FORMATS[FORMATS.len() - 1]);
    assert!(!place.exists(), "a fixture is never written again");
    let dir = place.join("db");
    std::fs::create_dir_all(&dir).unwrap();
    let mut world = World::create_with(&dir, 1, small());
    world.more_tables(&["d/empty", "d/dropped"]);
    let catalog = world.db.catalog();
    let view = Some(&b"select 1"[..]);
    catalog
        .set_object(ServerObjectKind::View, "d/v", view)
        .unwrap();
    catalog.set_partitioning("d/t", Some(b"par")).unwrap();
    world.write(500);
    world.db.compact_all().unwrap();
    world.write(300);
    // The blob gc moves blobs to other files and removes some.
    world.db.compact_all().unwrap();
    while world.db.collect_blobs().unwrap() {}
    world.db.catalog().drop_table("d/dropped").unwrap();
    world.write(200);
    world.db.flush().unwrap();
    while world.db.compact_once().unwrap() {}
    for _ in 0..2 {
        world.write(60);
        world.db.flush().unwrap();
    }
    world.db.catalog().set_counter(COUNTER, 50).unwrap();
    world.db.flush().unwrap();
    world.db.close().unwrap();
    let stopped = world.stopped();
    begin_epoch(&dir);
    // From here on the database is not closed, as after a kill: the log has a tail, and some files
    // are named by the log alone.
    let mut world = stopped.started_with(&dir, small());
    world.write(50);
    world.db.catalog().set_counter(COUNTER, 7).unwrap();
    world.db.note_server_run(None).unwrap();
    let limit = &world.db.options().mutable.txn_memory_limit;
    let usual = limit.swap(4 << 10, Ordering::Relaxed);
    world.write(20);
    let of_files = world.prepare("files", 6000..6040);
    world
        .db
        .options()
        .mutable
        .txn_memory_limit
        .store(usual, Ordering::Relaxed);
    let of_batch = world.prepare("batch", 5000..5005);
    world.write(50);
    let kept = Kept {
        rows: world.rows.clone(),
        prepared: vec![("batch".into(), of_batch), ("files".into(), of_files)],
    };
    drop(world);
    std::fs::remove_file(dir.join("LOCK")).unwrap();
    let rows = serde_json::to_vec(&kept).unwrap();
    std::fs::write(place.join("rows.json"), rows).unwrap();
}

/// Checks that all commands that only read find the directory sound and with these rows. Returns
/// what `firn inspect` shows.
fn looked_at(dir: &Path, rows: &Rows, format: &str) -> serde_json::Value {
    let (code, shown) = json(&["inspect", "--files", text(dir)]);
    assert_eq!(code, 0, "{format}: {shown}");
    let (code, checked) = json(&["check", text(dir)]);
    assert_eq!(code, 0, "{format}: {checked}");
    assert_eq!(checked["rows"], rows.len(), "{format}");
    assert_eq!(checked["sound"], true, "{format}: {checked}");
    for file in dir.read_dir().unwrap() {
        let path = file.unwrap().path();
        let kind = match path.extension().and_then(|e| e.to_str()) {
            Some(kind @ ("sst" | "wal" | "blob")) => kind,
            _ if text(&path).contains("MANIFEST-") => "manifest",
            _ => continue,
        };
        let (code, dumped) = json(&["dump", kind, text(&path)]);
        assert_eq!(code, 0, "{format}: {}: {dumped}", path.display());
        let people = firn(["dump", kind, text(&path)]);
        assert!(people.status.success() && !people.stdout.is_empty());
    }
    let people = firn(["inspect", "--files", text(dir)]);
    assert!(people.status.success() && !people.stdout.is_empty());
    shown
}

/// Number of files whose tail length the manifest has, and number of other files.
fn tails(shown: &serde_json::Value) -> (usize, usize) {
    let files = shown["files"].as_array().unwrap();
    let known = files.iter().filter(|file| file["tail_bytes"].is_u64());
    let known = known.count();
    (known, files.len() - known)
}

#[test]
fn every_format_is_understood_by_all_commands() {
    for format in FORMATS {
        let dir = tempfile::tempdir().unwrap();
        copy_of(format, dir.path());
        let kept = kept(format);
        let shown = looked_at(dir.path(), &kept.rows, format);
        assert_eq!(shown["log"]["prepared_transactions"], 2, "{format}");
        assert!(shown["log"]["files"].as_u64().unwrap() > 0, "{format}");
        let levels = shown["levels"].as_array().unwrap();
        let used = levels.iter().filter(|l| l["files"] != 0).count();
        assert!(used > 2, "{format}: {levels:?}");
        assert!(shown["blobs"]["references"].as_u64().unwrap() > 100);
        assert_eq!(shown["blobs"]["missing_files"], 0, "{format}");
        let with_epochs = usize::from(format != FORMATS[0]);
        assert_eq!(shown["database"].is_string(), with_epochs == 1, "{format}");
        let epoch = if format == FORMATS[2] { 2 } else { 0 };
        assert_eq!(shown["epoch"], epoch, "{format}");
        assert_eq!(
            shown["log"]["gtids"].as_array().map_or(0, Vec::len),
            usize::from(epoch > 0)
        );
        assert_eq!(shown["server_objects"], with_epochs, "{format}");
        assert_eq!(shown["partitioned_tables"], with_epochs, "{format}");
        let (with, without) = tails(&shown);
        assert_eq!([without, with][1 - with_epochs], 0, "{format}");
        assert!(shown["other_stored_bytes"].as_u64().is_some(), "{format}");
    }
}

#[test]
fn every_format_is_read_and_written_on() {
    for format in FORMATS {
        let dir = tempfile::tempdir().unwrap();
        copy_of(format, dir.path());
        let Kept { mut rows, prepared } = kept(format);
        let db = open(dir.path()).unwrap();
        assert_eq!(read(&db).unwrap(), rows, "{format}");
        if format == FORMATS[2] {
            let counters = db.catalog().counters().snapshot();
            let (_, found) = counters.iter().find(|(id, _)| *id == COUNTER).unwrap();
            assert_eq!((found.generation, found.value), (2, 7));
        }
        let xids = prepared.iter().map(|(xid, _)| xid.clone().into_bytes());
        assert_eq!(db.prepared_xids(), xids.collect::<Vec<_>>(), "{format}");
        let (first, second) = (&prepared[0], &prepared[1]);
        assert!(db.rollback_xid(first.0.as_bytes()).unwrap(), "{format}");
        assert!(db.commit_xid(second.0.as_bytes()).unwrap(), "{format}");
        rows.extend(second.1.clone());
        assert_eq!(read(&db).unwrap(), rows, "{format}");
        drop(db);

        let mut world = Stopped::with(rows, 7).started(dir.path());
        assert_eq!(read(&world.db).unwrap(), world.rows, "{format}");
        world.write(300);
        world.db.flush().unwrap();
        world.write(100);
        let rows = world.rows.clone();
        drop(world);
        let mixed = looked_at(dir.path(), &rows, format);
        let (with, without) = tails(&mixed);
        assert!(
            with > 0 && (without > 0) == (format == FORMATS[0]),
            "{format}"
        );

        let mut world = Stopped::with(rows, 8).started(dir.path());
        world.write(100);
        // The compaction rewrites every file.
        world.db.compact_all().unwrap();
        while world.db.collect_blobs().unwrap() {}
        assert_eq!(read(&world.db).unwrap(), world.rows, "{format}");
        world.db.close().unwrap();
        let rows = world.rows.clone();
        drop(world);
        let newest = looked_at(dir.path(), &rows, format);
        assert_eq!(newest["database"], mixed["database"], "{format}");
        assert!(newest["database"].is_string(), "{format}");
        assert_eq!(
            tails(&newest).1,
            0,
            "{format}: every file is of the newest format"
        );
        let db = open(dir.path()).unwrap();
        assert_eq!(read(&db).unwrap(), rows, "{format}");
        assert_eq!(db.catalog().get("d/empty").unwrap().frm, b"image");
        assert!(db.catalog().get("d/dropped").is_err(), "{format}");
    }
}

#[test]
fn every_format_is_repaired_without_a_loss() {
    for format in FORMATS {
        let place = tempfile::tempdir().unwrap();
        let (from, to) = (place.path().join("from"), place.path().join("to"));
        copy_of(format, &from);
        let kept = kept(format);
        let (code, report) = json(&["repair", text(&from), text(&to)]);
        assert_eq!(code, 0, "{format}: {report}");
        assert_eq!(report["complete"], true, "{format}: {report}");
        assert_eq!(report["tables"]["d/t"], kept.rows.len(), "{format}");
        let db = open(&to).unwrap();
        assert_eq!(read(&db).unwrap(), kept.rows, "{format}");
        assert_eq!(db.prepared_xids().len(), 2, "{format}");
        assert!(db.commit_xid(b"files").unwrap() && db.commit_xid(b"batch").unwrap());
        let mut rows = kept.rows;
        rows.extend(kept.prepared.into_iter().flat_map(|(_, rows)| rows));
        assert_eq!(read(&db).unwrap(), rows, "{format}");
    }
}

#[test]
fn every_format_is_backed_up_and_restored() {
    for format in FORMATS {
        let place = tempfile::tempdir().unwrap();
        let (from, to) = (place.path().join("from"), place.path().join("to"));
        let target = place.path().join("backups");
        copy_of(format, &from);
        let kept = kept(format);
        let line = ["backup", text(&target), "--from-dir", text(&from)];
        let (code, taken) = json(&line);
        assert_eq!(code, 0, "{format}: {taken}");
        let (code, verified) = json(&["backup", "--verify", text(&target)]);
        assert_eq!(code, 0, "{format}: {verified}");
        let (code, restored) = json(&["restore", text(&target), "--to", text(&to)]);
        assert_eq!(code, 0, "{format}: {restored}");
        let db = open(&to.join("#firn")).unwrap();
        assert_eq!(read(&db).unwrap(), kept.rows, "{format}");
    }
}
