use super::*;
use crate::mem::{Faults, MemObjects, VirtualClock};

const SECOND: u64 = 1_000_000;

struct Bench {
    clock: Arc<VirtualClock>,
    objects: Arc<MemObjects>,
    store: Retrying,
}

fn bench(seed: u64) -> Bench {
    let clock = Arc::new(VirtualClock::new(seed));
    let objects = Arc::new(MemObjects::new(seed, clock.clone()));
    let store = Retrying::new(objects.clone(), clock.clone(), Deadlines::default());
    Bench {
        clock,
        objects,
        store,
    }
}

#[test]
fn requests_succeed_in_spite_of_faults_that_pass() {
    for seed in 0..50 {
        let Bench { objects, store, .. } = bench(seed);
        objects.set_faults(Faults {
            flip_read: 0,
            flip_sent: 5,
            timeout_us: SECOND,
            ..Faults::all(60)
        });
        for i in 0..20_u8 {
            let name = format!("a/{i}");
            store.put(&name, vec![i; 100].into()).unwrap();
            assert_eq!(store.get(&name).unwrap(), vec![i; 100], "seed {seed}");
            assert_eq!(store.get_range(&name, 10..20).unwrap(), vec![i; 10]);
            assert_eq!(store.head(&name).unwrap().bytes, 100);
        }
    }
}

#[test]
fn errors_that_do_not_pass_are_not_tried_again() {
    let Bench { objects, store, .. } = bench(1);
    assert_eq!(store.get("absent").unwrap_err().kind(), ErrorKind::Absent);
    assert_eq!(store.get("../x").unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(objects.traffic().0, 1);
}

#[test]
fn damaged_answers_are_asked_for_three_times() {
    let Bench { objects, store, .. } = bench(1);
    store.put("a", vec![1; 10].into()).unwrap();
    let before = objects.traffic().0;
    let error = store.get_range("a", 5..50).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged);
    assert_eq!(objects.traffic().0 - before, 3);
}

#[test]
fn an_outage_fails_requests_at_their_deadline_and_then_at_once() {
    let Bench {
        clock,
        objects,
        store,
    } = bench(1);
    objects.set_faults(Faults {
        timeout_us: 5 * SECOND,
        ..Faults::default()
    });
    store.put("a", vec![1].into()).unwrap();
    objects.go_out(3600 * SECOND);
    let start_us = clock.now_us();
    assert_eq!(store.get("a").unwrap_err().kind(), ErrorKind::Unreachable);
    let taken_us = clock.now_us() - start_us;
    assert!(taken_us <= 35 * SECOND, "{taken_us}");
    assert_eq!(store.health(), HealthState::Down);
    // A request with less time than the pause does not wait.
    let hasty = store.with_deadlines(Deadlines {
        read_us: SECOND / 10,
        write_us: SECOND / 10,
    });
    let before = (objects.traffic().0, clock.now_us());
    let error = hasty.get("a").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(
        error
            .to_string()
            .contains("down; its last error: no answer"),
        "{error}"
    );
    assert_eq!((objects.traffic().0, clock.now_us()), before);
}

#[test]
fn requests_wait_through_a_short_outage() {
    let Bench {
        clock,
        objects,
        store,
    } = bench(1);
    store.put("a", vec![1].into()).unwrap();
    objects.go_out(10 * SECOND);
    assert_eq!(store.get("a").unwrap(), vec![1]);
    assert!(clock.now_us() >= 10 * SECOND);
    assert_eq!(store.health(), HealthState::Up);
    assert!(store.stats().opened > 0);
}

