use super::super::backup_format::StoredFile;
use super::super::stored_backups::entries;
use super::super::target::Target;
use super::super::tests::{args, data_directory, text};
use super::super::{create, restore};
use super::*;
use crate::args::Command;
use crate::output::Output;
use firn::base::Value;
use firn::base::blob_ref;
use firn::base::options::Options;
use firn::db::Db;
use firn::txn::{Isolation, Transaction};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

struct ArchiveDirs {
    root: tempfile::TempDir,
}

impl ArchiveDirs {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        data_directory(&root.path().join("data"));
        std::fs::create_dir(root.path().join("archive")).unwrap();
        Self { root }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Opens the database. Each call of `archive_log` closes the current segment and archives it.
    fn open(&self) -> Arc<Db> {
        let options = Options {
            background_jobs: 0,
            wal_segment_size: 64 << 10,
            log_archive_dir: Some(self.at("archive")),
            ..Options::default()
        };
        options
            .mutable
            .log_archive_timeout_us
            .store(0, Ordering::Relaxed);
        Db::open(
            Arc::new(PosixEnv::new()),
            &self.at("data/#firn"),
            options,
            None,
        )
        .unwrap()
    }

    /// Commits rows, one of them with a large value, and archives them.
    fn write(&self) {
        let db = self.open();
        for n in 0..20u64 {
            let mut txn = begin(&db);
            txn.put(&key(&db, "d/t", n), Value::whole(&[7; 4000]))
                .unwrap();
            txn.commit().unwrap();
        }
        let mut txn = begin(&db);
        let blob = txn.write_blob(1, &[8; 10_000]).unwrap();
        let mut tail = Vec::new();
        blob_ref::append(&mut tail, &[blob]);
        txn.put_with_blobs(&key(&db, "d/t", 100), Value::split(b"", &tail))
            .unwrap();
        txn.commit().unwrap();
        db.archive_log().unwrap();
        db.close().unwrap();
    }

    /// Takes a backup. Returns all backups in the target; the last one is the new one.
    fn back_up(&self) -> Vec<Backup> {
        let (target, data) = (self.at("backups"), self.at("data"));
        let line = ["backup", text(&target), "--from-dir", text(&data)];
        let Command::Backup(take) = args(&line) else {
            panic!("{line:?}")
        };
        create::run(&take, &Output::new(true)).unwrap();
        let target = Target::open(text(&target), false).unwrap();
        let found = entries(&target).unwrap();
        found.iter().map(|e| e.read(&target).unwrap()).collect()
    }

    fn restore(&self, to: &str, more: &[&str]) -> Result<()> {
        let archive = self.at("archive");
        let until = ["--archive", text(&archive), "--until-end"];
        self.restore_backup(to, &[&until[..], more].concat())
    }

    fn restore_backup(&self, to: &str, more: &[&str]) -> Result<()> {
        let (target, to) = (self.at("backups"), self.at(to));
        let line = ["restore", text(&target), "--to", text(&to)];
        let line = [&line[..], more].concat();
        let Command::Restore(command) = args(&line) else {
            panic!("{line:?}")
        };
        restore::run(&command, &Output::new(true)).map(drop)
    }

    fn segments(&self) -> Vec<u64> {
        archived_segments(&PosixEnv::new(), &self.at("archive")).unwrap()
    }

    fn blobs(&self) -> usize {
        let names = PosixEnv::new().list_dir(&self.at("archive")).unwrap();
        let kinds = names.iter().filter_map(|name| parse_file_name(name));
        kinds.filter(|(kind, _)| *kind == FileKind::Blob).count()
    }
}

fn begin(db: &Db) -> Transaction {
    let mut txn = db.new_transaction(db.new_owner(0));
    txn.begin_statement(1, Isolation::RepeatableRead, 1000, false);
    txn
}

fn key(db: &Db, table: &str, n: u64) -> Vec<u8> {
    let index = db.catalog().get(table).unwrap().index_ids()[0];
    [&index.to_be_bytes()[..], &n.to_be_bytes()].concat()
}

