//! Tests of a log from its creation to its close, without faults.

use super::*;
use crate::base::ErrorKind;
use std::borrow::Cow;

#[test]
fn records_come_back_in_order_with_their_segment() {
    let env = MemEnv::new();
    let wal = new_wal(&env);
    let records = [
        Record::CounterMax {
            counter: 3,
            value: 9,
        },
        Record::Prepare {
            xid: b"xid",
            batch: b"changes",
        },
        Record::RunIngest {
            seqno: 4,
            files: Cow::Borrowed(&[7, 8]),
            info: b"",
        },
    ];
    wal.append(&records[..2], OutcomeRoom::Leave).unwrap();
    let appended = wal.append(&records[2..], OutcomeRoom::Leave).unwrap();
    assert_eq!(appended.segment, 1);
    assert_eq!(wal.durable_lsn(), 0);
    wal.sync_to(appended.lsn).unwrap();
    assert_eq!(wal.durable_lsn(), appended.lsn);
    let mut count = 0;
    let end = replay(&env, &dir(), 1, &mut |segment, record| {
        assert_eq!((segment, &record), (1, &records[count]));
        count += 1;
        Ok(())
    })
    .unwrap();
    assert_eq!(count, 3);
    let expected = ReplayEnd {
        last_segment: 1,
        last_group: 1,
        end_offset: 2 * 4096,
        max_segment_id_seen: 1,
        max_segment_id_used: 1,
        torn_tail: false,
        bytes: 4096,
        records: 3,
    };
    assert_eq!(end, expected);
}

#[test]
fn an_empty_log_is_replayed_as_such() {
    let env = MemEnv::new();
    env.create_dir_all(&dir()).unwrap();
    assert_eq!(replayed(&env, 0).unwrap().1, ReplayEnd::default());
    assert!(replayed(&env, 1).unwrap_err().is_corruption());
    let wal = new_wal(&env);
    let (seqnos, end) = replayed(&env, 1).unwrap();
    assert_eq!((seqnos, end.max_segment_id_seen), (vec![], 1));
    wal.close().unwrap();
    assert_eq!(replayed(&env, 1).unwrap().1.records, 0);
}

#[test]
fn groups_that_do_not_fit_rotate_and_large_ones_get_their_own_segment() {
    let env = MemEnv::new();
    let wal = new_wal(&env);
    let mut seqnos = Vec::new();
    for (seqno, len) in [3, 3, 3, 30, 1, 6, 7, 8, 2].into_iter().enumerate() {
        commit(&wal, seqno as u64, &vec![7; len * 4096 - 200]).unwrap();
        seqnos.push(seqno as u64);
    }
    // Blocks of the groups in each segment: 3+3, 3, 30, 1+6, 7, 8, 2. The group of 8 blocks and the
    // header block need a segment of more than the usual size.
    assert_eq!(wal.current_segment(), 7);
    assert_eq!(env.read(&segment_path(3)).unwrap().len(), 31 * 4096);
    assert_eq!(replayed(&env, 1).unwrap().0, seqnos);
    for first in 1..=7 {
        let (found, end) = replayed(&env, first).unwrap();
        assert!(seqnos.ends_with(&found), "from segment {first}");
        assert_eq!((end.last_segment, end.last_group), (7, 9));
    }
    wal.release_before(7).unwrap();
    // Three files remain: the current segment, and two released segments of the usual size, which
    // are kept for recycling.
    assert_eq!(env.list_dir(&dir()).unwrap().len(), 3);
}

/// An open group that no longer fits the current segment moves to the next one. The first segment
/// then stays empty.
#[test]
fn an_empty_segment_in_the_middle_is_passed_over() {
    let env = MemEnv::new();
    let wal = new_wal(&env);
    wal.append(&[batch(1, &[1; 4096])], OutcomeRoom::Leave)
        .unwrap();
    let appended = wal
        .append(&[batch(2, &[2; 7 * 4096])], OutcomeRoom::Leave)
        .unwrap();
    wal.sync_to(appended.lsn).unwrap();
    commit(&wal, 3, b"").unwrap();
    assert_eq!(wal.current_segment(), 3);
    for first in [1, 2] {
        assert_eq!(replayed(&env, first).unwrap().0, [1, 2, 3]);
    }
}