#[test]
fn pauses_grow_and_differ() {
    let mut spans = Vec::new();
    for seed in 0..8 {
        let Bench {
            clock,
            objects,
            store,
        } = bench(seed);
        objects.set_faults(Faults {
            throttled: 1000,
            ..Faults::default()
        });
        assert_eq!(store.get("a").unwrap_err().kind(), ErrorKind::Throttled);
        let requests = objects.traffic().0;
        // Pauses of 0.125 to 5 s within 30 s.
        assert!((7..25).contains(&requests), "{requests}");
        assert!(clock.now_us() < 30 * SECOND);
        spans.push(clock.now_us());
    }
    spans.dedup();
    assert_eq!(spans.len(), 8, "callers come back at different times");
}

/// Of all who create a name, those are told that they have won whose bytes are in the store, and
/// nobody else, whatever answers were lost.
#[test]
fn a_create_tells_the_truth_when_answers_are_lost() {
    let mut lost = 0;
    for seed in 0..400 {
        let Bench {
            clock,
            objects,
            store,
        } = bench(seed);
        objects.set_faults(Faults {
            flip_read: 0,
            flip_sent: 5,
            timeout_us: SECOND / 2,
            ..Faults::all(120)
        });
        let other = Retrying::new(objects.clone(), clock, Deadlines::default());
        for round in 0..5 {
            let name = format!("slot/{round}");
            for (client, store) in [&store, &other].into_iter().enumerate() {
                let mine = format!("written by {client}");
                let told = store.put_new(&name, mine.clone().into()).unwrap();
                let is_mine = objects.contents()[&name] == mine;
                assert_eq!(
                    told == PutNew::Created,
                    is_mine,
                    "seed {seed}, round {round}"
                );
                assert_eq!(is_mine, client == 0, "the first one wins: seed {seed}");
            }
        }
        lost += store.stats().errors[ErrorKind::Unreachable as usize];
    }
    assert!(lost > 500, "{lost}");
}

/// Somebody's object is in the way of a create, and leaves before it is compared.
#[test]
fn a_create_is_never_absent() {
    let mut failed = 0;
    for seed in 0..300 {
        let Bench { objects, store, .. } = bench(seed);
        objects.put("a", Bytes::from_static(b"theirs")).unwrap();
        objects.set_faults(Faults {
            late: 1000,
            late_us: 2 * SECOND,
            ..Faults::default()
        });
        objects.delete("a").unwrap_err();
        objects.set_faults(Faults {
            lost: 500,
            latency_us: SECOND / 2,
            timeout_us: SECOND / 4,
            ..Faults::default()
        });
        if let Err(error) = store.put_new("a", Bytes::from_static(b"mine")) {
            assert_eq!(error.kind(), ErrorKind::Unreachable, "seed {seed}: {error}");
            failed += 1;
        }
    }
    assert!(failed > 0);
}

/// A query that needs a hundred reads must not wait for each.
#[test]
fn reads_that_begin_in_an_outage_fail_at_once() {
    let Bench {
        clock,
        objects,
        store,
    } = bench(1);
    objects.set_faults(Faults {
        timeout_us: 3 * SECOND,
        ..Faults::default()
    });
    store.put("a", vec![1].into()).unwrap();
    objects.go_out(3600 * SECOND);
    assert!(store.get("a").is_err());
    let start_us = clock.now_us();
    for _ in 0..100 {
        assert_eq!(store.get("a").unwrap_err().kind(), ErrorKind::Unreachable);
    }
    // None, but that one is a probe now and then.
    assert!(clock.now_us() - start_us <= 6 * SECOND);
    clock.sleep_us(3600 * SECOND);
    assert_eq!(store.get("a").unwrap(), vec![1]);
    assert_eq!(store.health(), HealthState::Up);
}

#[test]
fn a_closed_store_ends_requests_that_wait() {
    let Bench { objects, store, .. } = bench(1);
    store.put("a", vec![1].into()).unwrap();
    store.close();
    let before = objects.traffic().0;
    assert!(store.get("a").unwrap_err().to_string().contains("closed"));
    assert!(store.put("b", vec![2].into()).is_err());
    assert_eq!(objects.traffic().0, before);
}
