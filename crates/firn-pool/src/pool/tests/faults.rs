//! Nodes that die, hang and lie.

use super::*;
use crate::mem::Faults;
use crate::node::{DEADLINE_US_MAX, DEADLINE_US_MIN};

/// The simulated clock runs in steps.
const STEP_US: u64 = 60;

fn time_of_get(world: &World, n: u64) -> u64 {
    let start_us = world.network.now_us();
    world.get(n);
    world.network.now_us() - start_us
}

#[test]
fn a_killed_node_costs_nothing_and_comes_back() {
    let world = World::new(&[A]);
    world.put(0..100);
    assert_eq!(world.hits(0..100), 100);
    world.network.kill(A);
    let times: u64 = (0..100).map(|n| time_of_get(&world, n)).sum();
    assert!(times < DEADLINE_US_MIN, "{times} us");
    let stats = world.pool.stats();
    assert!(stats.nodes[0].breaker_open);
    let point = stats.nodes[0].classes[Class::Point.index()];
    assert_eq!(
        (point.broken, stats.skips[Class::Point.index()].open_breaker),
        (1, 99)
    );
    world.pass(20_000_000);
    assert!(world.pool.stats().nodes[0].breaker_open);
    world.network.start(A, 64 * MIB);
    world.pass(5_100_000);
    assert!(!world.pool.stats().nodes[0].breaker_open);
    world.put(0..100);
    assert_eq!(world.hits(0..100), 100);
    let log = world.log.lock().join("\n");
    assert_eq!(log.matches("is not asked for now").count(), 1, "{log}");
    assert_eq!(log.matches("is asked again").count(), 2, "{log}");
}

#[test]
fn a_stopped_node_costs_a_thread_one_deadline_and_comes_back() {
    let world = World::new(&[A]);
    world.put(0..100);
    assert_eq!(world.hits(0..100), 100);
    world.network.stop(A);
    let times: Vec<u64> = (0..100).map(|n| time_of_get(&world, n)).collect();
    assert!(
        times.iter().all(|us| *us <= DEADLINE_US_MAX + STEP_US),
        "{times:?}"
    );
    let late = times.iter().filter(|us| **us >= DEADLINE_US_MIN).count();
    let stats = world.pool.stats();
    assert_eq!(
        (late, stats.nodes[0].classes[Class::Point.index()].late),
        (1, 1)
    );
    assert_eq!(stats.skips[Class::Point.index()].silent, 99);
    world.pool.tick();
    assert!(
        world.pool.stats().nodes[0].breaker_open,
        "a probe was not answered"
    );
    world.network.resume(A);
    world.pass(6_000_000);
    assert!(!world.pool.stats().nodes[0].breaker_open);
    assert_eq!(world.hits(0..100), 100);
}

#[test]
fn three_late_answers_in_a_row_open_the_breaker() {
    let world = World::new(&[A]);
    world.put(0..10);
    assert_eq!(world.hits(0..10), 10);
    for turn in 1..=3 {
        assert!(!world.pool.stats().nodes[0].breaker_open);
        world.network.stop(A);
        assert!(world.get(turn).is_none());
        // The answer arrives and is drained; but none was in time.
        world.network.resume(A);
        world.network.advance(1000);
        world.pool.tick();
    }
    let stats = world.pool.stats();
    assert_eq!(
        (
            stats.nodes[0].classes[Class::Point.index()].late,
            stats.nodes[0].breaker_open
        ),
        (3, true)
    );
}

#[test]
fn a_hung_node_costs_a_batch_one_deadline() {
    let world = World::new(&[A, B]);
    world.put(0..400);
    world.network.stop(B);
    let blocks: Vec<_> = (0..400).map(wanted).collect();
    let start_us = world.network.now_us();
    let found = world
        .pool
        .get_many(&blocks, Class::BatchedKeys, &|_, _| true);
    let us = world.network.now_us() - start_us;
    assert!(us < DEADLINE_US_MAX + 2000, "{us} us");
    let hits = found.iter().flatten().count();
    assert!(hits >= 32, "{hits} of the other node in time");
    assert!(world.hits(0..400) > 150, "which is asked again at once");
}

