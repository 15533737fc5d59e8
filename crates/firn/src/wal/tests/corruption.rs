//! Tests that replay tells damage of durable groups from a torn tail.

use super::*;
use crate::base::ErrorKind;

fn corruption_at(error: &crate::base::Error) -> (String, u64) {
    match error.kind() {
        ErrorKind::Corruption { file, offset } => (file.clone(), *offset),
        other => panic!("{other:?}"),
    }
}

/// A log after a power cut: segments 1 and 2 are full, segment 3 has one group.
fn three_segments() -> MemEnv {
    let env = MemEnv::new();
    let wal = new_wal(&env);
    for seqno in 1..=15 {
        commit(&wal, seqno, &[seqno as u8; 3000]).unwrap();
    }
    assert_eq!(wal.current_segment(), 3);
    env.crash(0)
}

#[test]
fn a_flip_in_any_group_but_the_last_is_corruption() {
    for group in 0..14u64 {
        for byte in [0, 9, 30, 60, 100, 3000, 4095] {
            let env = three_segments();
            let (segment, at) = (group / 7 + 1, FIRST_GROUP + group % 7 * 4096);
            flip(&env, &segment_path(segment), at + byte);
            // Replay may begin with any segment up to the damaged one: the damage is always found.
            for first in 1..=segment {
                let error = replayed(&env, first).unwrap_err();
                assert_eq!(corruption_at(&error), (segment_name(segment), at));
            }
        }
    }
}

#[test]
fn a_flip_in_the_last_group_is_a_torn_tail() {
    let env = three_segments();
    flip(&env, &segment_path(3), FIRST_GROUP + 50);
    let (seqnos, end) = replayed(&env, 1).unwrap();
    assert_eq!(seqnos, (1..=14).collect::<Vec<_>>());
    assert!(end.torn_tail);
    assert_eq!((end.last_segment, end.last_group), (2, 14));
}

#[test]
fn after_close_the_last_group_is_vouched_for() {
    let env = MemEnv::new();
    let wal = new_wal(&env);
    commit(&wal, 1, b"last").unwrap();
    wal.close().unwrap();
    flip(&env, &segment_path(1), FIRST_GROUP + 70);
    assert!(replayed(&env, 1).unwrap_err().is_corruption());
}

#[test]
fn damage_of_many_groups_in_a_row_is_corruption() {
    let env = three_segments();
    for group in 2..7 {
        flip(&env, &segment_path(1), FIRST_GROUP + group * 4096 + 10);
    }
    let error = replayed(&env, 1).unwrap_err();
    assert_eq!(
        corruption_at(&error),
        (segment_name(1), FIRST_GROUP + 2 * 4096)
    );
}

#[test]
fn a_damaged_header_or_a_missing_segment_is_corruption() {
    for segment in 1..=3 {
        let env = three_segments();
        flip(&env, &segment_path(segment), 20);
        let error = replayed(&env, 1).unwrap_err();
        assert_eq!(corruption_at(&error), (segment_name(segment), 0));
    }
    for segment in 1..=2 {
        let env = three_segments();
        env.remove(&segment_path(segment)).unwrap();
        let error = replayed(&env, 1).unwrap_err();
        assert_eq!(corruption_at(&error), (segment_name(segment), 0));
    }
}

/// Damage to a group that an earlier recovery has replayed is found, even if no later group of the
/// same incarnation records that the group was durable.
#[test]
fn damage_before_a_later_run_is_corruption() {
    let env = three_segments();
    let (_, end) = replayed(&env, 1).unwrap();
    open(&env, options(), end.max_segment_id_seen + 1, end.log_end()).unwrap();
    assert_eq!(replayed(&env, 1).unwrap().0.len(), 15);
    flip(&env, &segment_path(3), FIRST_GROUP + 50);
    let error = replayed(&env, 1).unwrap_err();
    assert_eq!(corruption_at(&error), (segment_name(3), FIRST_GROUP));
}

/// Groups behind a hole that an earlier recovery took as the end of the log are never replayed,
/// even if the missing group is readable again later.
#[test]
fn groups_behind_the_end_of_a_run_stay_dead() {
    let env = three_segments();
    let whole = env.read(&segment_path(3)).unwrap();
    flip(&env, &segment_path(3), FIRST_GROUP + 50);
    let (_, end) = replayed(&env, 1).unwrap();
    let wal = open(&env, options(), end.max_segment_id_seen + 1, end.log_end()).unwrap();
    commit(&wal, 100, b"").unwrap();
    env.damage(&segment_path(3), |bytes| *bytes = whole)
        .unwrap();
    let mut expected: Vec<u64> = (1..=14).collect();
    expected.push(100);
    assert_eq!(replayed(&env, 1).unwrap().0, expected);
}

