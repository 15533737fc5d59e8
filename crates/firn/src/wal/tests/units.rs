//! Tests of durable groups, which fill whole sectors, beside groups that go through the page cache
//! and fill whole blocks.

use super::*;
use crate::base::Error;
use crate::env::{BLOCK, SECTOR};

fn sectors() -> MemEnv {
    let env = MemEnv::new();
    env.set_log_sectors(true);
    env
}

fn write(wal: &Wal, seqno: u64, bytes: &[u8]) {
    let appended = wal
        .append(&[batch(seqno, bytes)], OutcomeRoom::Leave)
        .unwrap();
    wal.write_to(appended.lsn).unwrap();
}

/// Offsets of the groups of segment 1, found by the magic number of a group header.
fn offsets(env: &MemEnv) -> Vec<u64> {
    let content = env.read(&segment_path(1)).unwrap();
    let starts = content.chunks(SECTOR).enumerate();
    let groups = starts.filter(|(_, sector)| &sector[8..12] == b"FWGR");
    groups.map(|(at, _)| (at * SECTOR) as u64).collect()
}

#[test]
fn durable_groups_fill_sectors_and_others_blocks() {
    let env = sectors();
    let wal = new_wal(&env);
    let (block, sector) = (BLOCK as u64, SECTOR as u64);
    commit(&wal, 1, &[1; 100]).unwrap();
    commit(&wal, 2, &[2; 600]).unwrap();
    commit(&wal, 3, &[3; 100]).unwrap();
    assert_eq!(wal.stats().bytes_written, 4 * sector);
    // The groups in the page cache begin at the next block, and share it.
    write(&wal, 4, &[4; 100]);
    write(&wal, 5, &[5; 100]);
    commit(&wal, 6, &[6; 3000]).unwrap();
    commit(&wal, 7, &[7; 2000]).unwrap();
    let expected = [
        block,
        block + sector,
        block + 3 * sector,
        2 * block,
        3 * block,
        3 * block + 6 * sector,
    ];
    assert_eq!(offsets(&env), expected);
    wal.sync_to(wal.appended_lsn()).unwrap();
    let (seqnos, end) = replayed(&env.crash(0), 1).unwrap();
    assert_eq!(seqnos, [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(end.end_offset, 3 * block + 11 * sector);
}

/// A log after a power cut. Segments 1 and 2 are full of groups of both kinds: durable ones and
/// those that go through the page cache.
fn two_segments() -> (MemEnv, u64) {
    let env = sectors();
    let wal = new_wal(&env);
    let mut seqno = 0;
    while wal.current_segment() < 3 {
        seqno += 1;
        match seqno % 5 {
            0 => write(&wal, seqno, &[8; 200]),
            _ => drop(commit(&wal, seqno, &[7; 300]).unwrap()),
        }
    }
    wal.sync_to(wal.appended_lsn()).unwrap();
    (env.crash(0), seqno)
}

#[test]
fn a_flip_in_any_group_but_the_last_is_corruption() {
    let groups = offsets(&two_segments().0);
    assert!(groups.len() > 12, "{groups:?}");
    for at in groups {
        for byte in [0, 9, 30, 60, 100, 250] {
            let (env, _) = two_segments();
            flip(&env, &segment_path(1), at + byte);
            let error = replayed(&env, 1).unwrap_err();
            assert!(error.is_corruption(), "{at}: {error}");
        }
    }
}

#[test]
fn a_damaged_header_is_corruption_whatever_unit_it_named() {
    for segment in 1..=2 {
        let (env, _) = two_segments();
        flip(&env, &segment_path(segment), 56);
        let error = replayed(&env, segment).unwrap_err();
        assert!(error.is_corruption(), "{error}");
    }
}

#[test]
fn a_log_goes_on_with_another_unit() {
    let mut next = (1, LogEnd::default());
    let mut env = sectors();
    let mut expected = Vec::new();
    for run in 0..6 {
        env.set_log_sectors(run % 3 != 2);
        let wal = open(&env, options(), next.0, next.1).unwrap();
        for seqno in run * 100..run * 100 + 30 {
            commit(&wal, seqno, &[2; 300]).unwrap();
            expected.push(seqno);
        }
        env = env.crash(run);
        let (seqnos, end) = replayed(&env, 1).unwrap();
        assert_eq!(seqnos, expected);
        next = (end.max_segment_id_seen + 1, end.log_end());
    }
}

#[test]
fn recycled_segments_do_not_replay_their_former_groups() {
    let env = sectors();
    let wal = new_wal(&env);
    for seqno in 1..=500 {
        let appended = match seqno % 7 {
            0 => wal
                .append(&[batch(seqno, &[1; 900])], OutcomeRoom::Leave)
                .unwrap(),
            _ => commit(&wal, seqno, &[1; 900]).unwrap(),
        };
        wal.write_to(appended.lsn).unwrap();
        wal.release_before(appended.segment).unwrap();
        let (seqnos, end) = replayed(&env, wal.current_segment()).unwrap();
        assert_eq!(seqnos.last(), Some(&seqno));
        assert!(seqnos.len() <= 28 && !end.torn_tail);
    }
    assert!(wal.stats().segments_recycled > 10);
}

/// Salvages the log. Returns the seqnos that are left, and the messages about losses.
fn salvaged(env: &MemEnv) -> (Vec<u64>, Vec<String>) {
    let (mut seqnos, mut lost) = (Vec::new(), Vec::new());
    let mut see = |_, record: Record<'_>| {
        if let Record::Batch { seqno, .. } = record {
            seqnos.push(seqno);
        }
        Ok(())
    };
    let dir = segment_path(1);
    let dir = dir.parent().unwrap();
    let mut say = |error: Error| lost.push(error.to_string());
    super::super::salvage_log(env, dir, LogStart::At(1), &mut see, &mut say).unwrap();
    (seqnos, lost)
}

#[test]
fn a_damaged_header_costs_no_group_in_either_unit() {
    for sectors in [true, false] {
        let env = MemEnv::new();
        env.set_log_sectors(sectors);
        let wal = new_wal(&env);
        let mut seqno = 0;
        while wal.current_segment() < 3 {
            seqno += 1;
            // Some groups fill their last block up to the last sector, so they are also valid in
            // smaller units.
            let len = [100, 3900, 600, 3950, 4000][seqno as usize % 5];
            commit(&wal, seqno, &vec![seqno as u8; len]).unwrap();
        }
        wal.sync_to(wal.appended_lsn()).unwrap();
        let env = env.crash(0);
        for segment in 1..=2 {
            flip(&env, &segment_path(segment), 56);
        }
        let (seqnos, lost) = salvaged(&env);
        assert_eq!(
            seqnos,
            (1..=seqno).collect::<Vec<_>>(),
            "{sectors}: {lost:?}"
        );
        assert_eq!(lost.len(), 2, "{lost:?}");
    }
}

#[test]
fn what_lies_behind_a_missing_segment_is_saved() {
    let (env, last) = two_segments();
    let (whole, lost) = salvaged(&env);
    assert_eq!((whole.len() as u64, lost.len()), (last, 0));
    env.remove(&segment_path(2)).unwrap();
    let (seqnos, lost) = salvaged(&env);
    assert!(seqnos.ends_with(&[last]) && seqnos.starts_with(&[1, 2]));
    assert!(lost[0].contains("missing"), "{lost:?}");
}
