use super::*;

const STOP: Pressure = Pressure {
    frozen_share: 0.0,
    l0_share: 1.0,
};

fn full() -> Error {
    Error::new(ErrorKind::NoSpace, "no room for a compaction")
}

#[test]
fn stopped_writers_fail_with_the_work_they_wait_for() {
    let stall = Stall::new();
    stall.set_pressure(STOP);
    stall.set_failure(Some(full()));
    let failed = stall.pass(&|| false).unwrap_err();
    assert_eq!(*failed.kind(), ErrorKind::NoSpace);
    stall.set_failure(None);
    let interrupted = stall.pass(&|| true).unwrap_err();
    assert_eq!(*interrupted.kind(), ErrorKind::Interrupted);
}

#[test]
fn a_failure_without_pressure_stops_nobody() {
    let stall = Stall::new();
    stall.set_failure(Some(full()));
    stall.pass(&|| false).unwrap();
    stall.set_pressure(STOP);
    stall.release();
    stall.pass(&|| false).unwrap();
}

#[test]
fn who_waits_hears_of_a_failure() {
    let stall = Stall::new();
    stall.set_pressure(STOP);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| stall.pass(&|| false));
        stall.set_failure(Some(full()));
        let failed = waiting.join().unwrap().unwrap_err();
        assert_eq!(*failed.kind(), ErrorKind::NoSpace);
    });
}
