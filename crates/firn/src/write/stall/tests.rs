use super::delayed_write_rate::StallReason;
use super::*;
use crate::env::PosixEnv;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

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

#[test]
fn writers_pay_for_what_was_committed() {
    let stall = slow();
    stall.pass(&|| false).unwrap();
    assert_eq!(stall.stats().delays, 0, "nothing was committed");
    // After a commit of a gigabyte the next statement waits, but no longer than the longest delay.
    stall.committed(1 << 30);
    stall.pass(&|| false).unwrap();
    let stats = stall.stats();
    assert_eq!(stats.delays, 1);
    assert_eq!(stats.by_reason[StallReason::Memtables as usize].0, 1);
    assert!(stats.delay_us >= DELAY_US_MAX / 2, "{stats:?}");
    assert_eq!(stats.longest_us, stats.delay_us);
}

#[test]
fn an_opened_gate_forgets_what_is_owed() {
    let stall = slow();
    stall.committed(1 << 30);
    stall.set_pressure(Pressure::default());
    stall.pass(&|| false).unwrap();
    assert_eq!(stall.stats().delays, 0);
    assert_eq!(stall.stats().rate, 0);
}

/// Simulates writers on a virtual clock: each looks at the gate, then sleeps or commits. Returns
/// the number of commits in one second.
fn passed_in_a_second(rng: &mut StdRng, writers: usize, cost_ns: u64, late_us: u64) -> u64 {
    let mut wakes: Vec<u64> = (0..writers as u64).collect();
    let (mut paid, mut passed) = (0, 0);
    let begin = 1_000_000_000;
    loop {
        let (writer, at) = wakes.iter().enumerate().min_by_key(|(_, at)| **at).unwrap();
        let now = begin + *at;
        if *at >= 1_000_000_000 {
            return passed;
        }
        wakes[writer] += if paid <= now {
            paid = paid_at(paid, now, cost_ns);
            passed += 1;
            5_000
        } else {
            (STEP_US + rng.random_range(0..late_us)) * 1000
        };
    }
}

#[test]
fn late_sleepers_lose_nothing_of_the_rate() {
    for seed in 0..8 {
        println!("seed {seed}");
        let mut rng = StdRng::seed_from_u64(seed);
        for writers in [1, 4, 16] {
            for late_us in [10, 100, 4000] {
                // At this rate the gate passes 100,000 commits a second, as many as a single writer
                // could make.
                let passed = passed_in_a_second(&mut rng, writers, 10_000, late_us);
                let room = 85_000..=100_000 + CREDIT_US / 10 + writers as u64;
                assert!(room.contains(&passed), "{writers} {late_us}: {passed}");
            }
        }
    }
}
