//! Failing writes and syncs, full disks.

use super::*;
use crate::base::ErrorKind;
use crate::env::FaultEnv;
use crate::env::fault::{CallClass, Errno, Fault};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

fn setup() -> (MemEnv, FaultEnv, Arc<Wal>) {
    let mem = MemEnv::new();
    let env = FaultEnv::new(Arc::new(mem.clone()));
    let wal = open(&env, options(), 1, LogEnd::default()).unwrap();
    (mem, env, wal)
}

fn fail(env: &FaultEnv, class: CallClass, errno: Errno, sticky: bool) {
    env.inject(Fault {
        class,
        nth: 1,
        sticky,
        errno,
    });
}

#[test]
fn a_failed_write_or_sync_poisons() {
    for (class, errno) in [
        (CallClass::Write, Errno::Io),
        (CallClass::Sync, Errno::Io),
        (CallClass::Write, Errno::NoSpace),
    ] {
        let (mem, env, wal) = setup();
        let good = commit(&wal, 1, b"good").unwrap();
        fail(&env, class, errno, false);
        let error = commit(&wal, 2, b"bad").unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::Poisoned);
        assert!(error.message().contains("unknown until restart"), "{error}");
        let writes = env.count(CallClass::Write);
        assert_eq!(
            wal.append(&[], OutcomeRoom::Leave).unwrap_err().kind(),
            &ErrorKind::Poisoned
        );
        assert_eq!(
            wal.sync_to(wal.appended_lsn()).unwrap_err().kind(),
            &ErrorKind::Poisoned
        );
        wal.sync_to(good.lsn).unwrap();
        wal.close().unwrap_err();
        assert_eq!(
            env.count(CallClass::Write),
            writes,
            "written after the failure"
        );
        assert_eq!(replayed(&mem.crash(0), 1).unwrap().0, [1]);
    }
}

#[test]
fn a_failed_sync_of_written_groups_poisons() {
    let (_, env, wal) = setup();
    let appended = wal.append(&[batch(1, b"")], OutcomeRoom::Leave).unwrap();
    wal.write_to(appended.lsn).unwrap();
    fail(&env, CallClass::Sync, Errno::Io, false);
    let error = wal.sync_to(appended.lsn).unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::Poisoned);
    assert_eq!(wal.durable_lsn(), 0);
}

#[test]
fn a_poison_from_elsewhere_stops_the_log() {
    let mem = MemEnv::new();
    let health = Arc::new(Health::new());
    let wal = Wal::create(
        Arc::new(mem.clone()),
        &dir(),
        options(),
        health.clone(),
        Arc::new(Silent),
        1,
        LogEnd::default(),
    )
    .unwrap();
    let appended = wal.append(&[batch(1, b"")], OutcomeRoom::Leave).unwrap();
    health.poison(crate::base::Error::invalid("elsewhere"));
    let error = wal.sync_to(appended.lsn).unwrap_err();
    assert!(error.message().contains("elsewhere"), "{error}");
    assert_eq!(replayed(&mem, 1).unwrap().0, []);
}

/// On a full disk an append fails before it has a position in the log. Commits go on when there is
/// room again.
#[test]
fn a_full_disk_refuses_appends_until_there_is_room() {
    let (mem, env, wal) = setup();
    for seqno in 1..=7 {
        commit(&wal, seqno, &[1; 3000]).unwrap();
    }
    fail(&env, CallClass::Write, Errno::NoSpace, true);
    for _ in 0..3 {
        let error = commit(&wal, 8, &[1; 3000]).unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::NoSpace);
    }
    assert_eq!(mem.list_dir(&dir()).unwrap(), [segment_name(1)]);
    env.clear();
    commit(&wal, 8, &[1; 3000]).unwrap();
    assert_eq!(
        replayed(&mem.crash(0), 1).unwrap().0,
        [1, 2, 3, 4, 5, 6, 7, 8]
    );
}

/// In turn, each file-system call fails that prepares a new or a recycled segment. Acknowledged
/// records survive in all cases, and unless the log is poisoned, later appends succeed.
#[test]
fn each_call_of_a_rotation_may_fail() {
    for class in [
        CallClass::Write,
        CallClass::Sync,
        CallClass::Create,
        CallClass::Rename,
        CallClass::Remove,
    ] {
        for errno in [Errno::Io, Errno::NoSpace] {
            for nth in 1..=60 {
                let (mem, env, wal) = setup();
                env.inject(Fault {
                    class,
                    nth,
                    sticky: false,
                    errno,
                });
                let mut acknowledged = 0;
                let mut failures = 0;
                let mut poisoned = false;
                for seqno in 1..=60 {
                    match commit(&wal, seqno, &[1; 3000]) {
                        Ok(appended) => {
                            assert!(!poisoned);
                            acknowledged = seqno;
                            // The removal of a segment's file may fail. The file then stays until
                            // the next start.
                            failures += usize::from(wal.release_before(appended.segment).is_err());
                        }
                        Err(error) => {
                            failures += 1;
                            poisoned |= error.kind() == &ErrorKind::Poisoned
                                || wal.append(&[], OutcomeRoom::Leave).is_err();
                        }
                    }
                }
                assert!(poisoned || failures <= 1, "{class:?} {nth}");
                let first = wal.current_segment();
                let (seqnos, _) = replayed(&mem.crash(nth), first).unwrap();
                let last = seqnos.last().copied().unwrap_or(acknowledged);
                assert!(last >= acknowledged, "{class:?} {nth}: {acknowledged} lost");
            }
        }
    }
}

