use super::*;

const SECOND: u64 = 1_000_000;

fn silence() -> Error {
    Error::new(ErrorKind::Unreachable, "no answer")
}

/// A store that has not answered three requests in a row, at the time zero.
fn opened() -> Health {
    let health = Health::default();
    for at_us in 0..3 {
        assert_eq!(health.admit(at_us), Admission::Go);
        health.note(at_us, at_us, 0, Err(&silence()));
    }
    health
}

#[test]
fn three_silent_requests_open_it_and_one_probe_at_a_time_closes_it() {
    let health = opened();
    assert_eq!(health.state(10), HealthState::Down);
    assert_eq!(health.admit(10), Admission::Wait(SECOND + 2));
    // One is the probe, the others wait.
    assert_eq!(health.admit(SECOND + 2), Admission::Go);
    assert!(matches!(health.admit(SECOND + 2), Admission::Wait(_)));
    health.note(SECOND + 2, SECOND + 5, 0, Ok(()));
    assert_eq!(health.state(SECOND + 5), HealthState::Up);
    assert_eq!(health.admit(SECOND + 5), Admission::Go);
    assert_eq!(health.stats(SECOND + 5).opened, 1);
}

#[test]
fn failed_probes_double_the_pause_up_to_a_limit() {
    let health = opened();
    let mut now_us = 2;
    let mut pauses = Vec::new();
    for _ in 0..7 {
        let Admission::Wait(at_us) = health.admit(now_us) else {
            panic!("it is open");
        };
        pauses.push((at_us - now_us) / SECOND);
        now_us = at_us;
        assert_eq!(health.admit(now_us), Admission::Go);
        health.note(now_us, now_us, 0, Err(&silence()));
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
}

#[test]
fn requests_that_were_under_way_together_count_once() {
    let health = Health::default();
    for _ in 0..10 {
        health.note(0, 5 * SECOND, 0, Err(&silence()));
    }
    assert_ne!(health.state(5 * SECOND), HealthState::Down);
}

/// Eight requests are under way when the breaker opens, and end one after the other.
#[test]
fn requests_that_were_sent_before_it_opened_are_no_probes() {
    let health = opened();
    for later in 1..=8 {
        health.note(1, 1 + later, 0, Err(&silence()));
    }
    assert_eq!(health.admit(10), Admission::Wait(SECOND + 2));
}

#[test]
fn answers_of_any_kind_show_that_the_store_lives() {
    for kind in [
        ErrorKind::Absent,
        ErrorKind::Refused,
        ErrorKind::Throttled,
        ErrorKind::Damaged,
    ] {
        let health = Health::default();
        for at_us in 0..10 {
            health.note(at_us, at_us, 0, Err(&silence()));
            health.note(at_us, at_us, 0, Err(&silence()));
            health.note(at_us, at_us, 0, Err(&Error::new(kind, "answer")));
        }
        assert_ne!(health.state(10), HealthState::Down, "{kind:?}");
        assert_eq!(health.stats(10).errors[kind as usize], 10);
    }
}

#[test]
fn late_answers_and_throttling_make_it_slow() {
    let health = Health::default();
    for _ in 0..20 {
        health.note(0, 3 * SECOND, 0, Ok(()));
    }
    assert_eq!(health.state(0), HealthState::Slow);
    // 16 MiB may take longer.
    let health = Health::default();
    for _ in 0..20 {
        health.note(0, 3 * SECOND, 16 << 20, Ok(()));
    }
    assert_eq!(health.state(0), HealthState::Up);
    health.note(0, 1, 0, Err(&Error::new(ErrorKind::Throttled, "slow down")));
    assert_eq!(health.state(1), HealthState::Slow);
    assert_eq!(health.state(20 * SECOND), HealthState::Up);
}

#[test]
fn the_last_error_is_one_that_says_something() {
    let health = Health::default();
    health.note(0, 1, 0, Err(&Error::new(ErrorKind::Refused, "no key")));
    health.note(
        0,
        1,
        0,
        Err(&Error::new(ErrorKind::Absent, "no such object")),
    );
    assert_eq!(health.stats(1).last_error.as_deref(), Some("no key"));
}
