use super::super::archive_identity::{Coverage, write_coverage};
use super::*;
use crate::base::event_listener::Silent;
use crate::base::health::Health;
use crate::env::MemEnv;
use crate::wal::{LogEnd, Wal, WalOptions};
use std::sync::Arc;

const DIR: &str = "/log";

fn clock(wall_ms: u64, pos: Option<u64>) -> Record<'static> {
    Record::Clock {
        wall_ms,
        binlog: pos.map(place),
    }
}

fn place(pos: u64) -> BinlogPosition<'static> {
    BinlogPosition {
        name: b"bin.000009",
        pos,
    }
}

fn commit(seqno: Seqno, pos: Option<u64>) -> Record<'static> {
    Record::Commit {
        xid: b"x",
        seqno,
        binlog: pos.map(place),
    }
}

/// A log of these records, several segments long; each record is durable in a group of its own.
fn log(records: &[Record<'_>]) -> Arc<dyn Env> {
    let env: Arc<dyn Env> = Arc::new(MemEnv::new());
    let opts = WalOptions {
        segment_size: 3 * 4096,
        background: false,
        ..WalOptions::default()
    };
    let health = Arc::new(Health::new());
    let dir = Path::new(DIR);
    let listener = Arc::new(Silent);
    let wal = Wal::create(
        Arc::clone(&env),
        dir,
        opts,
        health,
        listener,
        1,
        LogEnd::default(),
    );
    let wal = wal.unwrap();
    for record in records {
        let appended = wal
            .append(std::slice::from_ref(record), crate::wal::OutcomeRoom::Leave)
            .unwrap();
        wal.sync_to(appended.lsn).unwrap();
    }
    wal.close().unwrap();
    env
}

/// Continues a log in a new segment `first`, after its reopening.
fn log_goes_on(env: &Arc<dyn Env>, first: SegmentId, records: &[Record<'_>]) {
    let dir = Path::new(DIR);
    let end = wal::replay(&**env, dir, 1, &mut |_, _| Ok(())).unwrap();
    let opts = WalOptions {
        segment_size: 3 * 4096,
        background: false,
        ..WalOptions::default()
    };
    let (health, listener) = (Arc::new(Health::new()), Arc::new(Silent));
    let wal = Wal::create(
        Arc::clone(env),
        dir,
        opts,
        health,
        listener,
        first,
        end.log_end(),
    );
    let wal = wal.unwrap();
    for record in records {
        let appended = wal
            .append(std::slice::from_ref(record), crate::wal::OutcomeRoom::Leave)
            .unwrap();
        wal.sync_to(appended.lsn).unwrap();
    }
    wal.close().unwrap();
}

fn find(env: &Arc<dyn Env>, wanted: &RecoveryTarget) -> Result<ReachedPoint> {
    find_point(&**env, Path::new(DIR), 0, 0, wanted)
}

fn at(name: &str, pos: u64) -> RecoveryTarget {
    RecoveryTarget::Binlog(BinlogCoordinates {
        name: name.to_owned(),
        pos,
    })
}

/// Twice a commit with a position is followed by a change of the catalog that comes after that
/// commit in the binary log.
fn with_binlog() -> Arc<dyn Env> {
    log(&[
        clock(1000, None),
        commit(1, Some(100)),
        clock(1010, Some(100)),
        commit(2, None),
        clock(2000, None),
        commit(3, Some(200)),
        clock(2010, Some(200)),
        commit(4, None),
    ])
}

#[test]
fn a_place_in_the_binary_log_ends_before_what_was_written_there_later() {
    let env = with_binlog();
    for (pos, seqno) in [(99, 0), (100, 1), (101, 2), (199, 2), (200, 3)] {
        let reached = find(&env, &at("bin.000009", pos)).unwrap();
        assert_eq!(reached.seqno, seqno, "at {pos}");
    }
    assert_eq!(find(&env, &at("bin.000008", 9000)).unwrap().seqno, 0);
    for (name, pos) in [("bin.000009", 201), ("bin.000010", 4)] {
        let error = find(&env, &at(name, pos)).unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::NotFound);
        let text = error.to_string();
        assert!(
            text.contains("commit 4") && text.contains("bin.000009:200"),
            "{text}"
        );
    }
}

#[test]
fn a_place_is_one_of_a_binary_log_by_its_name() {
    let env = with_binlog();
    // A directory in front of a file's name makes no difference.
    for name in ["bin.000009", "/var/log/bin.000009", "./bin.000009"] {
        assert_eq!(find(&env, &at(name, 100)).unwrap().seqno, 1);
    }
    for name in ["mariadb-bin.000009", "bin.000009.000009", "b.000009"] {
        for pos in [99, 100, 101, 9000] {
            let error = find(&env, &at(name, pos)).unwrap_err();
            assert_eq!(error.kind(), &ErrorKind::NotFound);
            let text = error.to_string();
            assert!(text.contains("nothing in it is of a binary log"), "{text}");
        }
    }
}

#[test]
fn a_binary_log_that_got_another_name_begins_behind_the_old_one() {
    let of = |name: &'static [u8], pos| BinlogPosition { name, pos };
    let commit = |seqno, name, pos| Record::Commit {
        xid: b"x",
        seqno,
        binlog: Some(of(name, pos)),
    };
    let env = log(&[
        clock(1000, None),
        commit(1, b"bin.000009", 100),
        commit(2, b"bin.000009", 200),
        commit(3, b"new.000001", 50),
        Record::Clock {
            wall_ms: 2000,
            binlog: Some(of(b"new.000001", 50)),
        },
        commit(4, b"new.000001", 150),
    ]);
    for (name, pos, seqno) in [
        ("bin.000009", 99, 0),
        ("bin.000009", 150, 1),
        ("bin.000009", 200, 2),
        ("bin.000009", 999, 2),
        ("new.000001", 49, 2),
        ("new.000001", 50, 3),
        ("new.000001", 149, 3),
        ("new.000001", 150, 4),
    ] {
        let reached = find(&env, &at(name, pos)).unwrap();
        assert_eq!(reached.seqno, seqno, "{name}:{pos}");
    }
    assert!(find(&env, &at("new.000001", 151)).is_err());
}

#[test]
fn a_change_of_the_catalog_just_before_the_last_commit_is_told() {
    let change = |seqno| Record::SchemaChange {
        seqno,
        batch: b"",
        description: b"drop d/t",
    };
    let env = log(&[
        clock(1000, Some(50)),
        change(1),
        clock(100_000, Some(50)),
        change(2),
        commit(3, Some(100)),
        commit(4, Some(200)),
        commit(5, Some(300)),
    ]);
    let dropped = [(2, "drop d/t".to_owned())];
    for (pos, seqno, doubtful) in [
        (100, 3, &dropped[..]),
        (200, 4, &dropped),
        // An event that is no commit of this log ends at 150: most likely the change of the
        // catalog. So the change is wanted, and not doubtful.
        (150, 3, &[]),
    ] {
        let reached = find(&env, &at("bin.000009", pos)).unwrap();
        assert_eq!((reached.seqno, &*reached.doubtful), (seqno, doubtful));
    }
    let reached = find(&env, &RecoveryTarget::Seqno(3)).unwrap();
    assert_eq!(reached.doubtful, []);
}

#[test]
fn a_time_ends_before_the_first_later_look_at_the_clock() {
    let env = with_binlog();
    for (ms, seqno) in [(999, 0), (1000, 1), (1010, 2), (1999, 2), (2000, 3)] {
        let reached = find(&env, &RecoveryTarget::Time(ms)).unwrap();
        assert_eq!(reached.seqno, seqno, "at {ms}");
    }
    // Without a coverage note, commits up to this time may have followed the last archived record.
    assert!(find(&env, &RecoveryTarget::Time(2010)).is_err());
    assert_eq!(find(&env, &RecoveryTarget::End).unwrap().seqno, 4);
}

#[test]
fn a_clock_that_was_set_back_covers_nothing() {
    let (env, archive) = (with_binlog(), Path::new(DIR));
    let segments = archived_segments(&*env, archive).unwrap();
    let (first, last) = (segments[0], *segments.last().unwrap());
    let note = |segment| {
        let covered = Coverage {
            until_ms: 2500,
            segment,
        };
        write_coverage(&*env, archive, covered).unwrap();
        find(&env, &RecoveryTarget::Time(2400))
    };
    assert_eq!(note(last).unwrap().seqno, 4);
    assert!(note(first).is_err());
    assert!(note(last + 1).is_err());
}

#[test]
fn a_gap_is_named_and_what_lies_before_it_is_found() {
    let records: Vec<_> = (1..40).map(|seqno| commit(seqno, None)).collect();
    let env = log(&records);
    let segments = archived_segments(&*env, Path::new(DIR)).unwrap();
    assert!(segments.len() > 3, "{segments:?}");
    env.remove(&Path::new(DIR).join(segment_name(3))).unwrap();
    for wanted in [RecoveryTarget::Seqno(39), RecoveryTarget::End] {
        let error = find(&env, &wanted).unwrap_err().to_string();
        assert!(error.contains("000003.wal"), "{error}");
    }
    let reached = find(&env, &RecoveryTarget::Seqno(2)).unwrap();
    assert_eq!(reached.seqno, 2);
    let point = reached.point;
    // Two groups fill a segment, so the third commit is in segment 2.
    assert_eq!((point.segment, point.records), (2, 0));
}

#[test]
fn an_epoch_that_begins_is_no_gap() {
    use crate::base::epoch::IDS_PER_EPOCH;
    let records: Vec<_> = (1..10).map(|seqno| commit(seqno, None)).collect();
    let after = 1 << 33;
    for first in [IDS_PER_EPOCH, 5 * IDS_PER_EPOCH + 7] {
        let env = log(&records);
        let old = archived_segments(&*env, Path::new(DIR)).unwrap();
        let epoch = Record::Epoch {
            epoch: first / IDS_PER_EPOCH,
            after,
        };
        log_goes_on(&env, first, std::slice::from_ref(&epoch));
        // The state after the epoch's record belongs to the new epoch, even without a commit.
        assert_eq!(find(&env, &RecoveryTarget::End).unwrap().seqno, after);
        assert_eq!(find(&env, &RecoveryTarget::Seqno(9)).unwrap().seqno, after);
        assert_eq!(find(&env, &RecoveryTarget::Seqno(8)).unwrap().seqno, 8);
        log_goes_on(&env, first + 50, &[commit(after + 1, None)]);
        let reached = find(&env, &RecoveryTarget::End).unwrap();
        assert_eq!(reached.seqno, after + 1);
        assert!(reached.point.segment >= first + 50);
        // A recovery may begin with a backup that ends in the last segment before the epoch.
        let last = *old.last().unwrap();
        let wanted = RecoveryTarget::Seqno(after + 1);
        let reached = find_point(&*env, Path::new(DIR), last, 9, &wanted).unwrap();
        assert_eq!(reached.seqno, after + 1);
        // The last segment of the old epoch had groups, so its removal leaves a gap.
        env.remove(&Path::new(DIR).join(segment_name(last)))
            .unwrap();
        let error = find(&env, &RecoveryTarget::End).unwrap_err().to_string();
        assert!(error.contains(&segment_name(last)), "{error}");
    }
}