#[test]
fn a_prune_leaves_what_each_backup_that_stays_needs() {
    let place = ArchiveDirs::new();
    place.write();
    let first = place.back_up().pop().unwrap();
    place.write();
    let second = place.back_up().pop().unwrap();
    place.write();
    let before = place.segments();
    assert!(first.last_segment() > before[0] && second.last_segment() > first.last_segment());
    // One backup is of another server and does not count. The ids of the other two say nothing
    // about their order, as if a clock had been set back: the number of the last segment decides
    // which is older.
    let foreign = Backup {
        archive: None,
        ..first.clone()
    };
    let removed = prune(&place.at("archive"), &[foreign, second, first.clone()]).unwrap();
    assert!(removed.segments > 0);
    let needed = before.iter().filter(|id| **id > first.last_segment());
    assert_eq!(place.segments(), needed.copied().collect::<Vec<_>>());
    place.restore("one", &["--backup", &first.id]).unwrap();

    // A file with a high id in this backup makes it look as if the archived blob files had got
    // their ids before the backup and had been made after it. They must stay.
    let mut early = first.clone();
    early.files.push(StoredFile {
        name: file_name(FileKind::Sst, 1_000_000),
        size: 0,
        pieces: Vec::new(),
    });
    let blobs = place.blobs();
    assert!(blobs >= 2, "{blobs}");
    prune(&place.at("archive"), &[early]).unwrap();
    place.restore("two", &["--backup", &first.id]).unwrap();
}

#[test]
fn a_copy_of_some_tables_has_no_prepared_transactions() {
    let place = ArchiveDirs::new();
    place.write();
    place.back_up();
    let db = place.open();
    let mut txn = begin(&db);
    for table in ["d/t", "d/u"] {
        txn.put(&key(&db, table, 7), Value::whole(b"prepared"))
            .unwrap();
    }
    txn.prepare(b"of xa").unwrap();
    drop(txn);
    db.archive_log().unwrap();
    db.close().unwrap();
    drop(db);
    place.restore("all", &[]).unwrap();
    place.restore("some", &["--table", "d.u"]).unwrap();
    place.back_up();
    place.restore_backup("a backup", &[]).unwrap();
    place.restore_backup("a part", &["--table", "d.u"]).unwrap();
    let expected = [
        ("all", 1, 2),
        ("some", 0, 1),
        ("a backup", 1, 2),
        ("a part", 0, 1),
    ];
    for (to, prepared, tables) in expected {
        let dir = place.at(to).join("#firn");
        let env = Arc::new(PosixEnv::new());
        let copy = Db::open(env, &dir, Options::default(), None).unwrap();
        assert_eq!(copy.prepared_xids().len(), prepared, "{to}");
        assert_eq!(copy.catalog().list("").len(), tables, "{to}");
    }
}

/// The image of an xid as the handler writes it: format id, lengths of its two parts, the parts.
fn xid_image(name: &[u8], branch: &[u8]) -> Vec<u8> {
    let lengths = [name.len() as u8, branch.len() as u8];
    [&1u64.to_ne_bytes()[..], &lengths, name, branch].concat()
}

