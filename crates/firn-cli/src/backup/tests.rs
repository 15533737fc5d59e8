use super::archive_coverage::local_time;
use super::backup_format::{Piece, timestamp, unhex};
use super::pieces::{PIECE_SIZE, PieceSource, without_zeros};
use super::restore::parse_time;
use super::source::{Definitions, belonging};
use super::target::{Target, Transfer, Upload, UploadSource};
use super::{create, list_verify_prune};
use crate::Outcome;
use crate::args::{Args, Command, TakeBackup};
use crate::output::Output;
use clap::Parser;
use firn::base::checksum::xxh3;
use firn::base::options::Options;
use firn::base::{ErrorKind, Result};
use firn::catalog::{NewTable, TableLocking, TableSchema};
use firn::db::Db;
use firn::env::{Env, PosixEnv};
use object_store::memory::InMemory;
use object_store::path::Path as ObjectPath;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn times_read_as_dates() {
    for (seconds, text) in [
        (0, "19700101T000000Z"),
        (951_782_399, "20000228T235959Z"),
        (951_782_400, "20000229T000000Z"),
        (951_868_800, "20000301T000000Z"),
        (1_798_761_599, "20261231T235959Z"),
        (4_107_542_400, "21000301T000000Z"),
    ] {
        assert_eq!(timestamp(seconds), text, "{seconds}");
    }
}

