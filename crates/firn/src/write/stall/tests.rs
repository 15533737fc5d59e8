use super::*;
use crate::env::{MemEnv, PosixEnv};
use std::sync::atomic::AtomicUsize;

const STOP: Pressure = Pressure {
    memtables: 0.0,
    l0: 2.0,
    debt: 0.0,
    space: 0.0,
    memory: 0.0,
};

/// A session at the gate.
#[derive(Default)]
struct Session {
    killed: AtomicBool,
    parker: Mutex<Option<Arc<Parker>>>,
    timeout: Option<Duration>,
    asleep: AtomicUsize,
    sleeps: AtomicUsize,
}

impl Session {
    fn killed() -> Self {
        Self {
            killed: AtomicBool::new(true),
            ..Self::default()
        }
    }

    fn kill(&self) {
        self.killed.store(true, Ordering::SeqCst);
        if let Some(parker) = &*self.parker.lock() {
            parker.unpark();
        }
    }
}

impl GateWaiter for Session {
    fn is_interrupted(&self) -> bool {
        self.killed.load(Ordering::SeqCst)
    }

    fn parks(&self, parker: Option<Arc<Parker>>) {
        *self.parker.lock() = parker;
    }

    fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    fn sleeps(&self) {
        self.asleep.fetch_add(1, Ordering::SeqCst);
        self.sleeps.fetch_add(1, Ordering::SeqCst);
    }

    fn wakes(&self) {
        self.asleep.fetch_sub(1, Ordering::SeqCst);
    }
}

fn gate() -> StallGate {
    StallGate::new(Arc::new(PosixEnv::new()))
}

fn pass(stall: &StallGate) -> Result<GateCharge> {
    stall.pass(&Session::default())
}

fn kind_of(passed: Result<GateCharge>) -> ErrorKind {
    passed.unwrap_err().kind().clone()
}

fn full() -> Error {
    Error::new(ErrorKind::NoSpace, "no room for a compaction")
}

fn await_waiting(stall: &StallGate, writers: u64) {
    while stall.stats().waiting != writers {
        std::thread::yield_now();
    }
}

fn ends(stall: &StallGate, end: StallEnd) -> u64 {
    stall.stats().by_end[end as usize]
}

#[test]
fn stopped_writers_fail_with_the_work_they_wait_for() {
    let stall = gate();
    stall.set_pressure(STOP);
    stall.set_failure(Some(full()));
    assert_eq!(kind_of(pass(&stall)), ErrorKind::NoSpace);
    stall.set_failure(None);
    let interrupted = stall.pass(&Session::killed());
    assert_eq!(kind_of(interrupted), ErrorKind::Interrupted);
    let stats = stall.stats();
    assert_eq!(
        (stats.stops, stats.by_reason[StallReason::L0 as usize].0),
        (2, 2)
    );
    assert_eq!(ends(&stall, StallEnd::Failure), 1);
    assert_eq!(ends(&stall, StallEnd::Kill), 1);
    assert!(stats.stopped && stats.rate == 0 && stats.waiting == 0);
}

#[test]
fn a_failure_without_pressure_stops_nobody() {
    let stall = gate();
    stall.set_failure(Some(full()));
    pass(&stall).unwrap();
    stall.set_pressure(STOP);
    stall.release();
    pass(&stall).unwrap();
    stall.set_pressure(STOP);
    pass(&stall).unwrap();
    assert_eq!(stall.stats().stops, 0);
}

/// Many writers are stopped. A failure fails all of them, and an opened gate lets all pass, though
/// each change wakes only the first ones.
#[test]
fn who_waits_behind_others_goes_on_with_them() {
    const WRITERS: u64 = 200;
    let stall = gate();
    for failure in [Some(full()), None] {
        stall.set_pressure(STOP);
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..WRITERS).map(|_| scope.spawn(|| pass(&stall))).collect();
            await_waiting(&stall, WRITERS);
            let fails = failure.is_some();
            match failure {
                Some(failure) => stall.set_failure(Some(failure)),
                None => stall.set_pressure(Pressure::default()),
            }
            for writer in writers {
                let passed = writer.join().unwrap();
                assert_eq!(passed.is_err(), fails);
            }
        });
        stall.set_failure(None);
    }
    assert_eq!(ends(&stall, StallEnd::Failure), WRITERS);
    assert_eq!(ends(&stall, StallEnd::Woken), WRITERS);
    let stats = stall.stats();
    assert_eq!((stats.stops, stats.delays), (2 * WRITERS, 0));
    assert!(stats.longest_us > 0 && stats.longest_us <= stats.stop_us);
}

