use super::*;
use crate::backup::backup_format::Position;
use firn::catalog::{ForeignKeyRequest, NewTable, TableLocking, TableSchema};
use firn::env::MemEnv;

/// A backup that ends at this position of the binary log.
fn backup(place: &str) -> Backup {
    let position = place.rsplit_once(':').map(|(file, pos)| Position {
        binlog_file: file.to_owned(),
        binlog_pos: pos.parse().unwrap(),
        ..Position::default()
    });
    Backup {
        position,
        ..Backup::default()
    }
}

fn chosen(places: &[&str], wanted: &str) -> Option<usize> {
    let backups: Vec<Backup> = places.iter().map(|place| backup(place)).collect();
    let until = Until {
        until_binlog: Some(wanted.to_owned()),
        until_time: None,
        until_seqno: None,
        until_end: false,
    };
    newest_before(&backups, &destination(&until).unwrap())
}

#[test]
fn a_backup_is_from_before_a_place_of_its_own_binary_log() {
    let places = ["bin.000009:50", "bin.000007:900", "", "bin.000007:100"];
    for (wanted, at) in [
        ("bin.000010:4", Some(0)),
        ("bin.000009:49", Some(1)),
        ("/var/lib/mysql/bin.000007:899", Some(3)),
        ("bin.000007:99", None),
    ] {
        assert_eq!(chosen(&places, wanted), at, "{wanted}");
    }
    // A position in a binary log of another name: only the archive knows whether the server had it.
    assert_eq!(chosen(&places, "mysql-bin.000008:4"), Some(0));
    assert_eq!(chosen(&["", ""], "bin.000001:4"), None);
}

#[test]
fn a_binary_log_that_got_another_name_is_followed_from_before_it() {
    let places = [
        "new.000002:50",
        "new.000001:90",
        "old.000007:100",
        "old.000003:1",
    ];
    for (wanted, at) in [
        ("new.000001:91", Some(1)),
        ("new.000001:4", Some(2)),
        ("old.000007:500", Some(2)),
        ("old.000005:500", Some(3)),
        ("old.000002:4", None),
        ("other.000001:4", Some(0)),
    ] {
        assert_eq!(chosen(&places, wanted), at, "{wanted}");
    }
}

/// A database in memory with a table and a partition, and the copy of an ALTER of the table.
fn altering() -> Arc<Db> {
    let options = Options {
        background_jobs: 0,
        ..Options::default()
    };
    let db = Db::open(Arc::new(MemEnv::new()), Path::new("/db"), options, None).unwrap();
    for name in ["d/t", "d/p#P#a", "d/#sql-alter-1-5"] {
        let definition = NewTable {
            schema: TableSchema {
                version: 1,
                older: std::sync::Arc::default(),
                record_len: 1,
                null_bytes: 1,
                columns: Vec::new(),
                indexes: Vec::new(),
                primary: None,
                auto_increment: None,
                locking: TableLocking::Pessimistic,
            },
            frm: b"",
            version: name.as_bytes(),
            created_micros: 0,
        };
        let request = ForeignKeyRequest {
            replaces: Some("d/t".to_owned()),
            ..ForeignKeyRequest::default()
        };
        let catalog = db.catalog();
        catalog
            .create_referencing(name, definition, 0, &request)
            .unwrap();
    }
    db
}

#[test]
fn a_point_at_which_a_table_has_no_name_is_refused() {
    let (set_aside, new) = ("d/#sql-backup-1-5", "d/#sql-alter-1-5");
    let exchanged = "d/#sql-exchange-1-5";
    let alter = [("d/t", set_aside), (new, "d/t")];
    let exchange = [
        ("d/t", exchanged),
        ("d/p#P#a", "d/t"),
        (exchanged, "d/p#P#a"),
    ];
    for (renames, refused) in [(&alter[..], &[1][..]), (&exchange, &[1, 2])] {
        for steps in 0..=renames.len() {
            let db = altering();
            for (from, to) in &renames[..steps] {
                db.catalog().rename(from, to).unwrap();
            }
            let settled = keep_tables(&db, &[]);
            assert_eq!(settled.is_err(), refused.contains(&steps), "{steps} steps");
            if let Ok(kept) = settled {
                let names: Vec<&str> = kept.iter().map(|entry| entry.name.as_str()).collect();
                assert_eq!(names, ["d/p#P#a", "d/t"]);
            }
        }
    }
    // The server drops the old table before the new one has its name.
    let db = altering();
    db.catalog().drop_table("d/t").unwrap();
    assert!(keep_tables(&db, &[]).is_err());
}