/// A prepared transaction can be ended however little room the disk has, and whatever other records
/// are appended meanwhile.
#[test]
fn outcomes_find_room_on_a_full_disk() {
    for seed in 0..60 {
        let mut rng = StdRng::seed_from_u64(seed);
        let (mem, env, wal) = setup();
        let (mut seqno, mut open, mut refused, mut is_full) = (0, 0, 0, false);
        for step in 0..300 {
            if rng.random_ratio(1, 12) {
                is_full = !is_full;
                match is_full {
                    true => fail(&env, CallClass::Create, Errno::NoSpace, true),
                    false => env.clear(),
                }
            }
            let room = match rng.random_range(0..10) {
                0..3 => OutcomeRoom::Keep,
                3..5 if open > 0 => OutcomeRoom::Use,
                _ => OutcomeRoom::Leave,
            };
            let bytes = match room {
                OutcomeRoom::Use => 600,
                // Some of these records are too large for a segment of the usual size and need a
                // larger one.
                _ => {
                    let most = [300, 6000, 60_000][rng.random_range(0..3)];
                    rng.random_range(0..most)
                }
            };
            match wal.append(&[batch(seqno + 1, &vec![7; bytes])], room) {
                Ok(appended) => {
                    seqno += 1;
                    open = match room {
                        OutcomeRoom::Leave => open,
                        OutcomeRoom::Keep => open + 1,
                        OutcomeRoom::Use => open - 1,
                    };
                    match rng.random_range(0..3) {
                        0 => wal.sync_to(appended.lsn).unwrap(),
                        1 => wal.write_to(appended.lsn).unwrap(),
                        _ => {}
                    }
                }
                Err(error) => {
                    assert_eq!(
                        error.kind(),
                        &ErrorKind::NoSpace,
                        "seed {seed}, step {step}"
                    );
                    assert!(
                        is_full && room != OutcomeRoom::Use,
                        "seed {seed}, step {step}: {room:?}"
                    );
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
        if !is_full {
            fail(&env, CallClass::Create, Errno::NoSpace, true);
        }
        while open > 0 {
            seqno += 1;
            let appended = wal
                .append(&[batch(seqno, &[7; 600])], OutcomeRoom::Use)
                .unwrap();
            wal.sync_to(appended.lsn).unwrap();
            open -= 1;
        }
        assert!(refused > 0, "seed {seed}: the disk was never full");
        env.clear();
        wal.close().unwrap();
        assert_eq!(
            replayed(&mem.crash(0), 1).unwrap().0,
            Vec::from_iter(1..=seqno)
        );
    }
}

fn no_file_opens(env: &FaultEnv, errno: Errno) {
    fail(env, CallClass::Open, errno, true);
}

/// Commits until an append is refused because no file can be opened. Returns the last seqno.
fn commit_until_refused(wal: &Wal, mut seqno: u64) -> u64 {
    loop {
        match wal.append(&[batch(seqno + 1, &[7; 3000])], OutcomeRoom::Leave) {
            Ok(appended) => wal.sync_to(appended.lsn).unwrap(),
            Err(error) => {
                assert_eq!(*error.kind(), ErrorKind::NoDescriptor);
                return seqno;
            }
        }
        seqno += 1;
    }
}

#[test]
fn commits_go_on_in_released_segments_while_no_file_can_be_opened() {
    for errno in [
        Errno::NoMemory,
        Errno::SystemTableFull,
        Errno::ProcessTableFull,
    ] {
        let mem = MemEnv::new();
        mem.create_dir_all(&dir()).unwrap();
        let env = FaultEnv::new(Arc::new(mem.clone()));
        env.keep_dir_open(&dir()).unwrap();
        let wal = open(&env, options(), 1, LogEnd::default()).unwrap();
        let mut seqno = 0;
        while wal.current_segment() < 4 {
            seqno += 1;
            commit(&wal, seqno, &[7; 3000]).unwrap();
        }
        wal.release_before(4).unwrap();
        no_file_opens(&env, errno);
        let before = seqno;
        seqno = commit_until_refused(&wal, seqno);
        // Two released segments with seven blocks each are kept open, and each commit takes a
        // block.
        assert!(seqno >= before + 14, "{} commits", seqno - before);
        // The failures have stopped nothing: the next commit prepares its segment.
        env.clear();
        for _ in 0..20 {
            seqno += 1;
            commit(&wal, seqno, &[7; 3000]).unwrap();
        }
        drop(wal);
        let (found, _) = replayed(&mem.crash(0), 4).unwrap();
        assert_eq!(found.last(), Some(&seqno));
        assert!(found.is_sorted() && found.len() as u64 > seqno - before);
    }
}

#[test]
fn a_directory_that_cannot_be_opened_refuses_one_append() {
    // The `nth` call that opens a file fails; for an even `nth`, so do all later ones until step
    // 40.
    for nth in 1..8 {
        let (mem, env, wal) = setup();
        env.inject(Fault {
            class: CallClass::Open,
            nth,
            sticky: nth % 2 == 0,
            errno: Errno::ProcessTableFull,
        });
        let mut refused = 0;
        let mut seqno = 0;
        for step in 0..60 {
            match wal.append(&[batch(seqno + 1, &[7; 3000])], OutcomeRoom::Leave) {
                Ok(appended) => {
                    wal.sync_to(appended.lsn).unwrap();
                    seqno += 1;
                }
                Err(error) => {
                    assert_eq!(*error.kind(), ErrorKind::NoDescriptor);
                    refused += 1;
                }
            }
            if step == 40 {
                env.clear();
            }
        }
        assert!(refused > 0, "call {nth}");
        wal.close().unwrap();
        assert_eq!(
            replayed(&mem.crash(0), 1).unwrap().0,
            Vec::from_iter(1..=seqno)
        );
    }
}
