//! Records and entries that no server writes yet: of a log that others follow, of a database that another writer has
//! taken over, of objects that the catalog keeps for the server.

use super::*;
use firn::base::Result;
use firn::base::events::Silent;
use firn::base::health::Health;
use firn::catalog::ObjectKind;
use firn::db::{Look, repair};
use firn::wal::{Gtid, Record, Room, Wal, WalOptions, replay};

const DIR: &str = "/db";
const IDS_PER_EPOCH: u64 = 1 << 40;

/// Appends records to the log of a closed database.
fn append(env: &MemEnv, records: &[Record<'_>]) {
    let dir = Path::new(DIR);
    let look = Look::open(Arc::new(env.clone()), dir).unwrap();
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
        end.max_segment_id_seen + 1,
        end.log_end(),
    )
    .unwrap();
    wal.append(records, Room::Leave).unwrap();
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

fn look(env: &MemEnv) -> Look {
    Look::open(Arc::new(env.clone()), Path::new(DIR)).unwrap()
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
        // The first round writes nothing: the jump stays without a commit behind it.
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
        // The manifest that the first open begins is older than the record that it reads in the log.
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
                .set_object(ObjectKind::View, "d/v", Some(b"old"))
                .unwrap();
            catalog
                .set_object(ObjectKind::View, "d/v", Some(b"select 1"))
                .unwrap();
            catalog
                .set_object(ObjectKind::Event, "d/v", Some(b""))
                .unwrap();
            catalog
                .set_object(ObjectKind::Routine, "gone", Some(b"x"))
                .unwrap();
            catalog
                .set_object(ObjectKind::Routine, "gone", None)
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
                (ObjectKind::Event, "d/v", &b""[..]),
                (ObjectKind::View, "d/v", b"select 1"),
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
    // What is saved of a damaged database has them, too.
    let looked = look(&env);
    repair(&looked, Path::new("/new"), &mut |lost| panic!("{lost}")).unwrap();
    let db = Db::open(Arc::new(env), Path::new("/new"), options(), None).unwrap();
    assert_eq!(db.catalog().objects().len(), 2);
    assert_eq!(db.catalog().partitioned(), ["d/u"]);
}