/// A late answer is drained, and the connection serves again. Nobody gets it for another block.
#[test]
fn late_answers_are_drained_by_the_background() {
    let world = World::new(&[A]);
    world.put(0..50);
    for n in 0..50 {
        let faults = Faults {
            slow: 1000,
            slow_us: 3000,
            ..Faults::default()
        };
        world.network.set_faults(A, faults);
        world.get(n);
        world.network.set_faults(A, Faults::default());
        world.get((n + 1) % 50);
        world.pass(200_000);
        assert!(world.get(n).is_some(), "block {n}");
    }
    let point = world.pool.stats().nodes[0].classes[Class::Point.index()];
    assert!(point.late > 5, "{} were late", point.late);
    assert_eq!((point.broken, point.lying), (0, 0));
}

#[test]
fn an_answer_that_never_comes_costs_its_connection_only() {
    let world = World::new(&[A]);
    world.put(0..10);
    world.network.set_faults(
        A,
        Faults {
            cut: 1000,
            ..Faults::default()
        },
    );
    assert!(world.get(1).is_none());
    world.network.set_faults(A, Faults::default());
    world.pass(1_500_000);
    let stats = world.pool.stats();
    assert_eq!(
        (stats.nodes[0].breaker_opened, stats.nodes[0].breaker_open),
        (0, false)
    );
    assert_eq!(world.hits(0..10), 10);
}

#[test]
fn lies_are_counted_deleted_and_never_returned() {
    let lies = [
        Faults {
            flip: 1000,
            ..Faults::default()
        },
        Faults {
            other: 1000,
            ..Faults::default()
        },
        Faults {
            resize: 1000,
            ..Faults::default()
        },
    ];
    for faults in lies {
        let world = World::new(&[A]);
        world.put(0..100);
        world.network.set_faults(A, faults);
        let right = |n: u64| move |bytes: &[u8]| bytes == content(n);
        let get = |n: &u64| {
            world
                .pool
                .get(&wanted(*n), Class::Point, &right(*n))
                .is_some()
        };
        let hits = if faults.flip > 0 {
            (0..100).filter(get).count()
        } else {
            world.hits(0..100)
        };
        // Another name's value is the own one now and then, and so is another length.
        assert!(hits < 10, "{faults:?}");
        world.network.set_faults(A, Faults::default());
        if faults.resize > 0 {
            // A value that is longer than any of the batch breaks the connection.
            assert!(world.pool.stats().nodes[0].breaker_open);
            continue;
        }
        let lying = world.pool.stats().nodes[0].classes[Class::Point.index()].lying;
        assert_eq!(lying + hits as u64, 100, "{faults:?}");
        world.pool.tick();
        world.pool.shared.known.insert(name(50).short());
        assert_eq!(world.hits(0..100), hits, "{faults:?}");
    }
}

#[test]
fn tokens_tell_answers_apart() {
    for faults in [
        Faults {
            double: 1000,
            ..Faults::default()
        },
        Faults {
            garbage: 1000,
            ..Faults::default()
        },
    ] {
        let world = World::new(&[A]);
        world.put(0..10);
        world.network.set_faults(A, faults);
        world.get(1);
        let point = world.pool.stats().nodes[0].classes[Class::Point.index()];
        assert_eq!(
            (point.broken, point.late, point.gets),
            (u64::from(point.hits == 0), 0, 1),
            "{faults:?}"
        );
        assert!(world.pool.stats().nodes[0].breaker_open, "{faults:?}");
    }
}

/// A node whose first answer took as long as the longest deadline is asked, and found fast.
#[test]
fn a_node_that_was_slow_at_first_is_asked() {
    let faults = Faults {
        slow: 1000,
        slow_us: 19_000,
        ..Faults::default()
    };
    let slow_at_first = |seed| {
        let network = Arc::new(MemPool::new(seed));
        network.start(A, 64 * MIB);
        network.set_faults(A, faults);
        let options = Options {
            server: 1,
            ..Options::new(1)
        };
        let world = World::over(&network, options);
        world.pool.set_nodes(A).unwrap();
        world.pool.set_enabled(true);
        world.pool.tick();
        let node = &world.pool.stats().nodes[0];
        let is_slow = !node.breaker_open && node.latency_us >= DEADLINE_US_MAX as f64;
        is_slow.then_some(world)
    };
    let world = (0..20).find_map(slow_at_first).unwrap();
    world.network.set_faults(A, Faults::default());
    world.put(0..50);
    for n in 0..200 {
        world.get(n % 50);
        world.pass(1000);
    }
    let mean_us = world.pool.stats().nodes[0].latency_us;
    assert!(mean_us < 200.0, "{mean_us}");
    assert_eq!(world.hits(0..50), 50);
}
