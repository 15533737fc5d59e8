//! Tests with many committers at once.

use super::*;
use crate::base::ErrorKind;
use crate::env::fault::{CallClass, Errno, Fault};
use crate::env::{FaultEnv, PosixEnv};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const THREADS: u64 = 16;
const COMMITS: u64 = 60;
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);

/// Which commits leave an acknowledgement behind instead of waiting, if the log takes it.
#[derive(Debug, Clone, Copy)]
enum Absent {
    None,
    Half,
    All,
}

const ABSENT: [Absent; 3] = [Absent::None, Absent::Half, Absent::All];

impl Absent {
    fn is(self, seqno: u64) -> bool {
        match self {
            Self::None => false,
            Self::Half => seqno.is_multiple_of(2),
            Self::All => true,
        }
    }
}

/// Several threads append batches: each takes a mutex that gives out seqnos, appends, and waits
/// outside the mutex, or goes on if it is absent. Returns the acknowledged seqnos.
fn run(wal: &Arc<Wal>, durable: impl Fn(u64) -> bool + Sync, absent: Absent) -> Vec<u64> {
    let commit_mutex = Mutex::new(0u64);
    let acknowledged = Mutex::new(Vec::new());
    let (sender, answers) = std::sync::mpsc::channel();
    let left_behind = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (commit_mutex, acknowledged, durable) = (&commit_mutex, &acknowledged, &durable);
            let (sender, left_behind) = (sender.clone(), &left_behind);
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
                    if synced && absent.is(seqno) {
                        let (sender, log) = (sender.clone(), Arc::downgrade(wal));
                        let answer = move |durable: bool| {
                            let log = log.upgrade();
                            assert!(!durable || log.unwrap().durable_lsn() >= appended.lsn);
                            sender.send((seqno, durable)).unwrap();
                        };
                        if wal
                            .acknowledge_later(appended.lsn, || Some(Acknowledgement::new(answer)))
                        {
                            left_behind.fetch_add(1, Ordering::Relaxed);
                            continue;
                        }
                    }
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
    let mut acknowledged = acknowledged.into_inner();
    // Nobody commits any more, so the answers come without a further commit.
    for _ in 0..left_behind.into_inner() {
        let answer = answers.recv_timeout(ANSWER_TIMEOUT);
        let (seqno, durable) = answer.expect("each commit is answered");
        if durable {
            acknowledged.push(seqno);
        }
    }
    acknowledged
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
    let modes = [(1, false), (2, true), (4, false), (4, true)];
    for ((in_flight, sectors), absent) in modes.into_iter().zip(ABSENT.into_iter().cycle()) {
        let env = MemEnv::new();
        env.set_log_sectors(sectors);
        let wal = open(&env, with_thread(in_flight), 1, LogEnd::default()).unwrap();
        let acknowledged = run(&wal, |_| true, absent);
        assert_eq!(acknowledged.len(), all().len());
        assert_eq!(wal.durable_lsn(), wal.appended_lsn());
        drop(wal);
        assert_eq!(replayed(&env.crash(0), 1).unwrap().0, all());
    }
}

#[test]
fn durable_and_written_commits_mix() {
    for absent in ABSENT {
        let env = MemEnv::new();
        env.set_log_sectors(true);
        let wal = open(&env, with_thread(4), 1, LogEnd::default()).unwrap();
        run(&wal, |seqno| seqno % 3 == 0, absent);
        wal.sync_to(wal.appended_lsn()).unwrap();
        drop(wal);
        assert_eq!(replayed(&env.crash(0), 1).unwrap().0, all());
    }
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
    run(&wal, |_| true, Absent::Half);
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
    let calls = [1, 2, 3, 10, 50, 100].into_iter();
    for (nth, absent) in calls.flat_map(|nth| ABSENT.map(|absent| (nth, absent))) {
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
        let acknowledged = run(&wal, |_| true, absent);
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
        for (in_flight, absent) in [2, 4].into_iter().flat_map(|n| ABSENT.map(|a| (n, a))) {
            let env = MemEnv::new();
            env.set_log_sectors(in_flight == 4);
            env.crash_at_sync(point);
            let wal = open(&env, with_thread(in_flight), 1, LogEnd::default()).unwrap();
            let acknowledged = run(&wal, |_| true, absent);
            drop(wal);
            let last = acknowledged.iter().max().copied().unwrap_or(0);
            for seed in 0..20 {
                let what =
                    format!("sync {point}, {in_flight} in flight, absent {absent:?}, seed {seed}");
                let (seqnos, _) = replayed(&env.crash(seed), 1).expect(&what);
                assert!(all().starts_with(&seqnos), "{what}: not a prefix");
                assert!(seqnos.len() as u64 >= last, "{what}: {last} is lost");
            }
        }
    }
}
