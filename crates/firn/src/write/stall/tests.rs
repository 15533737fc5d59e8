use super::policy::StallReason;
use super::*;
use crate::env::PosixEnv;

const STOP: Pressure = Pressure {
    memtables: 0.0,
    l0: 2.0,
    debt: 0.0,
    space: 0.0,
};

fn gate() -> StallGate {
    StallGate::new(Arc::new(PosixEnv::new()))
}

fn full() -> Error {
    Error::new(ErrorKind::NoSpace, "no room for a compaction")
}

#[test]
fn stopped_writers_fail_with_the_work_they_wait_for() {
    let stall = gate();
    stall.set_pressure(STOP);
    stall.set_failure(Some(full()));
    let failed = stall.pass(&|| false).unwrap_err();
    assert_eq!(*failed.kind(), ErrorKind::NoSpace);
    stall.set_failure(None);
    let interrupted = stall.pass(&|| true).unwrap_err();
    assert_eq!(*interrupted.kind(), ErrorKind::Interrupted);
    let stats = stall.stats();
    assert_eq!(
        (stats.stops, stats.by_reason[StallReason::L0 as usize].0),
        (2, 2)
    );
}

#[test]
fn a_failure_without_pressure_stops_nobody() {
    let stall = gate();
    stall.set_failure(Some(full()));
    stall.pass(&|| false).unwrap();
    stall.set_pressure(STOP);
    stall.release();
    stall.pass(&|| false).unwrap();
    stall.set_pressure(STOP);
    stall.pass(&|| false).unwrap();
    assert_eq!(stall.stats().stops, 0);
}

#[test]
fn damage_is_no_reason_to_refuse_writers_that_wait_for_a_flush() {
    let stall = gate();
    stall.set_damage(Error::corruption("000007.sst", 0, "damaged"));
    stall.set_pressure(Pressure {
        memtables: 2.0,
        ..STOP
    });
    let interrupted = stall.pass(&|| true).unwrap_err();
    assert_eq!(*interrupted.kind(), ErrorKind::Interrupted);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| stall.pass(&|| false));
        stall.set_pressure(Pressure::default());
        waiting.join().unwrap().unwrap();
    });
    stall.set_pressure(STOP);
    assert!(stall.pass(&|| false).unwrap_err().is_corruption());
}

#[test]
fn who_waits_hears_of_a_failure() {
    let stall = gate();
    stall.set_pressure(STOP);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| stall.pass(&|| false));
        stall.set_failure(Some(full()));
        let failed = waiting.join().unwrap().unwrap_err();
        assert_eq!(*failed.kind(), ErrorKind::NoSpace);
    });
}

/// A gate that lets a megabyte a second through.
fn slow() -> StallGate {
    let stall = gate();
    stall.committed(1 << 20);
    stall.flushed(1 << 20, 1_000_000);
    stall.set_pressure(Pressure {
        memtables: 1.0,
        ..Pressure::default()
    });
    assert_eq!(stall.stats().rate, 1 << 20);
    stall
}

/// Lets a writer pass that then commits a gigabyte, so that the next one waits for minutes.
fn spend(stall: &StallGate) {
    stall.pass(&|| false).unwrap();
    stall.committed(1 << 30);
    stall.pass(&|| false).unwrap();
    assert_eq!(
        stall.stats().delays,
        0,
        "the bytes count from the next pass on"
    );
}

fn wait_for_line(stall: &StallGate, writers: usize) {
    while stall.state.lock().line.len() != writers {
        std::thread::yield_now();
    }
}

#[test]
fn writers_wait_for_what_was_committed() {
    let stall = slow();
    spend(&stall);
    let killed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| stall.pass(&|| killed.load(Ordering::Relaxed)));
        wait_for_line(&stall, 1);
        let second = scope.spawn(|| stall.pass(&|| false));
        wait_for_line(&stall, 2);
        killed.store(true, Ordering::Relaxed);
        let interrupted = first.join().unwrap().unwrap_err();
        assert_eq!(*interrupted.kind(), ErrorKind::Interrupted);
        assert_eq!(stall.state.lock().line.len(), 1);
        stall.set_pressure(Pressure::default());
        second.join().unwrap().unwrap();
    });
    let stats = stall.stats();
    assert_eq!((stats.delays, stats.stops), (2, 0));
    assert_eq!(stats.by_reason[StallReason::Memtables as usize].0, 2);
    assert!(stats.longest_us <= stats.delay_us && stats.longest_us > 0);
}

#[test]
fn whoever_waits_behind_others_passes_with_them() {
    const WRITERS: usize = 100;
    let stall = slow();
    spend(&stall);
    std::thread::scope(|scope| {
        let pass = || stall.pass(&|| false);
        let writers: Vec<_> = (0..WRITERS).map(|_| scope.spawn(pass)).collect();
        wait_for_line(&stall, WRITERS);
        // A stop lets nobody pass, and its failure fails all of them.
        stall.set_pressure(STOP);
        wait_for_line(&stall, WRITERS);
        stall.set_failure(Some(full()));
        for writer in writers {
            let failed = writer.join().unwrap().unwrap_err();
            assert_eq!(*failed.kind(), ErrorKind::NoSpace);
        }
        stall.set_failure(None);
        let writers: Vec<_> = (0..WRITERS).map(|_| scope.spawn(pass)).collect();
        wait_for_line(&stall, WRITERS);
        stall.set_pressure(Pressure::default());
        writers.into_iter().for_each(|w| w.join().unwrap().unwrap());
    });
    assert!(stall.state.lock().line.is_empty());
}

/// With a rate, the first of the line wakes by its timer and hands the timer on.
#[test]
fn a_line_moves_on_by_itself() {
    const WRITERS: usize = 50;
    let stall = slow();
    stall.pass(&|| false).unwrap();
    // Some milliseconds for each pass.
    stall.committed(4096 * 256);
    stall.pass(&|| false).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..WRITERS {
            scope.spawn(|| stall.pass(&|| false).unwrap());
        }
    });
    assert!(stall.state.lock().line.is_empty());
    assert!(stall.stats().delays > 0);
}

#[test]
fn an_opened_gate_forgets_what_is_owed() {
    let stall = slow();
    spend(&stall);
    stall.set_pressure(Pressure::default());
    stall.pass(&|| false).unwrap();
    assert_eq!(stall.stats().delays, 0);
    assert_eq!(stall.stats().rate, 0);
}
