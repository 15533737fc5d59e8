//! Tests with many committers at once.

use super::*;
use crate::base::ErrorKind;
use crate::env::fault::{CallClass, Errno, Fault};
use crate::env::{FaultEnv, PosixEnv};
use parking_lot::Mutex;

const THREADS: u64 = 16;
const COMMITS: u64 = 60;

/// Several threads append batches: each takes a mutex that gives out seqnos, appends, and waits
/// outside the mutex. Returns the acknowledged seqnos.
fn run(wal: &Wal, durable: impl Fn(u64) -> bool + Sync) -> Vec<u64> {
    let commit_mutex = Mutex::new(0u64);
    let acknowledged = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (commit_mutex, acknowledged, durable) = (&commit_mutex, &acknowledged, &durable);
            scope.spawn(move || {
                for n in 0..COMMITS {
                    let bytes = vec![thread as u8; (thread * 97 + n * 31) as usize % 3000];
                    let (seqno, appended) = {
                        let mut last = commit_mutex.lock();
                        let Ok(appended) =
                            wal.append(&[batch(*last + 1, &bytes)], OutcomeRoom::Leave)
                        else {
                            return;
                        };
                        *last += 1;
                        (*last, appended)
                    };
                    let synced = durable(seqno);
                    let waited = if synced {
                        wal.sync_to(appended.lsn)
                    } else {
                        wal.write_to(appended.lsn)
                    };
                    match waited {
                        Ok(()) if synced => {
                            assert!(wal.durable_lsn() >= appended.lsn);
                            acknowledged.lock().push(seqno);
                        }
                        Ok(()) => {}
                        Err(error) => {
                            assert_eq!(error.kind(), &ErrorKind::Poisoned);
                            return;
                        }
                    }
                }
            });
        }
    });
    acknowledged.into_inner()
}

fn with_thread(syncs_in_flight: usize) -> WalOptions {
    WalOptions {
        background: true,
        syncs_in_flight,
        segment_size: 64 * 4096,
        ..options()
    }
}

fn all() -> Vec<u64> {
    (1..=THREADS * COMMITS).collect()
}

#[test]
fn all_commits_of_many_threads_are_replayed_in_order() {
    for (in_flight, sectors) in [(1, false), (2, true), (4, false), (4, true)] {
        let env = MemEnv::new();
        env.set_log_sectors(sectors);
        let wal = open(&env, with_thread(in_flight), 1, LogEnd::default()).unwrap();
        let acknowledged = run(&wal, |_| true);
        assert_eq!(acknowledged.len(), all().len());
        assert_eq!(wal.durable_lsn(), wal.appended_lsn());
        drop(wal);
        assert_eq!(replayed(&env.crash(0), 1).unwrap().0, all());
    }
}

#[test]
fn durable_and_written_commits_mix() {
    let env = MemEnv::new();
    env.set_log_sectors(true);
    let wal = open(&env, with_thread(4), 1, LogEnd::default()).unwrap();
    run(&wal, |seqno| seqno % 3 == 0);
    wal.sync_to(wal.appended_lsn()).unwrap();
    drop(wal);
    assert_eq!(replayed(&env.crash(0), 1).unwrap().0, all());
}

#[test]
fn real_files_hold_them_too() {
    let temp = tempfile::tempdir().unwrap();
    let wal = Wal::create(
        Arc::new(PosixEnv::new()),
        temp.path(),
        with_thread(4),
        Arc::new(Health::new()),
        Arc::new(Silent),
        1,
        LogEnd::default(),
    )
    .unwrap();
    run(&wal, |_| true);
    wal.release_before(1).unwrap();
    wal.close().unwrap();
    let mut seqnos = Vec::new();
    let end = replay(&PosixEnv::new(), temp.path(), 1, &mut |_, record| {
        if let Record::Batch { seqno, .. } = record {
            seqnos.push(seqno);
        }
        Ok(())
    });
    assert!(!end.unwrap().torn_tail);
    assert_eq!(seqnos, all());
}

/// One write fails while others are in flight. Every thread gets a result, acknowledged commits are
/// replayed after the crash, and nothing is replayed out of order.
#[test]
fn a_failure_amid_many_committers_loses_nothing_acknowledged() {
    for nth in [1, 2, 3, 10, 50, 100] {
        let mem = MemEnv::new();
        mem.set_log_sectors(nth % 2 == 0);
        let env = FaultEnv::new(Arc::new(mem.clone()));
        let wal = open(&env, with_thread(4), 1, LogEnd::default()).unwrap();
        env.inject(Fault {
            class: CallClass::Sync,
            nth,
            sticky: false,
            errno: Errno::Io,
        });
        let acknowledged = run(&wal, |_| true);
        drop(wal);
        let (seqnos, _) = replayed(&mem.crash(nth), 1).unwrap();
        assert!(all().starts_with(&seqnos), "sync {nth}: not a prefix");
        let last = acknowledged.iter().max().copied().unwrap_or(0);
        assert!(seqnos.len() as u64 >= last, "sync {nth}: {last} is lost");
    }
}

/// The power is cut while several groups are in flight.
#[test]
fn a_power_cut_amid_many_committers_loses_nothing_acknowledged() {
    for point in [4, 5, 7, 12, 30, 60, 100] {
        for in_flight in [2, 4] {
            let env = MemEnv::new();
            env.set_log_sectors(in_flight == 4);
            env.crash_at_sync(point);
            let wal = open(&env, with_thread(in_flight), 1, LogEnd::default()).unwrap();
            let acknowledged = run(&wal, |_| true);
            drop(wal);
            let last = acknowledged.iter().max().copied().unwrap_or(0);
            for seed in 0..20 {
                let what = format!("sync {point}, {in_flight} in flight, seed {seed}");
                let (seqnos, _) = replayed(&env.crash(seed), 1).expect(&what);
                assert!(all().starts_with(&seqnos), "{what}: not a prefix");
                assert!(seqnos.len() as u64 >= last, "{what}: {last} is lost");
            }
        }
    }
}
