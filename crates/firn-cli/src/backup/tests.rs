use super::format::{timestamp, unhex};
use super::source::{Definitions, belonging};
use super::target::{Target, Transfer};
use crate::args::{Args, Command};
use clap::Parser;
use firn::base::ErrorKind;
use firn::base::options::Options;
use firn::catalog::{Definition, TableSchema};
use firn::db::Db;
use firn::env::{Env, PosixEnv};
use object_store::memory::InMemory;
use object_store::path::Path as ObjectPath;
use std::path::Path;
use std::sync::Arc;

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
fn damaged_digits_are_named() {
    assert_eq!(unhex("00ff1a").unwrap(), [0, 255, 26]);
    for wrong in ["0", "0g", "é", "00f"] {
        assert!(unhex(wrong).unwrap_err().is_corruption(), "{wrong}");
    }
}

#[test]
fn objects_come_back_whole_and_in_order() {
    let root = ObjectPath::from("a/b");
    let target = Target::over(Arc::new(InMemory::new()), root, "memory").unwrap();
    let dir = tempfile::tempdir().unwrap();
    // Some larger than a part of an upload, one empty.
    let lens = [0usize, 1, 9 << 20, 4096, 20 << 20, 8 << 20];
    let transfers: Vec<Transfer> = lens
        .iter()
        .enumerate()
        .map(|(at, &len)| {
            let file = dir.path().join(format!("{at}"));
            let bytes: Vec<u8> = (0..len).map(|i| ((i * (at + 3)) >> 7) as u8).collect();
            std::fs::write(&file, bytes).unwrap();
            Transfer {
                object: format!("files/{at}-0"),
                file,
                len: len as u64,
            }
        })
        .collect();
    let sums = target.send(&transfers, &|_| {}).unwrap();
    let listed = target.list("files").unwrap();
    let sizes: Vec<usize> = listed.iter().map(|(_, size)| *size as usize).collect();
    assert_eq!(sizes, lens);
    let mut back = transfers.clone();
    for transfer in &mut back {
        transfer.file.set_extension("back");
    }
    let fetched = target.fetch(&back, true, &|_| {});
    for ((sum, fetched), (a, b)) in sums.iter().zip(fetched).zip(transfers.iter().zip(&back)) {
        assert_eq!(fetched.unwrap(), *sum);
        assert!(std::fs::read(&a.file).unwrap() == std::fs::read(&b.file).unwrap());
    }
    // Missing, or of another size: damage.
    target.remove("files/1-0").unwrap();
    back[3].len += 1;
    let read = target.fetch(&back, false, &|_| {});
    let damaged: Vec<bool> = read
        .iter()
        .map(|r| r.as_ref().is_err_and(|e| e.is_corruption()))
        .collect();
    assert_eq!(damaged, [false, true, false, true, false, false]);

    target.put_new("backups/x", b"one".to_vec()).unwrap();
    let again = target.put_new("backups/x", b"two".to_vec());
    assert_eq!(*again.unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(target.get("backups/x").unwrap(), b"one");
    target.remove("backups/x").unwrap();
    target.remove("backups/x").unwrap();
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
        names(&["d/p#P#p0"], false),
        ["d/db.opt", "d/p.frm", "d/p.par"]
    );
}

/// The arguments of a command line.
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

fn create_table(db: &Db, name: &str) {
    let schema = TableSchema {
        version: 1,
        record_len: 5,
        null_bytes: 1,
        columns: Vec::new(),
        indexes: Vec::new(),
        primary: None,
        auto_increment: None,
    };
    let definition = Definition {
        schema,
        frm: b"image",
        version: b"",
        created_micros: 0,
    };
    db.catalog().create(name, definition).unwrap();
}