/// The server's own xid is a prefix, the server id (4 or 8 bytes) and a number of 8 bytes, which is
/// not 0. A client may give its XA transaction any other name, also one with that prefix.
#[test]
fn only_the_servers_own_transactions_are_rolled_back() {
    let place = ArchiveDirs::new();
    place.write();
    place.back_up();
    let servers = [&b"MySQLXid"[..], &1u32.to_ne_bytes(), &7u64.to_ne_bytes()].concat();
    let clients = [
        xid_image(b"MySQLXid", b""),
        xid_image(b"MySQLXidfoo", b""),
        xid_image(b"of a client", b""),
        xid_image(&servers, b"1"),
    ];
    let servers = xid_image(&servers, b"");
    let db = place.open();
    for (n, xid) in clients.iter().chain([&servers]).enumerate() {
        let mut txn = begin(&db);
        txn.put(&key(&db, "d/t", 100 + n as u64), Value::whole(b"prepared"))
            .unwrap();
        txn.prepare(xid).unwrap();
    }
    db.archive_log().unwrap();
    db.close().unwrap();
    drop(db);
    place.restore("all", &[]).unwrap();
    let dir = place.at("all").join("#firn");
    let copy = Db::open(Arc::new(PosixEnv::new()), &dir, Options::default(), None).unwrap();
    let mut expected = clients.to_vec();
    expected.sort();
    assert_eq!(copy.prepared_xids(), expected);
}

/// Changes the kind of the first record of a segment to one that a newer version might write.
fn newer_record(path: &std::path::Path, id: u64) {
    use firn::wal::frame::{FIRST_GROUP, GROUP_HEADER, GroupHeader, SegmentHeader};
    let mut bytes = std::fs::read(path).unwrap();
    let header = SegmentHeader::decode(&bytes[..4096], id, "f").unwrap();
    let unit = header.unwrap().unit;
    let at = FIRST_GROUP as usize;
    let len = GroupHeader::peek_len(&bytes[at..at + unit], id, unit).unwrap();
    let group = &mut bytes[at..at + len as usize];
    group[GROUP_HEADER] = 200;
    let sum = firn::base::checksum::placed(&group[8..], id, FIRST_GROUP);
    group[..8].copy_from_slice(&sum.to_le_bytes());
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_prune_removes_nothing_if_it_cannot_read_what_is_needed() {
    let place = ArchiveDirs::new();
    place.write();
    let first = place.back_up().pop().unwrap();
    place.write();
    let mut early = first.clone();
    early.files.push(StoredFile {
        name: file_name(FileKind::Sst, 1_000_000),
        size: 0,
        pieces: Vec::new(),
    });
    let (segments, blobs) = (place.segments(), place.blobs());
    let later = segments.iter().filter(|id| **id > first.last_segment());
    for id in later {
        newer_record(&place.at("archive").join(segment_name(*id)), *id);
    }
    let error = prune(&place.at("archive"), &[early]).unwrap_err();
    assert!(error.is_unsupported(), "{error}");
    assert_eq!((place.segments(), place.blobs()), (segments, blobs));
}

#[test]
fn an_epoch_that_begins_does_not_end_a_range() {
    use firn::base::event_listener::Silent;
    use firn::base::health::Health;
    use firn::wal::{OutcomeRoom, Wal, WalOptions, replay_archived};
    let place = ArchiveDirs::new();
    place.write();
    let dir = place.at("archive");
    let firsts = [1 << 40, (1 << 40) + 9];
    for first in firsts {
        let env: Arc<dyn Env> = Arc::new(PosixEnv::new());
        let there = place.segments();
        let (from, to) = (there[0], *there.last().unwrap());
        let end = replay_archived(&*env, &dir, from, to, &mut |_, _| Ok(())).unwrap();
        let options = WalOptions {
            segment_size: 1 << 16,
            background: false,
            ..WalOptions::default()
        };
        let (health, silent) = (Arc::new(Health::new()), Arc::new(Silent));
        let log_end = end.log_end();
        let wal = Wal::create(env, &dir, options, health, silent, first, log_end).unwrap();
        let record = Record::Batch {
            seqno: first,
            batch: b"",
        };
        wal.append(&[record], OutcomeRoom::Leave).unwrap();
        wal.close().unwrap();
    }
    let found = ranges(&dir).unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].last_segment >= firsts[1]);
    assert_eq!(found[0].last_seqno, Some(firsts[1]));
    std::fs::remove_file(dir.join(segment_name(firsts[0]))).unwrap();
    let found = ranges(&dir).unwrap();
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(found[1].first_seqno, Some(firsts[1]));
}
