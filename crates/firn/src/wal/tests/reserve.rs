//! Tests of a disk without room for another log segment, and of the disk reserve that is kept for
//! this case.

use super::*;
use crate::base::ErrorKind;
use crate::base::pause_points::{self, PausePoint};
use crate::env::FaultEnv;
use crate::env::fault::{CallClass, Errno, Fault};
use crate::store::{DiskReserve, ReservePart};
use crate::wal::FullDiskAccess;
use crate::wal::frame::SegmentHeader;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

fn setup() -> (MemEnv, Arc<DiskReserve>, Arc<Wal>) {
    let env = MemEnv::new();
    env.create_dir_all(&dir()).unwrap();
    let reserve = Arc::new(DiskReserve::new(Arc::new(env.clone()), &dir()));
    reserve.fill().unwrap();
    let wal = open(&env, with(&reserve), 1, LogEnd::default()).unwrap();
    (env, reserve, wal)
}

fn with(reserve: &Arc<DiskReserve>) -> WalOptions {
    WalOptions {
        kept: Some(Arc::clone(reserve)),
        ..options()
    }
}

/// Appends records of 3000 bytes, each in a group of its own, until the disk is full. Returns how
/// many records were appended.
fn append_all(wal: &Wal, seqno: &mut u64, access: FullDiskAccess) -> u64 {
    for done in 0.. {
        let record = [batch(*seqno + 1, &[7; 3000])];
        match wal.append_to(&record, OutcomeRoom::Leave, access) {
            Ok(appended) => wal.sync_to(appended.lsn).unwrap(),
            Err(error) => {
                assert_eq!(error.kind(), &ErrorKind::NoSpace);
                return done;
            }
        }
        *seqno += 1;
    }
    unreachable!("the disk never became full");
}

#[test]
fn deletions_go_into_the_reserve_and_leave_a_quarter_of_it() {
    let (env, reserve, wal) = setup();
    env.fill();
    let mut seqno = 0;
    append_all(&wal, &mut seqno, FullDiskAccess::Ordinary);
    let blocks = ReservePart::Log.bytes() / 4096;
    let deletions = append_all(&wal, &mut seqno, FullDiskAccess::Deletions);
    assert!(deletions.abs_diff(blocks * 3 / 4) <= 2, "{deletions}");
    assert_eq!(append_all(&wal, &mut seqno, FullDiskAccess::Ordinary), 0);
    let exits = append_all(&wal, &mut seqno, FullDiskAccess::Exits);
    assert!(exits.abs_diff(blocks / 4) <= 2, "{exits}");
    assert!(!reserve.has(ReservePart::Log));
    env.unfill();
    seqno += 1;
    commit(&wal, seqno, b"there is room").unwrap();
    // No record of the segment that was made of the disk reserve is needed any more, so its release
    // turns it into the reserve again.
    wal.release_before(wal.current_segment()).unwrap();
    assert!(reserve.has(ReservePart::Log));
    env.fill();
    append_all(&wal, &mut seqno, FullDiskAccess::Ordinary);
    assert!(append_all(&wal, &mut seqno, FullDiskAccess::Deletions) > 100);
}