#[test]
fn points_in_time_are_local_or_have_an_offset() {
    assert_eq!(parse_time("1970-01-01T00:00:01.5Z").unwrap(), 1500);
    assert_eq!(parse_time("1970-01-01T01:00:00+01:00").unwrap(), 0);
    let local = parse_time("2026-06-01 12:30:00.25").unwrap();
    assert_eq!(parse_time("2026-06-01T12:30:00.250").unwrap(), local);
    assert_eq!(local % 1000, 250);
    assert!(local_time(local).starts_with("2026-06-01 12:30:00.250"));
    for wrong in [
        "yesterday",
        "2026-06-31 00:00:00",
        "1969-12-31T00:00:00Z",
        "",
    ] {
        assert!(parse_time(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn damaged_digits_are_named() {
    assert_eq!(unhex("00ff1a").unwrap(), [0, 255, 26]);
    for wrong in ["0", "0g", "é", "00f"] {
        assert!(unhex(wrong).unwrap_err().is_corruption(), "{wrong}");
    }
}

fn memory() -> Target {
    let root = ObjectPath::from("a/b");
    Target::over(Arc::new(InMemory::new()), root, "memory").unwrap()
}

/// Makes files of these sizes, to be sent as a whole. Some are larger than a part of an upload.
fn transfers(dir: &Path, lens: &[usize]) -> Vec<Transfer> {
    let transfer = |(at, &len): (usize, &usize)| {
        let file = dir.join(format!("{at}"));
        let bytes: Vec<u8> = (0..len).map(|i| ((i * (at + 3)) >> 7) as u8).collect();
        std::fs::write(&file, &bytes).unwrap();
        Transfer {
            piece: Piece {
                object: format!("files/{at}-0"),
                runs: vec![(0, len as u64)],
                checksum: format!("{:016x}", xxh3(&bytes)),
            },
            file: Some(file),
        }
    };
    lens.iter().enumerate().map(transfer).collect()
}

fn uploads(transfers: &[Transfer]) -> Vec<Upload> {
    let upload = |transfer: &Transfer| Upload {
        piece: transfer.piece.clone(),
        from: UploadSource::File(transfer.file.clone().unwrap()),
    };
    transfers.iter().map(upload).collect()
}

const LENS: [usize; 6] = [0, 1, 9 << 20, 4096, 20 << 20, 8 << 20];

fn sizes(target: &Target) -> Vec<u64> {
    let listed = target.list("files").unwrap();
    listed.iter().map(|(_, size)| *size).collect()
}

#[test]
fn objects_come_back_whole_and_in_order() {
    let target = memory();
    let dir = tempfile::tempdir().unwrap();
    let transfers = transfers(dir.path(), &LENS);
    target.send(&uploads(&transfers), &|_| {}).unwrap();
    assert_eq!(sizes(&target), LENS.map(|len| len as u64));
    let mut back = transfers.clone();
    for transfer in &mut back {
        let path = transfer.file.as_mut().unwrap();
        path.set_extension("back");
        std::fs::write(path, b"").unwrap();
    }
    let fetched: Result<Vec<()>> = target.fetch(&back, true, &|_| {}).into_iter().collect();
    assert_eq!(fetched.unwrap().len(), LENS.len());
    for (a, b) in transfers.iter().zip(&back) {
        let read = |t: &Transfer| std::fs::read(t.file.as_ref().unwrap()).unwrap();
        assert!(read(a) == read(b), "{a:?}");
    }
    // Damage three objects: one is missing, one has another size, one has other bytes.
    target.remove("files/1-0").unwrap();
    back[3].piece.runs[0].1 += 1;
    back[4].piece.checksum = "0123456789abcdef".to_owned();
    for transfer in &mut back {
        transfer.file = None;
    }
    let read = target.fetch(&back, false, &|_| {});
    let damaged: Vec<bool> = read
        .iter()
        .map(|r| r.as_ref().is_err_and(|e| e.is_corruption()))
        .collect();
    assert_eq!(damaged, [false, true, false, true, true, false]);

    target.put_new("backups/x", b"one".to_vec()).unwrap();
    let again = target.put_new("backups/x", b"two".to_vec());
    assert_eq!(*again.unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(target.get("backups/x").unwrap(), b"one");
    target.remove("backups/x").unwrap();
    target.remove("backups/x").unwrap();
}

#[test]
fn nothing_appears_under_a_checksum_that_it_does_not_have() {
    let dir = tempfile::tempdir().unwrap();
    let place = tempfile::tempdir().unwrap();
    for target in [memory(), Target::open(text(place.path()), true).unwrap()] {
        for transfer in transfers(dir.path(), &LENS[1..]) {
            let mut wrong = transfer.clone();
            wrong.piece.checksum = "0123456789abcdef".to_owned();
            assert!(
                target
                    .send(&uploads(&[wrong]), &|_| {})
                    .unwrap_err()
                    .is_corruption()
            );
            // The piece is longer than the file.
            let mut longer = transfer.clone();
            longer.piece.runs[0].1 += 1;
            assert!(
                target
                    .send(&uploads(&[longer]), &|_| {})
                    .unwrap_err()
                    .is_corruption()
            );
        }
        assert!(sizes(&target).is_empty());
    }
    let left = place.path().join("files");
    assert!(!left.exists() || left.read_dir().unwrap().count() == 0);
}

#[test]
fn zeros_are_no_part_of_a_piece() {
    let mut bytes = vec![0; 40_000];
    bytes[4096] = 1;
    bytes[12_287] = 2;
    bytes[39_999] = 3;
    let runs = without_zeros(&mut bytes, 1 << 22);
    let start = 1 << 22;
    assert_eq!(runs, [(start + 4096, 8192), (start + 36_864, 3136)]);
    assert_eq!(bytes.len(), 8192 + 3136);
    assert_eq!((bytes[0], bytes[8191], bytes[8192 + 3135]), (1, 2, 3));
    assert!(without_zeros(&mut vec![0; 9000], 0).is_empty());
}

#[test]
fn a_changing_file_sends_the_pieces_that_differ() {
    let target = memory();
    let dir = tempfile::tempdir().unwrap();
    let (name, size) = ("0000000007.blob", 3 * PIECE_SIZE + 5000);
    let file = dir.path().join(name);
    let mut content = vec![0; size as usize];
    let fill = |content: &mut Vec<u8>, from: u64, to: u64, seed: u64| {
        for at in from..to {
            content[at as usize] = (at * seed / 251) as u8 | 1;
        }
    };
    let shipped = |content: &[u8]| -> (Vec<Piece>, u64) {
        std::fs::write(&file, content).unwrap();
        let listed = target.list("files").unwrap().into_iter();
        let there = listed.map(|(name, size)| (format!("files/{name}"), size));
        let parts: Vec<PieceSource> = PieceSource::of(name, &file, content.len() as u64).collect();
        let there = Arc::new(there.collect());
        let pieces = target.send_parts(&parts, &there, &|_| {}).unwrap();
        let new = pieces.iter().flatten().filter(|(_, new)| *new);
        let sent = new.map(|(piece, _)| piece.len()).sum();
        (pieces.into_iter().flatten().map(|(p, _)| p).collect(), sent)
    };
    let came_back = |pieces: &[Piece], content: &[u8]| {
        let back = dir.path().join("back");
        let made = std::fs::File::create(&back).unwrap();
        made.set_len(content.len() as u64).unwrap();
        let fetch: Vec<Transfer> = pieces
            .iter()
            .map(|piece| Transfer {
                piece: piece.clone(),
                file: Some(back.clone()),
            })
            .collect();
        for fetched in target.fetch(&fetch, true, &|_| {}) {
            fetched.unwrap();
        }
        assert!(std::fs::read(&back).unwrap() == content);
        std::os::unix::fs::MetadataExt::blocks(&made.metadata().unwrap()) * 512
    };

    // The file has reserved room, and data in the first half of its first piece.
    fill(&mut content, 0, PIECE_SIZE / 2, 3);
    let (first, sent) = shipped(&content);
    assert_eq!((first.len(), sent), (1, PIECE_SIZE / 2));
    assert!(came_back(&first, &content) < PIECE_SIZE);
    let before = content.clone();
    // The file grows into its second and its last piece; then its first piece gets a hole.
    fill(&mut content, PIECE_SIZE + 100, PIECE_SIZE + 200, 5);
    fill(&mut content, size - 10, size, 5);
    let (second, sent) = shipped(&content);
    assert_eq!((second.len(), sent), (3, 4096 + 904));
    content[8192..(PIECE_SIZE / 2) as usize].fill(0);
    let (third, sent) = shipped(&content);
    assert_eq!((third.len(), sent), (3, 8192));
    assert_eq!(shipped(&content).1, 0);
    assert!(came_back(&third, &content) < 64 << 10);
    came_back(&first, &before);
}

#[test]
fn definitions_follow_their_tables() {
    let all: Definitions = [
        ("d/db.opt", "default"),
        ("d/t.frm", "frm"),
        ("d/p.frm", "frm"),
        ("d/p.par", "par"),
        ("d/other.frm", "frm of another engine"),
        ("d/v.frm", "TYPE=VIEW\n"),
        ("d/t.TRG", "triggers"),
        ("d/t_ai.TRN", "TYPE=TRIGGERNAME\ntrigger_table=t\n"),
        ("d/a@002db.frm", "frm"),
        ("d/tr.TRN", "TYPE=TRIGGERNAME\ntrigger_table=a-b\n"),
        ("d/other_ai.TRN", "TYPE=TRIGGERNAME\ntrigger_table=other\n"),
        ("e/db.opt", "default"),
        ("e/v.frm", "TYPE=VIEW\n"),
    ]
    .map(|(path, text)| (path.to_owned(), text.as_bytes().to_vec()))
    .into();
    let names = |tables: &[&str], views| -> Vec<String> {
        belonging(&all, tables, views).into_keys().collect()
    };
    assert_eq!(
        names(&["d/t", "d/p#P#p0", "d/p#P#p1"], true),
        [
            "d/db.opt",
            "d/p.frm",
            "d/p.par",
            "d/t.TRG",
            "d/t.frm",
            "d/t_ai.TRN",
            "d/v.frm"
        ]
    );
    assert_eq!(
        names(&["d/a@002db"], false),
        ["d/a@002db.frm", "d/db.opt", "d/tr.TRN"]
    );
    assert_eq!(
        names(&["d/p#P#p0"], false),
        ["d/db.opt", "d/p.frm", "d/p.par"]
    );
}

/// Parses the arguments of a command line.
pub fn args(line: &[&str]) -> Command {
    Args::parse_from([&["firn"], line].concat()).command
}

pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A data directory with table `d/t` and its definitions.
pub fn data_directory(dir: &Path) {
    let engine = dir.join("#firn");
    std::fs::create_dir_all(&engine).unwrap();
    let env: Arc<dyn Env> = Arc::new(PosixEnv::new());
    let db = Db::open(env, &engine, Options::default(), None).unwrap();
    create_table(&db, "d/t");
    db.flush().unwrap();
    create_table(&db, "d/u");
    db.close().unwrap();
    std::fs::create_dir(dir.join("d")).unwrap();
    for (name, content) in [("db.opt", "options"), ("t.frm", "of t"), ("u.frm", "of u")] {
        std::fs::write(dir.join("d").join(name), content).unwrap();
    }
}

fn add_table(dir: &Path, name: &str) {
    let env: Arc<dyn Env> = Arc::new(PosixEnv::new());
    let db = Db::open(env, &dir.join("#firn"), Options::default(), None).unwrap();
    create_table(&db, name);
    db.close().unwrap();
}

fn create_table(db: &Db, name: &str) {
    let schema = TableSchema {
        version: 1,
        older: std::sync::Arc::default(),
        record_len: 5,
        null_bytes: 1,
        columns: Vec::new(),
        indexes: Vec::new(),
        primary: None,
        auto_increment: None,
        locking: TableLocking::Pessimistic,
    };
    let definition = NewTable {
        schema,
        frm: b"image",
        version: b"",
        created_micros: 0,
    };
    db.catalog().create(name, definition).unwrap();
}

fn take(data: &Path) -> TakeBackup {
    match args(&["backup", "nowhere", "--from-dir", text(data)]) {
        Command::Backup(take) => take,
        other => panic!("{other:?}"),
    }
}

fn is_sound(target: &Target) -> bool {
    let verified = list_verify_prune::verify_in(target, &Output::new(true)).unwrap();
    matches!(verified, Outcome::Well)
}

#[test]
fn a_prune_and_a_backup_exclude_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    data_directory(&data);
    let store = Arc::new(InMemory::new());
    let open = || Target::over(store.clone(), ObjectPath::default(), "memory").unwrap();
    let back_up = |target: &Target| create::back_up(&take(&data), target, &Output::new(true));
    back_up(&open()).unwrap();

    // A backup begins when a prune is about to list the files of the target.
    let tried = Arc::new(AtomicUsize::new(0));
    let mut pruning = open();
    let (other, take_it, seen) = (open(), take(&data), Arc::clone(&tried));
    let grow = data.clone();
    pruning.on_list = Some(Box::new(move |folder| {
        if folder == "files" {
            add_table(&grow, "d/later");
            let refused = create::back_up(&take_it, &other, &Output::new(true));
            let error = refused.err().expect("files that nothing names would go");
            assert_eq!(*error.kind(), ErrorKind::Busy, "{error}");
            seen.fetch_add(1, Ordering::Relaxed);
        }
    }));
    list_verify_prune::prune_in(&pruning, 1, false).unwrap();
    assert_eq!(tried.load(Ordering::Relaxed), 1);
    back_up(&open()).unwrap();
    assert!(is_sound(&open()));
    assert!(open().list("running").unwrap().is_empty());

    // A prune begins when a backup has sent its files, without force and then with it.
    for force in [false, true] {
        add_table(&data, if force { "d/forced" } else { "d/third" });
        let before = super::stored_backups::entries(&open()).unwrap().len();
        let mut backing = open();
        let (other, lists) = (open(), AtomicUsize::new(0));
        backing.on_list = Some(Box::new(move |folder| {
            if folder == "files" && lists.fetch_add(1, Ordering::Relaxed) == 1 {
                let pruned = list_verify_prune::prune_in(&other, 1, force);
                assert_eq!(pruned.is_ok(), force);
            }
        }));
        let backed = back_up(&backing);
        match backed {
            Ok(_) => assert!(!force),
            Err(error) => assert!(force && error.to_string().contains("is gone"), "{error}"),
        }
        let entries = super::stored_backups::entries(&open()).unwrap().len();
        assert_eq!(entries, if force { 1 } else { before + 1 });
        assert!(is_sound(&open()));
        assert!(open().list("running").unwrap().is_empty());
    }
}

#[test]
fn what_was_cut_short_refuses_until_it_is_forced() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    data_directory(&data);
    let target = memory();
    let back_up = || create::back_up(&take(&data), &target, &Output::new(true));
    back_up().unwrap();
    target
        .put_new("running/prune-20200101T000000Z", Vec::new())
        .unwrap();
    assert_eq!(*back_up().err().unwrap().kind(), ErrorKind::Busy);
    let refused = list_verify_prune::prune_in(&target, 1, false)
        .err()
        .unwrap();
    assert!(refused.to_string().contains("--force"), "{refused}");
    list_verify_prune::prune_in(&target, 1, true).unwrap();
    back_up().unwrap();
    assert!(target.list("running").unwrap().is_empty());
}

/// Takes `count` backups into a directory; each has one table more than the one before.
fn backups(dir: &Path, count: usize) -> Target {
    let data = dir.join("data");
    data_directory(&data);
    let target = Target::open(text(&dir.join("target")), true).unwrap();
    for number in 0..count {
        if number > 0 {
            add_table(&data, &format!("d/more{number}"));
        }
        create::back_up(&take(&data), &target, &Output::new(true)).unwrap();
    }
    target
}

/// Changes a byte in the object that describes a backup. Returns the backup's id.
fn damage(dir: &Path, target: &Target, number: usize) -> String {
    let entry = &super::stored_backups::entries(target).unwrap()[number];
    let path = dir.join("target").join(&entry.object);
    let json = String::from_utf8(std::fs::read(&path).unwrap()).unwrap();
    let flipped = json.replacen("\"server_version\"", "\"server_Version\"", 1);
    assert_ne!(flipped, json);
    std::fs::write(&path, flipped).unwrap();
    entry.id.clone()
}

#[test]
fn a_damaged_backup_stops_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let target = backups(dir.path(), 4);
    let ids: Vec<_> = list_verify_prune::listed(&target).unwrap();
    let ids: Vec<_> = ids.into_iter().map(|listed| listed.id).collect();
    damage(dir.path(), &target, 1);

    let listed = list_verify_prune::listed(&target).unwrap();
    let bad: Vec<bool> = listed.iter().map(|l| l.damage.is_some()).collect();
    assert_eq!(bad, [false, true, false, false]);
    let place = text(&dir.path().join("target")).to_owned();
    let Command::Backups(list) = args(&["backups", &place]) else {
        panic!("another command");
    };
    let outcome = list_verify_prune::list(&list, &Output::new(true)).unwrap();
    assert!(matches!(outcome, Outcome::Damage));

    // Three sound backups stay, and the damaged one does not count as one of the three. It is not
    // older than all of them, so it stays with the files that it names.
    let before = sizes(&target).len();
    let pruned = list_verify_prune::prune_in(&target, 3, false).unwrap();
    assert_eq!(
        (pruned.kept.len(), &pruned.damaged),
        (3, &vec![ids[1].clone()])
    );
    assert!(pruned.removed.is_empty() && sizes(&target).len() == before);

    // A damaged backup older than all that stay is removed with the others.
    let pruned = list_verify_prune::prune_in(&target, 2, false).unwrap();
    assert_eq!(pruned.kept, ids[2..]);
    assert!(pruned.damaged.is_empty());
    let mut removed = pruned.removed;
    removed.sort();
    assert_eq!(removed, ids[..2]);
    assert!(is_sound(&target));
    assert!(sizes(&target).len() < before);
}

#[test]
fn a_damaged_backup_stays_where_no_sound_one_goes() {
    let dir = tempfile::tempdir().unwrap();
    let target = backups(dir.path(), 4);
    let id = damage(dir.path(), &target, 0);
    let before = sizes(&target).len();
    for keep in [3, 10] {
        let pruned = list_verify_prune::prune_in(&target, keep, false).unwrap();
        assert_eq!(
            (pruned.kept.len(), pruned.damaged),
            (3, vec![id.clone()]),
            "{keep}"
        );
        assert!(pruned.removed.is_empty() && sizes(&target).len() == before);
    }
}

#[test]
fn a_damaged_backup_that_stays_keeps_its_files() {
    let dir = tempfile::tempdir().unwrap();
    let target = backups(dir.path(), 2);
    let named: Vec<String> = super::stored_backups::entries(&target).unwrap()[1]
        .read(&target)
        .unwrap()
        .pieces()
        .map(|piece| piece.object.clone())
        .collect();
    let id = damage(dir.path(), &target, 1);
    let pruned = list_verify_prune::prune_in(&target, 1, false).unwrap();
    assert_eq!(pruned.damaged, [id]);
    let left = target.list("files").unwrap();
    let left: Vec<String> = left
        .into_iter()
        .map(|(n, _)| format!("files/{n}"))
        .collect();
    assert!(!named.is_empty() && named.iter().all(|object| left.contains(object)));
    damage(dir.path(), &target, 0);
    let error = list_verify_prune::prune_in(&target, 1, false)
        .err()
        .unwrap();
    assert!(error.is_corruption() && error.to_string().contains("nothing is removed"));
}

#[test]
fn the_latest_backup_is_the_newest_that_can_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let target = backups(dir.path(), 3);
    let ids = |target: &Target| -> Vec<String> {
        let all = list_verify_prune::listed(target).unwrap();
        all.into_iter().map(|listed| listed.id).collect()
    };
    let ids = ids(&target);
    let mut notes = Vec::new();
    let found = super::stored_backups::find(&target, "latest", &mut notes).unwrap();
    assert_eq!((&found.id, notes.len()), (&ids[2], 0));
    damage(dir.path(), &target, 2);
    let found = super::stored_backups::find(&target, "latest", &mut notes).unwrap();
    assert_eq!(found.id, ids[1]);
    assert!(notes[0].contains(&ids[2]), "{notes:?}");
    // A damaged backup that is asked for by its id is not replaced by another one.
    let error = super::stored_backups::find(&target, &ids[2], &mut notes).unwrap_err();
    assert!(error.is_corruption());
    assert_eq!(
        super::stored_backups::find(&target, &ids[0], &mut notes)
            .unwrap()
            .id,
        ids[0]
    );
}