/// A gate that lets a megabyte a second through, with commits of 16 KiB: each takes 16 ms.
fn slow_on(env: Arc<dyn Env>) -> StallGate {
    let stall = StallGate::new(env);
    let committed = CommitTotals {
        commits: 64,
        bytes: 1 << 20,
    };
    stall.flushed(committed, 1 << 20, 1_000_000);
    stall.set_pressure(Pressure {
        memtables: 1.0,
        ..Pressure::default()
    });
    assert_eq!(stall.stats().rate, 1 << 20);
    stall
}

fn slow() -> StallGate {
    slow_on(Arc::new(PosixEnv::new()))
}

#[test]
fn writers_pass_by_their_timers_at_the_rate() {
    const WRITERS: u64 = 12;
    let stall = slow();
    let clock = PosixEnv::new();
    let begun = clock.monotonic_micros();
    std::thread::scope(|scope| {
        for _ in 0..WRITERS {
            scope.spawn(|| {
                let charge = pass(&stall).unwrap();
                stall.committed(16 << 10);
                stall.settle(charge, 16 << 10);
            });
        }
    });
    let took = clock.monotonic_micros() - begun;
    assert!(took >= 11 * 15_000, "{took}");
    let stats = stall.stats();
    // A thread that starts late finds that nothing is owed any more, and is not delayed.
    assert!(stats.delays < WRITERS, "{stats:?}");
    assert_eq!(stats.stops, 0);
}

/// The clock of this environment stands still while writers sleep, so each writer owes the time of
/// all before it, however late its thread starts.
#[test]
fn writers_pass_where_the_clock_stands_still() {
    const WRITERS: u64 = 8;
    let stall = slow_on(Arc::new(MemEnv::new()));
    std::thread::scope(|scope| {
        for _ in 0..WRITERS {
            scope.spawn(|| pass(&stall).unwrap());
        }
    });
    let stats = stall.stats();
    assert_eq!((stats.delays, stats.stops), (WRITERS - 1, 0));
    assert_eq!(
        stats.by_reason[StallReason::Memtables as usize].0,
        WRITERS - 1
    );
    // Only its own timer lets the last writer of the line pass.
    assert!(ends(&stall, StallEnd::Timer) > 0, "{stats:?}");
}

#[test]
fn a_kill_wakes_its_writer_at_once_and_nobody_else() {
    const WRITERS: usize = 100;
    let stall = gate();
    stall.set_pressure(STOP);
    let sessions: Vec<Session> = (0..WRITERS).map(|_| Session::default()).collect();
    std::thread::scope(|scope| {
        let mut writers: Vec<_> = sessions
            .iter()
            .map(|session| scope.spawn(|| stall.pass(session)))
            .collect();
        await_waiting(&stall, WRITERS as u64);
        while sessions
            .iter()
            .any(|s| s.asleep.load(Ordering::SeqCst) != 1)
        {
            std::thread::yield_now();
        }
        let wakes = stall.state.lock().admission.wakes();
        sessions[50].kill();
        // No timer is set, so only the kill can end this wait.
        let killed = writers.remove(50).join().unwrap();
        assert_eq!(kind_of(killed), ErrorKind::Interrupted);
        assert_eq!(stall.stats().waiting, WRITERS as u64 - 1);
        assert_eq!(stall.state.lock().admission.wakes(), wakes);
        let asleep = sessions.iter().map(|s| s.asleep.load(Ordering::SeqCst));
        assert_eq!(asleep.sum::<usize>(), WRITERS - 1);
        stall.set_pressure(Pressure::default());
        for writer in writers {
            writer.join().unwrap().unwrap();
        }
    });
    assert!(sessions.iter().all(|s| s.parker.lock().is_none()));
    assert_eq!(ends(&stall, StallEnd::Kill), 1);
}

/// The kill comes when the writer has its ticket and nothing shows yet where it will sleep.
#[test]
fn a_kill_before_the_sleep_is_not_lost() {
    let stall = gate();
    stall.set_pressure(STOP);
    let session = Arc::new(Session::default());
    let killer = Arc::clone(&session);
    pause_points::on_this_thread(move |point| {
        if point == PausePoint::GateJoined {
            killer.kill();
        }
    });
    let killed = stall.pass(&*session);
    pause_points::clear();
    assert_eq!(kind_of(killed), ErrorKind::Interrupted);
    assert_eq!(stall.stats().waiting, 0);
}

#[test]
fn a_wait_ends_with_its_timeout() {
    let stall = gate();
    stall.set_pressure(STOP);
    let session = Session {
        timeout: Some(Duration::from_millis(20)),
        ..Session::default()
    };
    assert_eq!(kind_of(stall.pass(&session)), ErrorKind::LockTimeout);
    assert_eq!(ends(&stall, StallEnd::Timeout), 1);
    assert!(stall.stats().longest_us >= 20_000);
    assert_eq!(stall.stats().waiting, 0);
}

