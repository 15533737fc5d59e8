use super::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::VecDeque;

const SECOND_NS: u64 = 1_000_000_000;

/// Bytes that a simulation committed, by second, and the passes in the order of the writers.
struct Run {
    bytes: Vec<u64>,
    /// Longest wait of a writer, nanoseconds.
    wait_ns_max: u64,
}

/// `writers` stand in a line on a virtual clock, commit `size` bytes after a while, and come again.
/// The first of the line wakes up to `late_us` too late.
fn simulate(
    rng: &mut StdRng,
    writers: usize,
    rate: u64,
    late_us: u64,
    seconds: u64,
    mut size: impl FnMut(&mut StdRng) -> u64,
) -> Run {
    let mut pace = Pace::default();
    let mut now = SECOND_NS;
    pace.begin(now, 0);
    let mut line: VecDeque<u64> = (0..writers).map(|_| now).collect();
    // Commits under way: when they end, and their bytes.
    let mut running: VecDeque<(u64, u64)> = VecDeque::new();
    let mut committed = 0;
    let mut run = Run {
        bytes: vec![0; seconds as usize],
        wait_ns_max: 0,
    };
    let end = now + seconds * SECOND_NS;
    while now < end {
        while running.front().is_some_and(|(ends, _)| *ends <= now) {
            let (ended, bytes) = running.pop_front().unwrap();
            committed += bytes;
            run.bytes[((ended - SECOND_NS) / SECOND_NS) as usize] += bytes;
            line.push_back(now);
        }
        while let Some(came) = line.front()
            && pace.next_ns(rate) <= now
        {
            run.wait_ns_max = run.wait_ns_max.max(now - came);
            line.pop_front();
            pace.pass(now, rate, committed);
            running.push_back((now + 100_000, size(rng)));
        }
        let turn = (!line.is_empty())
            .then(|| pace.next_ns(rate).max(now) + rng.random_range(0..=late_us) * 1000);
        let ends = running.front().map(|(ends, _)| *ends);
        now = match (turn, ends) {
            (Some(turn), Some(ends)) => turn.min(ends),
            (turn, ends) => turn.or(ends).expect("a writer waits or commits"),
        }
        .max(now + 1);
    }
    run
}

/// Four thousand writers pass at the rate, as one does, however late they wake.
#[test]
fn the_rate_holds_for_any_number_of_writers() {
    for seed in 0..4 {
        println!("seed {seed}");
        let mut rng = StdRng::seed_from_u64(seed);
        for writers in [4, 64, 4000] {
            for late_us in [0, 100, 4000] {
                let rate = 20 << 20;
                let size = |rng: &mut StdRng| rng.random_range(500..1500);
                let run = simulate(&mut rng, writers, rate, late_us, 8, size);
                // In the first second the mean is not known, so all writers pass.
                for bytes in &run.bytes[1..7] {
                    let share = *bytes as f64 / rate as f64;
                    let expected = if writers == 4 { 0.4..1.1 } else { 0.9..1.1 };
                    assert!(expected.contains(&share), "{writers} {late_us}: {share}");
                }
                // Each writer passes once a round of the line.
                let round_ns = writers as u64 * 1000 * SECOND_NS / rate;
                assert!(
                    run.wait_ns_max < 2 * round_ns + 10 * CREDIT_NS,
                    "{writers} {late_us}: {}",
                    run.wait_ns_max
                );
            }
        }
    }
}

/// A transaction of 64 MiB among small ones: all writers pay for it, and the rate holds over time.
#[test]
fn a_large_transaction_is_paid_for_by_many_passes() {
    let mut rng = StdRng::seed_from_u64(7);
    let rate = 20 << 20;
    let mut passes = 0;
    let size = |_: &mut StdRng| {
        passes += 1;
        if passes == 20_000 { 64 << 20 } else { 1000 }
    };
    let run = simulate(&mut rng, 256, rate, 100, 12, size);
    let share = run.bytes.iter().sum::<u64>() as f64 / (12 * rate) as f64;
    assert!((0.9..1.15).contains(&share), "{share}");
    // Nobody waits for the 3.2 seconds that the transaction costs.
    assert!(run.wait_ns_max < 5 * SECOND_NS, "{}", run.wait_ns_max);
}

#[test]
fn what_was_committed_without_a_limit_is_not_charged() {
    let mut pace = Pace::default();
    pace.begin(SECOND_NS, 1 << 40);
    pace.pass(SECOND_NS, 1 << 20, 1 << 40);
    assert_eq!(pace.next_ns(1 << 20), SECOND_NS);
    pace.pass(SECOND_NS, 1 << 20, (1 << 40) + (1 << 20));
    assert!(pace.next_ns(1 << 20) > SECOND_NS + SECOND_NS / 4);
}