#[test]
fn recycled_segments_do_not_replay_their_former_groups() {
    let env = MemEnv::new();
    let wal = new_wal(&env);
    for seqno in 1..=200 {
        let appended = commit(&wal, seqno, &[1; 3000]).unwrap();
        assert_eq!(appended.segment, wal.current_segment());
        wal.release_before(appended.segment).unwrap();
        let (seqnos, end) = replayed(&env, appended.segment).unwrap();
        assert_eq!(seqnos.last(), Some(&seqno));
        assert!(seqnos.len() <= 7 && !end.torn_tail);
    }
    let stats = wal.stats();
    assert_eq!((stats.segments_created, stats.segments_recycled), (2, 27));
    assert_eq!((stats.groups, stats.records, stats.syncs), (200, 200, 200));
}

#[test]
fn the_next_run_goes_on_in_a_new_segment() {
    let env = MemEnv::new();
    let mut next = (1, LogEnd::default());
    let mut expected = Vec::new();
    for run in 0..10 {
        let wal = open(&env, options(), next.0, next.1).unwrap();
        for seqno in run * 10..run * 10 + run {
            commit(&wal, seqno, &[2; 3000]).unwrap();
            expected.push(seqno);
        }
        if run % 2 == 0 {
            wal.close().unwrap();
            assert_eq!(
                wal.append(&[], OutcomeRoom::Leave).unwrap_err().kind(),
                &ErrorKind::ShutDown
            );
        }
        let (seqnos, end) = replayed(&env, 1).unwrap();
        assert_eq!(seqnos, expected);
        next = (end.max_segment_id_seen + 1, end.log_end());
    }
    let used = open(&env, options(), next.0 - 1, next.1).err().unwrap();
    assert_eq!(used.kind(), &ErrorKind::AlreadyExists);
    // A later start finds the segments of all incarnations and releases them.
    let wal = open(&env, options(), next.0, next.1).unwrap();
    wal.release_before(next.0).unwrap();
    assert_eq!(env.list_dir(&dir()).unwrap().len(), 3);
}

#[test]
fn written_records_become_durable_with_the_sync() {
    let env = MemEnv::new();
    let opts = WalOptions {
        spare_segments_max: 0,
        ..options()
    };
    let wal = open(&env, opts, 1, LogEnd::default()).unwrap();
    let first = wal
        .append(&[batch(1, &[1; 20_000])], OutcomeRoom::Leave)
        .unwrap();
    wal.write_to(first.lsn).unwrap();
    let second = wal
        .append(&[batch(2, &[1; 20_000])], OutcomeRoom::Leave)
        .unwrap();
    wal.write_to(second.lsn).unwrap();
    assert_eq!((wal.durable_lsn(), wal.current_segment()), (0, 2));
    // A segment must not be released before its groups are durable.
    wal.release_before(2).unwrap();
    assert_eq!(replayed(&env, 1).unwrap().0, [1, 2]);
    let third = commit(&wal, 3, b"").unwrap();
    assert_eq!(wal.durable_lsn(), third.lsn);
    assert_eq!(replayed(&env.crash(0), 1).unwrap().0, [1, 2, 3]);
}

#[test]
fn commits_that_wait_for_no_sync_share_blocks() {
    let env = MemEnv::new();
    let wal = new_wal(&env);
    for seqno in 1..=30 {
        let appended = wal
            .append(&[batch(seqno, &[seqno as u8; 200])], OutcomeRoom::Leave)
            .unwrap();
        wal.write_to(appended.lsn).unwrap();
    }
    let stats = wal.stats();
    assert_eq!((stats.groups, stats.bytes_written), (2, 2 * 4096));
    assert_eq!(replayed(&env, 1).unwrap().0, Vec::from_iter(1..=30));
    // Bytes that a sync has made durable are never written again, so the next record begins a new
    // block.
    wal.sync_to(wal.appended_lsn()).unwrap();
    let durable = env.read(&segment_path(1)).unwrap();
    let appended = wal
        .append(&[batch(31, b"later")], OutcomeRoom::Leave)
        .unwrap();
    wal.write_to(appended.lsn).unwrap();
    let after = env.read(&segment_path(1)).unwrap();
    assert_eq!(durable[..3 * 4096], after[..3 * 4096]);
    assert_eq!(wal.stats().groups, 3);
    assert_eq!(replayed(&env.kill(), 1).unwrap().0, Vec::from_iter(1..=31));
}

