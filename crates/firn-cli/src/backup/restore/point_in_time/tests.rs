use super::*;
use crate::backup::backup_format::Position;

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