#[test]
fn the_host_learns_of_long_sleeps() {
    // The second pass owes the time of the first, however late it comes.
    let stall = slow_on(Arc::new(MemEnv::new()));
    pass(&stall).unwrap();
    let session = Session::default();
    let charge = stall.pass(&session).unwrap();
    assert_eq!(session.sleeps.load(Ordering::SeqCst), 1);
    assert_eq!(session.asleep.load(Ordering::SeqCst), 0);
    // An open gate has nothing to report.
    stall.set_pressure(Pressure::default());
    stall.settle(charge, 0);
    stall.pass(&session).unwrap();
    assert_eq!(session.sleeps.load(Ordering::SeqCst), 1);
}

#[test]
fn an_opened_gate_forgets_what_is_owed() {
    let stall = slow();
    pass(&stall).unwrap();
    stall.committed(1 << 30);
    stall.set_pressure(Pressure::default());
    pass(&stall).unwrap();
    assert_eq!(stall.stats().delays, 0);
    assert_eq!(stall.stats().rate, 0);
    stall.set_pressure(Pressure {
        memtables: 1.0,
        ..Pressure::default()
    });
    pass(&stall).unwrap();
    assert_eq!(stall.stats().delays, 0);
}

/// An open gate takes no lock: passes and commits go on while another thread holds its mutex.
#[test]
fn an_open_gate_takes_no_lock() {
    let stall = gate();
    let held = stall.state.lock();
    std::thread::scope(|scope| {
        scope
            .spawn(|| {
                let charge = pass(&stall).unwrap();
                stall.committed(1000);
                stall.settle(charge, 1000);
            })
            .join()
            .unwrap();
    });
    drop(held);
}

/// A stop that lasts while a file is damaged fails writers with the damage. The time runs anew
/// whenever L0 becomes shallower, and a stop without damage lasts.
#[test]
fn a_lasting_stop_over_damage_names_the_damage() {
    let env = MemEnv::new();
    let stall = StallGate::new(Arc::new(env.clone()));
    let damage = || Some(Error::corruption("a file", 0, "damaged"));
    let deep = |l0: f64| {
        stall.set_pressure(Pressure { l0, ..STOP });
        kind_of(stall.pass(&Session::killed()))
    };
    assert_eq!(deep(3.0), ErrorKind::Interrupted);
    env.advance_clock(STUCK_US);
    assert_eq!(deep(3.0), ErrorKind::Interrupted, "no damage");
    stall.set_damage(damage());
    assert_eq!(deep(2.5), ErrorKind::Interrupted, "shallower than before");
    env.advance_clock(STUCK_US / 2);
    assert_eq!(deep(2.5), ErrorKind::Interrupted);
    env.advance_clock(STUCK_US);
    assert_eq!(&deep(2.5), damage().unwrap().kind());
    assert_eq!(deep(2.4), ErrorKind::Interrupted, "shallower again");
    env.advance_clock(STUCK_US);
    stall.set_pressure(Pressure {
        memtables: 2.0,
        ..Pressure::default()
    });
    // Flushes make room for memtables, whatever is damaged.
    let passed = stall.pass(&Session::killed());
    assert_eq!(kind_of(passed), ErrorKind::Interrupted);
    env.advance_clock(2 * STUCK_US);
    stall.set_pressure(Pressure::default());
    pass(&stall).unwrap();
}

/// The time of a lasting stop begins anew whenever a compaction succeeds for which writers may
/// wait, and while one runs that has not failed before, nobody fails.
#[test]
fn nobody_fails_with_damage_while_compactions_progress() {
    let env = MemEnv::new();
    let stall = StallGate::new(Arc::new(env.clone()));
    stall.set_damage(Some(Error::corruption("a file", 0, "damaged")));
    let killed = || kind_of(stall.pass(&Session::killed()));
    let later = |micros: u64| {
        env.advance_clock(micros);
        stall.set_pressure(STOP);
        killed()
    };
    assert_eq!(later(0), ErrorKind::Interrupted);
    for _ in 0..5 {
        assert_eq!(later(STUCK_US / 4 * 3), ErrorKind::Interrupted);
        stall.progressed();
    }
    stall.hope_begins();
    assert_eq!(later(10 * STUCK_US), ErrorKind::Interrupted);
    // It has failed.
    stall.hope_ends();
    assert!(matches!(later(0), ErrorKind::Corruption { .. }));
    stall.progressed();
    assert_eq!(killed(), ErrorKind::Interrupted);
    assert!(matches!(
        later(STUCK_US + 100),
        ErrorKind::Corruption { .. }
    ));
}