#[test]
fn what_is_in_the_reserve_is_replayed_and_the_next_run_goes_on() {
    let (env, _, wal) = setup();
    env.fill();
    let mut seqno = 0;
    append_all(&wal, &mut seqno, FullDiskAccess::Ordinary);
    append_all(&wal, &mut seqno, FullDiskAccess::Deletions);
    let mut env = env;
    let mut wal = Some(wal);
    for _ in 0..3 {
        drop(wal.take());
        env = env.kill();
        let (found, end) = replayed(&env, 1).unwrap();
        assert_eq!(found, Vec::from_iter(1..=seqno));
        let reserve = Arc::new(DiskReserve::new(Arc::new(env.clone()), &dir()));
        reserve.fill().unwrap();
        let first = end.max_segment_id_seen + 1;
        let opened = open(&env, with(&reserve), first, end.log_end()).unwrap();
        // The segment that was made of the disk reserve has the deletions and is still needed, so
        // the newly opened log has no segment.
        assert!(opened.has_no_segment());
        assert_eq!(append_all(&opened, &mut seqno, FullDiskAccess::Exits), 0);
        // The log accepts the outcome that recovery decides at once. It becomes durable when there
        // is a segment.
        let decided = opened
            .append(&[batch(seqno + 1, b"")], OutcomeRoom::Use)
            .unwrap();
        let error = opened.sync_to(decided.lsn).unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::NoSpace);
        wal = Some(opened);
    }
    env.unfill();
    let wal = wal.unwrap();
    wal.retry_next_segment().unwrap();
    wal.sync_to(wal.appended_lsn()).unwrap();
    assert!(!wal.has_no_segment());
    seqno += 2;
    commit(&wal, seqno, b"").unwrap();
    drop(wal);
    assert_eq!(
        replayed(&env.crash(0), 1).unwrap().0,
        Vec::from_iter(1..=seqno)
    );
}

/// Several threads append random records. Outcomes of prepared transactions always find their room,
/// ordinary records are refused only on a full disk, and a replay returns all records in order.
#[test]
fn outcomes_find_room_beside_the_reserve() {
    for seed in 0..60 {
        let mut rng = StdRng::seed_from_u64(seed);
        let (env, _, wal) = setup();
        let (mut seqno, mut open, mut refused, mut is_full) = (0, 0, 0, false);
        for step in 0..400 {
            let context = format!("seed {seed}, step {step}");
            if rng.random_ratio(1, 25) {
                is_full = !is_full;
                match is_full {
                    true => env.fill(),
                    false => env.unfill(),
                }
            }
            let room = match rng.random_range(0..10) {
                0..3 => OutcomeRoom::Keep,
                3..5 if open > 0 => OutcomeRoom::Use,
                _ => OutcomeRoom::Leave,
            };
            let access = [
                FullDiskAccess::Ordinary,
                FullDiskAccess::Deletions,
                FullDiskAccess::Exits,
            ][rng.random_range(0..3)];
            let bytes = match room {
                OutcomeRoom::Use => 600,
                _ => {
                    let most = [300, 6000, 60_000][rng.random_range(0..3)];
                    rng.random_range(0..most)
                }
            };
            // A caller may ask for the room ahead, also for less than it appends then.
            let asked = [0, bytes / 2, bytes][rng.random_range(0..3)];
            let room_ahead = wal.prepare_room(asked, room);
            let appended = wal.append_to(&[batch(seqno + 1, &vec![7; bytes])], room, access);
            drop(room_ahead);
            match appended {
                Ok(appended) => {
                    seqno += 1;
                    match room {
                        OutcomeRoom::Leave => {}
                        OutcomeRoom::Keep => open += 1,
                        OutcomeRoom::Use => open -= 1,
                    }
                    match rng.random_range(0..3) {
                        0 => wal.sync_to(appended.lsn).unwrap(),
                        1 => wal.write_to(appended.lsn).unwrap(),
                        _ => {}
                    }
                }
                Err(error) => {
                    assert_eq!(error.kind(), &ErrorKind::NoSpace, "{context}");
                    assert!(is_full && room != OutcomeRoom::Use, "{context}: {room:?}");
                    refused += 1;
                }
            }
            if rng.random_ratio(1, 20)
                && wal.prepare_cut().is_ok()
                && let Some(cut) = wal.try_cut().unwrap()
            {
                wal.finish_cut(cut).unwrap();
            }
        }
        env.fill();
        while open > 0 {
            seqno += 1;
            let appended = wal
                .append(&[batch(seqno, &[7; 600])], OutcomeRoom::Use)
                .unwrap();
            wal.sync_to(appended.lsn).unwrap();
            open -= 1;
        }
        assert!(refused > 0, "seed {seed}: the disk was never full");
        env.unfill();
        wal.close().unwrap();
        assert_eq!(
            replayed(&env.crash(0), 1).unwrap().0,
            Vec::from_iter(1..=seqno),
            "seed {seed}"
        );
    }
}