#[test]
fn a_prepared_segment_without_header_or_content_is_passed_over() {
    let env = three_segments();
    env.place(&segment_path(4), Vec::new());
    let (seqnos, end) = replayed(&env, 1).unwrap();
    assert_eq!((seqnos.len(), end.max_segment_id_seen), (15, 4));
    let wal = open(&env, options(), 5, end.log_end()).unwrap();
    commit(&wal, 16, b"").unwrap();
    assert_eq!(replayed(&env, 1).unwrap().0.len(), 16);
    // Segment 6 is a recycled file that was renamed and did not get its new header.
    let former = env.read(&segment_path(1)).unwrap();
    env.place(&segment_path(6), former);
    assert_eq!(replayed(&env, 1).unwrap().0.len(), 16);
}

#[test]
fn a_read_error_is_no_end() {
    let env = three_segments();
    let faults = crate::env::FaultEnv::new(Arc::new(env));
    replayed(&faults, 1).unwrap();
    let reads = faults.count(crate::env::fault::CallClass::Read);
    assert!(reads > 6);
    for nth in 1..=reads {
        faults.clear();
        faults.inject(crate::env::fault::Fault {
            class: crate::env::fault::CallClass::Read,
            nth,
            sticky: false,
            errno: crate::env::fault::Errno::Io,
        });
        let error = replayed(&faults, 1).unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::Io { os_errno: 5 }, "read {nth}");
    }
}

#[test]
fn a_record_of_a_newer_version_is_no_damage() {
    use super::super::frame::GROUP_HEADER;
    let env = MemEnv::new();
    let wal = new_wal(&env);
    commit(&wal, 1, b"one").unwrap();
    commit(&wal, 2, b"two").unwrap();
    wal.close().unwrap();
    let change = |bytes: &mut Vec<u8>| {
        let group = &mut bytes[FIRST_GROUP as usize..][..4096];
        group[GROUP_HEADER] = 200;
        let sum = crate::base::checksum::placed(&group[8..], 1, FIRST_GROUP);
        group[..8].copy_from_slice(&sum.to_le_bytes());
    };
    env.damage(&segment_path(1), change).unwrap();
    let mut see = |_, _: Record<'_>| Ok(());
    let mut say = |error| panic!("{error}");
    for start in [LogStart::At(1), LogStart::Unknown { at_least: 0 }] {
        let error = salvage_log(&env, &dir(), start, &mut see, &mut say).unwrap_err();
        assert!(error.is_unsupported(), "{error}");
        assert!(error.to_string().contains("kind 200"), "{error}");
    }
}

/// The missing and damaged things that a salvage of the log from segment `first` on reports.
fn lost(env: &MemEnv, first: SegmentId) -> Vec<String> {
    let mut lost = Vec::new();
    let mut see = |_, _: Record<'_>| Ok(());
    let mut say = |error: crate::base::Error| lost.push(error.to_string());
    salvage_log(env, &dir(), LogStart::At(first), &mut see, &mut say).unwrap();
    lost
}

#[test]
fn a_missing_segment_beside_one_with_a_damaged_header_is_named() {
    for (damaged, missing, named) in [
        (vec![1], vec![2], vec![2]),
        (vec![1, 2], vec![], vec![]),
        (vec![1], vec![2, 3], vec![2]),
        (vec![1, 3], vec![2], vec![2]),
        (vec![2], vec![1, 3], vec![1, 3]),
        (vec![3], vec![1, 2], vec![1]),
    ] {
        let context = format!("damaged {damaged:?}, missing {missing:?}");
        let env = MemEnv::new();
        let wal = new_wal(&env);
        for seqno in 1..=25 {
            commit(&wal, seqno, &[seqno as u8; 3000]).unwrap();
        }
        assert_eq!(wal.current_segment(), 4);
        let env = env.crash(0);
        damaged
            .iter()
            .for_each(|&id| flip(&env, &segment_path(id), 20));
        missing
            .iter()
            .for_each(|&id| env.remove(&segment_path(id)).unwrap());
        let found = missing_segment(&env, &dir(), 1).unwrap();
        assert_eq!(found, named.first().copied(), "{context}");
        let lost = lost(&env, 1);
        for id in 1..=3 {
            let name = segment_name(id);
            let said = |words: &str| {
                let of_segment = |text: &&String| text.contains(&name) && text.contains(words);
                lost.iter().filter(of_segment).count()
            };
            let is_named = usize::from(named.contains(&id));
            assert_eq!(
                said("the segment is missing"),
                is_named,
                "{context}: {lost:?}"
            );
            let is_damaged = usize::from(damaged.contains(&id));
            assert_eq!(
                said("header of a log segment"),
                is_damaged,
                "{context}: {lost:?}"
            );
        }
    }
}
