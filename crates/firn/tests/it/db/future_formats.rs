//! Records and entries that no server writes yet: for a log that readers follow, for a database
//! that another writer takes over, and for server objects in the catalog.

use super::*;
use firn::base::Result;
use firn::base::checksum::placed;
use firn::base::event_listener::Silent;
use firn::base::health::Health;
use firn::catalog::ServerObjectKind;
use firn::db::{ReadOnlyDb, repair};
use firn::version::{FileLocation, FileMeta, create_manifest, manifest_name};
use firn::wal::{Gtid, OutcomeRoom, Record, Wal, WalOptions, replay, segment_name};

const DIR: &str = "/db";
const IDS_PER_EPOCH: u64 = 1 << 40;

/// Appends records to the log of a closed database.
fn append(env: &MemEnv, records: &[Record<'_>]) {
    append_from(env, 0, records);
}

/// As [`append`], in a segment with this id or a larger one.
fn append_from(env: &MemEnv, first_segment: u64, records: &[Record<'_>]) {
    let dir = Path::new(DIR);
    let look = ReadOnlyDb::open(Arc::new(env.clone()), dir).unwrap();
    let first = look.tree().unwrap().state.log_number;
    drop(look);
    let end = replay(env, dir, first, &mut |_, _| Ok(())).unwrap();
    let options = WalOptions {
        segment_size: 1 << 16,
        background: false,
        ..WalOptions::default()
    };
    let wal = Wal::create(
        Arc::new(env.clone()),
        dir,
        options,
        Arc::new(Health::new()),
        Arc::new(Silent),
        first_segment.max(end.max_segment_id_seen + 1),
        end.log_end(),
    )
    .unwrap();
    wal.append(records, OutcomeRoom::Leave).unwrap();
    wal.close().unwrap();
}

fn written() -> MemEnv {
    let env = MemEnv::new();
    let db = open(&env);
    let mut txn = begin(&db);
    put(&mut txn, "a", "1");
    txn.commit().unwrap();
    db.close().unwrap();
    env
}

fn try_open(env: &MemEnv) -> Result<Arc<Db>> {
    Db::open(Arc::new(env.clone()), Path::new(DIR), options(), None)
}

fn look(env: &MemEnv) -> ReadOnlyDb {
    ReadOnlyDb::open(Arc::new(env.clone()), Path::new(DIR)).unwrap()
}

fn segments(env: &MemEnv) -> Vec<u64> {
    let names = env.list_dir(Path::new(DIR)).unwrap();
    let ids = names
        .iter()
        .filter_map(|n| firn::wal::parse_segment_name(n));
    ids.collect()
}

#[test]
fn an_epoch_that_the_log_begins_moves_all_numbers_and_stays() {
    let mut env = written();
    let after = 1 << 33;
    append(&env, &[Record::Epoch { epoch: 2, after }]);
    for round in 0..3 {
        let db = open(&env);
        assert_eq!(get(&mut begin(&db), "a").as_deref(), Some("1"));
        let mut txn = begin(&db);
        // The first round writes nothing: the epoch must last without a later commit.
        if round > 0 {
            put(&mut txn, "a", "1");
            txn.commit().unwrap();
            assert!(firn::db::visible(&db) > after);
            db.flush().unwrap();
        }
        drop(txn);
        drop(db);
        env = env.crash(round);
        let tree = look(&env).tree().unwrap();
        assert_eq!(tree.state.epoch(), 2, "round {round}");
        // The first open creates its manifest before it reads the epoch in the log.
        assert!(round == 0 || tree.manifest_id > 2 * IDS_PER_EPOCH);
        let newest = segments(&env).into_iter().max().unwrap();
        assert!(newest >= 2 * IDS_PER_EPOCH, "{newest}");
    }
    let tree = look(&env).tree().unwrap();
    let (_, newest) = tree.state.files.last_key_value().unwrap();
    assert!(newest.meta.file_id > 2 * IDS_PER_EPOCH);
    assert!(newest.meta.max_seqno > after);
    assert!(tree.state.last_seqno > after);
}

#[test]
fn epochs_that_cannot_be_are_corruption() {
    for records in [
        &[Record::Epoch {
            epoch: 1 << 22,
            after: 5,
        }][..],
        &[Record::Epoch {
            epoch: 1,
            after: 1 << 56,
        }],
        &[
            Record::Epoch { epoch: 2, after: 5 },
            Record::Epoch { epoch: 1, after: 9 },
        ],
    ] {
        let env = written();
        append(&env, records);
        let error = try_open(&env).err().unwrap();
        assert!(error.is_corruption(), "{error}");
    }
}

#[test]
fn global_transaction_ids_are_passed_and_shown() {
    let env = written();
    let gtid = |domain, sequence| Gtid {
        domain,
        server: 9,
        sequence,
    };
    let record = |domain, sequence| Record::Gtid {
        seqno: 1,
        gtid: gtid(domain, sequence),
    };
    append(&env, &[record(0, 5), record(3, 77), record(0, 6)]);
    let looked = look(&env);
    let log = looked.log(&looked.tree().unwrap()).unwrap();
    let shown: Vec<_> = log.gtids.values().map(Gtid::to_string).collect();
    assert_eq!(shown, ["0-9-6", "3-9-77"]);
    drop(looked);
    let db = open(&env);
    assert_eq!(get(&mut begin(&db), "a").as_deref(), Some("1"));
}

#[test]
fn a_log_with_bytes_of_blob_files_is_refused_by_name() {
    let env = written();
    let span = Record::BlobSpan {
        file: 7,
        offset: 64,
        bytes: b"BLB1",
    };
    append(&env, &[span]);
    let looked = look(&env);
    let repaired = repair(&looked, Path::new("/new"), &mut |_| {});
    for error in [
        looked.log(&looked.tree().unwrap()).err().unwrap(),
        repaired.err().unwrap(),
    ] {
        assert_eq!(*error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("blob file 7"), "{error}");
    }
    drop(looked);
    let error = try_open(&env).err().unwrap();
    assert_eq!(*error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("shared store"), "{error}");
}

#[test]
fn objects_of_the_server_and_partitions_are_state() {
    let mut env = MemEnv::new();
    for round in 0..4 {
        let db = open(&env);
        let catalog = db.catalog();
        if round == 0 {
            catalog
                .set_object(ServerObjectKind::View, "d/v", Some(b"old"))
                .unwrap();
            catalog
                .set_object(ServerObjectKind::View, "d/v", Some(b"select 1"))
                .unwrap();
            catalog
                .set_object(ServerObjectKind::Event, "d/v", Some(b""))
                .unwrap();
            catalog
                .set_object(ServerObjectKind::Routine, "gone", Some(b"x"))
                .unwrap();
            catalog
                .set_object(ServerObjectKind::Routine, "gone", None)
                .unwrap();
            catalog.set_partitioning("d/t", Some(b"par")).unwrap();
            catalog.set_partitioning("d/gone", Some(b"p")).unwrap();
            catalog.set_partitioning("d/gone", None).unwrap();
            catalog.rename_partitioning("d/t", "d/u").unwrap();
            let error = catalog.rename_partitioning("d/t", "d/u").unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::NotFound);
        }
        let objects = catalog.objects();
        let objects: Vec<_> = objects
            .iter()
            .map(|((kind, name), image)| (*kind, name.as_str(), &image[..]))
            .collect();
        assert_eq!(
            objects,
            [
                (ServerObjectKind::Event, "d/v", &b""[..]),
                (ServerObjectKind::View, "d/v", b"select 1"),
            ],
            "round {round}"
        );
        assert_eq!(catalog.partitioned(), ["d/u"]);
        assert_eq!(catalog.partitioning("d/u").as_deref(), Some(&b"par"[..]));
        assert_eq!(catalog.partitioning("d/t"), None);
        match round {
            1 => db.flush().unwrap(),
            2 => db.compact_all().unwrap(),
            _ => {}
        }
        drop(db);
        env = env.crash(round);
    }
    // A repaired database has them too.
    let looked = look(&env);
    repair(&looked, Path::new("/new"), &mut |lost| panic!("{lost}")).unwrap();
    let db = Db::open(Arc::new(env), Path::new("/new"), options(), None).unwrap();
    assert_eq!(db.catalog().objects().len(), 2);
    assert_eq!(db.catalog().partitioned(), ["d/u"]);
}

/// Checks that repair refuses the database: it would drop data of a newer version that it cannot
/// read.
#[track_caller]
fn repair_refuses(env: &MemEnv, said: &str) {
    let repaired = repair(&look(env), Path::new("/new"), &mut |_| {});
    let error = repaired.expect_err("it is refused");
    assert!(error.is_unsupported(), "{error}");
    assert!(error.to_string().contains(said), "{error}");
}

fn flushed() -> (MemEnv, String) {
    let env = written();
    let db = open(&env);
    db.flush().unwrap();
    db.close().unwrap();
    let names = env.list_dir(Path::new(DIR)).unwrap();
    let name = names.into_iter().find(|name| name.ends_with(".sst"));
    (env, name.unwrap())
}

#[test]
fn a_table_of_a_newer_version_is_not_repaired_away() {
    for (flags, said) in [(1, "is encrypted"), (2, "feature flag")] {
        let (env, name) = flushed();
        let (_, id) = firn::store::parse_file_name(&name).unwrap();
        let change = |bytes: &mut Vec<u8>| {
            let at = bytes.len() - 72;
            bytes[at + 48] = flags;
            let sum = placed(&bytes[at..at + 56], id, at as u64);
            bytes[at + 56..at + 64].copy_from_slice(&sum.to_le_bytes());
        };
        env.damage(&Path::new(DIR).join(&name), change).unwrap();
        repair_refuses(&env, said);
    }
}

#[test]
fn an_entry_of_a_newer_catalog_is_not_repaired_away() {
    let env = written();
    let db = open(&env);
    let mut txn = begin(&db);
    txn.put(b"\0\0\0\0\xc8name", Value::whole(b"value"))
        .unwrap();
    txn.commit().unwrap();
    drop(txn);
    db.close().unwrap();
    drop(db);
    repair_refuses(&env, "catalog entry kind 200");
}

/// The manifest says that a file lies in an object store, and there is no local one. Repair refuses
/// with the manifest whole (0), with a stray file beside it (1), and with a damaged manifest header
/// (2).
#[test]
fn files_that_lie_elsewhere_are_not_repaired_away() {
    for damage in 0..3 {
        let (env, name) = flushed();
        let dir = Path::new(DIR);
        let mut state = look(&env).tree().unwrap().state;
        let (id, placed) = state.files.pop_last().unwrap();
        let mut placed = placed;
        placed.meta = Arc::new(FileMeta {
            location: FileLocation::ObjectStore,
            ..FileMeta::clone(&placed.meta)
        });
        state.files.insert(id, placed);
        create_manifest(&env, dir, &state).unwrap();
        let path = dir.join(manifest_name(state.next_file_id));
        match damage {
            0 => env.remove(&dir.join(&name)).unwrap(),
            // An unnamed newer file exists.
            1 => {
                let content = env.read(&dir.join(&name)).unwrap();
                env.remove(&dir.join(&name)).unwrap();
                let newer = firn::store::file_name(firn::store::FileKind::Sst, 900);
                env.place(&dir.join(newer), content);
            }
            // With a damaged header, repair searches the manifest for edits.
            _ => env.damage(&path, |bytes| bytes[13] ^= 1).unwrap(),
        }
        repair_refuses(&env, "lies in an object store");
    }
}

#[test]
fn a_segment_of_a_later_epoch_counts_if_it_was_used() {
    let env = written();
    let dir = Path::new(DIR);
    let stray = 3 * IDS_PER_EPOCH + 4;
    for stray in [stray, IDS_PER_EPOCH - 1] {
        env.place(&dir.join(segment_name(stray)), vec![0; 1 << 16]);
    }
    for _ in 0..3 {
        let db = open(&env);
        let mut txn = begin(&db);
        put(&mut txn, "b", "2");
        txn.commit().unwrap();
        drop(txn);
        db.flush().unwrap();
        db.close().unwrap();
        drop(db);
        let state = look(&env).tree().unwrap().state;
        assert!(state.log_number < 100, "{}", state.log_number);
    }
    env.remove(&dir.join(segment_name(stray))).unwrap();
    env.remove(&dir.join(segment_name(IDS_PER_EPOCH - 1)))
        .unwrap();
    append_from(
        &env,
        stray,
        &[Record::Clock {
            wall_ms: 1,
            binlog: None,
        }],
    );
    let error = try_open(&env).err().unwrap();
    assert!(error.is_corruption(), "{error}");
    assert!(error.to_string().contains(&segment_name(stray)), "{error}");
}

#[test]
fn a_look_sees_the_seqno_of_an_epoch_without_commits() {
    let env = written();
    let after = 1 << 33;
    let mut state = look(&env).tree().unwrap().state;
    let identity = state.identity.as_mut().unwrap();
    (identity.epoch, identity.after) = (2, after);
    create_manifest(&env, Path::new(DIR), &state).unwrap();
    let looked = look(&env);
    let log = looked.log(&looked.tree().unwrap()).unwrap();
    assert_eq!(log.point.seqno, after);
}

#[test]
fn global_transaction_ids_outlive_the_log() {
    let env = written();
    let record = |domain, sequence| Record::Gtid {
        seqno: 1,
        gtid: Gtid {
            domain,
            server: 9,
            sequence,
        },
    };
    let shown = |env: &MemEnv| -> Vec<String> {
        let looked = look(env);
        let log = looked.log(&looked.tree().unwrap()).unwrap();
        log.gtids.values().map(Gtid::to_string).collect()
    };
    append(&env, &[record(0, 5), record(3, 77)]);
    let flush = || {
        let db = open(&env);
        let mut txn = begin(&db);
        put(&mut txn, "b", "2");
        txn.commit().unwrap();
        drop(txn);
        db.flush().unwrap();
        db.close().unwrap();
    };
    flush();
    assert!(!look(&env).tree().unwrap().state.gtids.is_empty());
    assert_eq!(shown(&env), ["0-9-5", "3-9-77"]);
    // The log has a newer id of one domain. The id of the other comes from the manifest; each open
    // copies it into a new manifest.
    append(&env, &[record(3, 78)]);
    assert_eq!(shown(&env), ["0-9-5", "3-9-78"]);
    for _ in 0..2 {
        flush();
        assert_eq!(shown(&env), ["0-9-5", "3-9-78"]);
    }
    let looked = look(&env);
    repair(&looked, Path::new("/new"), &mut |lost| panic!("{lost}")).unwrap();
    drop(looked);
    let saved = ReadOnlyDb::open(Arc::new(env), Path::new("/new")).unwrap();
    let state = saved.tree().unwrap().state;
    let gtids: Vec<_> = state.gtids.values().map(Gtid::to_string).collect();
    assert_eq!(gtids, ["0-9-5", "3-9-78"]);
}