#[test]
fn outcomes_of_many_transactions_of_earlier_runs_take_what_room_there_is() {
    let (env, _, wal) = setup();
    env.fill();
    for _ in 0..600 {
        wal.expect_outcome();
    }
    let mut seqno = 0;
    for _ in 0..200 {
        seqno += 1;
        let appended = wal
            .append(&[batch(seqno, &[7; 600])], OutcomeRoom::Use)
            .unwrap();
        wal.sync_to(appended.lsn).unwrap();
    }
    assert_eq!(
        replayed(&env.crash(0), 1).unwrap().0,
        Vec::from_iter(1..=seqno)
    );
}

/// The process is killed between the rename of the disk reserve to a segment's name and the first
/// write to it.
#[test]
fn a_segment_made_of_the_reserve_without_a_length_is_the_reserve_again() {
    let (env, reserve, wal) = setup();
    commit(&wal, 1, b"").unwrap();
    drop(wal);
    let from = reserve.path(ReservePart::Log);
    env.rename(&from, &dir().join("000009.wal")).unwrap();
    let env = env.kill();
    env.fill();
    let (_, end) = replayed(&env, 1).unwrap();
    let reserve = Arc::new(DiskReserve::new(Arc::new(env.clone()), &dir()));
    let wal = open(&env, with(&reserve), 10, end.log_end()).unwrap();
    assert!(!wal.has_no_segment());
    let mut seqno = 1;
    assert_eq!(append_all(&wal, &mut seqno, FullDiskAccess::Ordinary), 0);
    assert!(append_all(&wal, &mut seqno, FullDiskAccess::Deletions) > 100);
}

/// A start on a full disk takes a segment that the last incarnation prepared and did not use. No
/// power cut leaves the new segment's header under the old name.
#[test]
fn an_unused_segment_has_its_new_name_before_its_new_header() {
    let mut died = 0;
    for nth in 1..30 {
        let (env, _, wal) = setup();
        commit(&wal, 1, b"").unwrap();
        wal.prepare_cut().unwrap();
        drop(wal);
        let env = env.kill();
        env.fill();
        let before = env.read(&segment_path(2)).unwrap();
        let (_, end) = replayed(&env, 1).unwrap();
        env.crash_at_sync(env.sync_points() + nth);
        let opened = open(&env, options(), 3, end.log_end());
        let done = opened.is_ok();
        drop(opened);
        died += u64::from(env.is_dead());
        for seed in 0..6 {
            let env = env.crash(seed);
            if let Ok(found) = env.read(&segment_path(2)) {
                let header = SegmentHeader::decode(&before[..4096], 2, "").unwrap();
                let found = SegmentHeader::decode(&found[..4096], 2, "").unwrap();
                assert!(found.is_none() || found == header, "cut at sync {nth}");
            }
            assert_eq!(replayed(&env, 1).unwrap().0, [1]);
        }
        if done && !env.is_dead() {
            break;
        }
    }
    assert!(died > 3, "{died}");
}

/// A log on a full disk after a crash. Segment 1 has group 1, which is durable, and group 2, which
/// is torn. Segment 2 is made of the disk reserve and has the groups 3 to 8, the first of which has
/// two blocks. Recovery drops all groups but the first.
fn torn_before_the_last_segment() -> MemEnv {
    let (env, _, wal) = setup();
    commit(&wal, 1, &[7; 4 * 4096]).unwrap();
    env.fill();
    for seqno in 2..9 {
        let bytes = if seqno == 3 { 6000 } else { 3000 };
        let record = [batch(seqno, &[7; 6000][..bytes])];
        let appended = wal.append_to(&record, OutcomeRoom::Leave, FullDiskAccess::Exits);
        wal.write_to(appended.unwrap().lsn).unwrap();
    }
    assert_eq!(wal.current_segment(), 2);
    drop(wal);
    let env = env.kill();
    assert_eq!(replayed(&env, 1).unwrap().0, Vec::from_iter(1..9));
    flip(&env, &segment_path(1), 6 * 4096 + 100);
    let (found, end) = replayed(&env, 1).unwrap();
    assert_eq!(found, [1]);
    assert!(end.torn_tail);
    env
}

