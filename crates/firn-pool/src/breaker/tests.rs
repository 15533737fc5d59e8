use super::*;

fn closed() -> Breaker {
    let breaker = Breaker::new();
    breaker.close(0);
    breaker
}

#[test]
fn it_begins_open_with_a_probe_due() {
    let breaker = Breaker::new();
    assert!(!breaker.is_closed());
    assert_eq!(breaker.probe_at_us(), Some(0));
    breaker.close(5);
    assert!(breaker.is_closed());
    assert_eq!(breaker.probe_at_us(), None);
}

#[test]
fn three_late_answers_in_a_row_open_it() {
    let breaker = closed();
    assert!(!breaker.on_late(1, 2) && !breaker.on_late(3, 4));
    breaker.on_time();
    assert!(!breaker.on_late(5, 6) && !breaker.on_late(7, 8) && breaker.is_closed());
    assert!(breaker.on_late(9, 10) && !breaker.is_closed());
    assert!(!breaker.on_late(11, 12), "it opens once");
    assert_eq!(breaker.opened(), 1);
}

#[test]
fn requests_that_were_under_way_together_are_late_once() {
    let breaker = closed();
    for sent_us in 1..=50 {
        assert!(!breaker.on_late(sent_us, 100 + sent_us));
    }
    assert!(breaker.is_closed());
    assert!(!breaker.on_late(200, 300) && breaker.on_late(301, 400));
}

#[test]
fn lateness_alone_does_not_lengthen_the_pause() {
    let breaker = closed();
    for now_us in (0..10_000_000).step_by(200_000) {
        assert!(breaker.on_silent(now_us));
        assert_eq!(breaker.probe_at_us(), Some(now_us + OPEN_US_MIN));
        breaker.close(now_us + OPEN_US_MIN);
    }
}

#[test]
fn the_pause_doubles_up_to_its_longest_and_calm_shortens_it() {
    let breaker = closed();
    assert!(breaker.on_broken(10_000_000));
    let mut now = 10_000_000;
    let mut pauses = Vec::new();
    for _ in 0..9 {
        let at = breaker.probe_at_us().unwrap();
        pauses.push((at - now) / 1000);
        now = at;
        breaker.probe_failed(now);
    }
    assert_eq!(pauses, [100, 100, 200, 400, 800, 1600, 3200, 5000, 5000]);
    breaker.close(now);
    assert!(breaker.on_broken(now + 1));
    assert_eq!(
        breaker.probe_at_us(),
        Some(now + 1 + OPEN_US_MAX),
        "it was closed only briefly"
    );
    breaker.close(now);
    now += 60_000_000;
    assert!(breaker.on_broken(now));
    assert_eq!(breaker.probe_at_us(), Some(now + OPEN_US_MIN));
}