#[test]
fn a_full_buffer_is_written() {
    let env = MemEnv::new();
    let opts = WalOptions {
        buffer_max: 10_000,
        ..options()
    };
    let wal = open(&env, opts, 1, LogEnd::default()).unwrap();
    for seqno in 1..=8 {
        wal.append(&[batch(seqno, &[1; 4000])], OutcomeRoom::Leave)
            .unwrap();
    }
    assert_eq!(replayed(&env, 1).unwrap().0, [1, 2, 3, 4, 5, 6]);
}

#[test]
fn an_unknown_position_is_refused() {
    let wal = new_wal(&MemEnv::new());
    for result in [wal.sync_to(1), wal.write_to(1)] {
        assert_eq!(result.unwrap_err().kind(), &ErrorKind::InvalidArgument);
    }
}

#[test]
fn the_visitors_error_ends_the_replay() {
    let env = MemEnv::new();
    let wal = new_wal(&env);
    commit(&wal, 1, b"").unwrap();
    let result = replay(&env, &dir(), 1, &mut |_, _| {
        Err(crate::base::Error::invalid("enough"))
    });
    assert_eq!(result.unwrap_err().kind(), &ErrorKind::InvalidArgument);
}

/// A log archive may have more segments than a process may have open files, so replay does not keep
/// them all open.
#[test]
fn a_replay_has_few_segments_open_at_a_time() {
    let root = tempfile::tempdir().unwrap();
    let env: Arc<dyn Env> = Arc::new(PosixEnv::new());
    let (health, listener) = (Arc::new(Health::new()), Arc::new(Silent));
    let opts = options();
    let end = LogEnd::default();
    let wal = Wal::create(
        Arc::clone(&env),
        root.path(),
        opts,
        health,
        listener,
        1,
        end,
    )
    .unwrap();
    for seqno in 0..100 {
        commit(&wal, seqno, &[1; 20_000]).unwrap();
    }
    wal.close().unwrap();
    drop(wal);
    let open_segments = || {
        let open = std::fs::read_dir("/proc/self/fd").unwrap();
        let paths = open.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
        paths.filter(|path| path.starts_with(root.path())).count()
    };
    let mut most = 0;
    let mut records = 0;
    let end = replay(&*env, root.path(), 1, &mut |_, _| {
        most = open_segments().max(most);
        records += 1;
        Ok(())
    });
    assert!(end.unwrap().last_segment >= 100);
    assert_eq!(records, 100);
    assert!((1..=2).contains(&most), "{most} segments open");
}

#[test]
fn a_replay_tells_how_far_it_is() {
    let env = MemEnv::new();
    let wal = new_wal(&env);
    for seqno in 1..=20 {
        commit(&wal, seqno, &[1; 3000]).unwrap();
    }
    let segments = wal.current_segment() as usize;
    assert!(segments > 2);
    wal.close().unwrap();
    // A second incarnation goes on.
    let end = replayed(&env, 1).unwrap().1.log_end();
    let next = segments as u64 + 5;
    let wal = open(&env, options(), next, end).unwrap();
    commit(&wal, 21, b"").unwrap();
    wal.close().unwrap();
    let mut seen = Vec::new();
    let mut progress = |at, of| seen.push((at, of));
    replay_reporting(&env, &dir(), 1, &mut |_, _| Ok(()), &mut progress).unwrap();
    let all = segments + 1;
    assert_eq!(seen, (1..=all).map(|at| (at, all)).collect::<Vec<_>>());
}