/// The open ends before the new segment has a name, so the next open gives the id of the dropped
/// segment out again, to a segment that is made of the same file.
#[test]
fn groups_that_recovery_has_dropped_stay_dropped_if_the_id_is_given_out_again() {
    let mut again = 0;
    for nth in 1..20 {
        let env = torn_before_the_last_segment();
        let (_, end) = replayed(&env, 1).unwrap();
        env.fill();
        env.crash_at_name_change(env.name_changes() + nth);
        let reserve = Arc::new(DiskReserve::new(Arc::new(env.clone()), &dir()));
        let opened = open(&env, with(&reserve), 3, end.log_end());
        let died = env.is_dead();
        assert_eq!(opened.is_err(), died);
        drop(opened);
        let env = env.kill();
        let (found, end) = replayed(&env, 1).unwrap();
        assert_eq!(found, [1]);
        let reserve = Arc::new(DiskReserve::new(Arc::new(env.clone()), &dir()));
        reserve.fill().unwrap();
        let first = end.max_segment_id_seen + 1;
        again += u64::from(first == 2);
        let wal = open(&env, with(&reserve), first, end.log_end()).unwrap();
        // These two groups take the place of the first dropped one, so the second dropped one lies
        // where the log expects the next group.
        for seqno in [20, 21] {
            let record = [batch(seqno, &[7; 3000])];
            let appended = wal
                .append_to(&record, OutcomeRoom::Leave, FullDiskAccess::Exits)
                .unwrap();
            wal.sync_to(appended.lsn).unwrap();
            let so_far: Vec<u64> = (20..=seqno).collect();
            let found = replayed(&env.copy(), 1).unwrap().0;
            assert_eq!(found, [vec![1], so_far].concat(), "died at change {nth}");
        }
        drop(wal);
        if !died {
            break;
        }
    }
    assert!(again > 0, "no open gave the id out again");
}

/// A start on a full disk makes its first segment of a segment that recovery has dropped, by way of
/// the disk reserve. No power cut leaves groups of the old segment behind a header of the new one.
#[test]
fn a_dropped_segment_that_becomes_the_reserve_is_never_a_damaged_one() {
    let mut died = 0;
    for nth in 1..30 {
        let env = torn_before_the_last_segment();
        let (_, end) = replayed(&env, 1).unwrap();
        env.fill();
        env.crash_at_sync(env.sync_points() + nth);
        let reserve = Arc::new(DiskReserve::new(Arc::new(env.clone()), &dir()));
        let opened = open(&env, with(&reserve), 3, end.log_end());
        let done = opened.is_ok();
        drop(opened);
        died += u64::from(env.is_dead());
        for seed in 0..12 {
            let found = replayed(&env.crash(seed), 1);
            let found = found.unwrap_or_else(|error| panic!("cut at sync {nth}: {error}"));
            assert_eq!(found.0, [1], "cut at sync {nth}");
        }
        if done && !env.is_dead() {
            break;
        }
    }
    assert!(died > 3, "{died}");
}

/// A start on a full disk releases several unused segments. No power cut leaves a later one, with
/// its header, without an earlier one.
#[test]
fn unused_segments_are_released_without_a_gap() {
    let mut died = 0;
    for nth in 1..40 {
        let (env, _, wal) = setup();
        commit(&wal, 1, b"").unwrap();
        drop(wal.prepare_room(40 << 10, OutcomeRoom::Leave));
        drop(wal);
        let env = env.kill();
        assert!(env.exists(&segment_path(2)).unwrap() && env.exists(&segment_path(3)).unwrap());
        env.fill();
        let (_, end) = replayed(&env, 1).unwrap();
        env.crash_at_sync(env.sync_points() + nth);
        let opened = open(&env, options(), 4, end.log_end());
        let done = opened.is_ok();
        // One of the two is left over, so the log uses it for its second segment.
        let cut = opened.as_ref().ok().map(|wal| wal.prepare_cut());
        drop((opened, cut));
        died += u64::from(env.is_dead());
        for seed in 0..20 {
            let found = replayed(&env.crash(seed), 1);
            let found = found.unwrap_or_else(|error| panic!("cut at sync {nth}: {error}"));
            assert_eq!(found.0, [1], "cut at sync {nth}");
        }
        if done && !env.is_dead() {
            break;
        }
    }
    assert!(died > 3, "{died}");
}

/// Zeros need room on file systems that never write in place. Half of them would leave groups
/// behind, so the file is removed, and the log takes its room.
#[test]
fn a_dropped_segment_that_cannot_be_overwritten_is_removed() {
    for errno in [Errno::NoSpace, Errno::Io] {
        let disk = torn_before_the_last_segment();
        let (_, end) = replayed(&disk, 1).unwrap();
        disk.fill();
        let env = FaultEnv::new(Arc::new(disk.clone()));
        let reserve = Arc::new(DiskReserve::new(Arc::new(disk.clone()), &dir()));
        // There is no room to create a segment, so the first write is that of the zeros.
        env.inject(Fault {
            class: CallClass::Write,
            nth: 1,
            sticky: false,
            errno,
        });
        let wal = open(&env, with(&reserve), 3, end.log_end()).unwrap();
        assert!(!disk.exists(&segment_path(2)).unwrap());
        assert!(!disk.exists(&reserve.path(ReservePart::Log)).unwrap());
        commit(&wal, 20, b"").unwrap();
        assert_eq!(replayed(&disk.crash(0), 1).unwrap().0, [1, 20]);
    }
}

/// A log on a full disk without a segment, in which three prepared transactions wait for their
/// outcomes.
fn without_segment() -> (MemEnv, Arc<Wal>) {
    let (env, _, wal) = setup();
    env.fill();
    let mut seqno = 0;
    append_all(&wal, &mut seqno, FullDiskAccess::Ordinary);
    append_all(&wal, &mut seqno, FullDiskAccess::Exits);
    drop(wal);
    let env = env.kill();
    let (_, end) = replayed(&env, 1).unwrap();
    let reserve = Arc::new(DiskReserve::new(Arc::new(env.clone()), &dir()));
    let first = end.max_segment_id_seen + 1;
    let wal = open(&env, with(&reserve), first, end.log_end()).unwrap();
    assert!(wal.has_no_segment());
    (0..3).for_each(|_| wal.expect_outcome());
    (env, wal)
}

/// Runs `other` while this thread appends an outcome and has found that there is no room.
fn append_during(wal: &Arc<Wal>, other: impl FnOnce(&Wal) + 'static) -> Result<Appended> {
    let others = Arc::clone(wal);
    let mut other = Some(other);
    pause_points::on_this_thread(move |point| {
        if point == PausePoint::NoRoomForOutcome
            && let Some(other) = other.take()
        {
            other(&others);
        }
    });
    let appended = wal.append(&[batch(1000, b"")], OutcomeRoom::Use);
    pause_points::clear();
    appended
}

#[test]
fn two_outcomes_at_once_without_a_segment_take_the_room_of_two() {
    let (env, wal) = without_segment();
    let appended = append_during(&wal, |wal| {
        wal.append(&[batch(1001, b"")], OutcomeRoom::Use).unwrap();
    });
    assert_eq!(wal.expected_outcomes(), 1);
    env.unfill();
    wal.sync_to(appended.unwrap().lsn).unwrap();
    let (seqnos, _) = replayed(&env.crash(0), 1).unwrap();
    assert_eq!(seqnos[seqnos.len() - 2..], [1001, 1000]);
}

#[test]
fn an_outcome_without_a_segment_is_refused_once_the_log_is_closed() {
    let (_env, wal) = without_segment();
    let appended = append_during(&wal, |wal| wal.close().unwrap());
    assert_eq!(*appended.unwrap_err().kind(), ErrorKind::ShutDown);
    assert_eq!(wal.expected_outcomes(), 3);
}
