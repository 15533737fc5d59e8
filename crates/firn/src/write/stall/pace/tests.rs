use super::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, VecDeque};

const SECOND_US: u64 = 1_000_000;
const MIB: u64 = 1 << 20;

/// A bucket at `rate` bytes a second from time 0 on, for commits of `typical` bytes.
fn pace(rate: u64, typical: f64) -> Pace {
    let mut pace = Pace::default();
    pace.begin(0, Some(typical));
    pace.set_rate(0, rate);
    pace
}

/// Times at which `count` tickets go that ask now.
fn times(pace: &mut Pace, count: usize) -> Vec<u64> {
    let places: Vec<Place> = (0..count).map(|_| pace.place()).collect();
    let times = places
        .iter()
        .map(|place| pace.due_us(place.position, place.position));
    times.map(Option::unwrap).collect()
}

#[test]
fn the_first_passes_of_a_burst_are_spaced() {
    let mut pace = pace(1_000_000, 500.0);
    assert_eq!(times(&mut pace, 4), [0, 500, 1000, 1500]);
    // They have written as much as they were charged: nothing changes for the next ones.
    for _ in 0..4 {
        pace.committed(500);
        pace.settle(500, 1, 500);
    }
    assert_eq!(times(&mut pace, 2), [2000, 2500]);
    assert_eq!(pace.owed(), 0.0);
}

#[test]
fn the_first_passes_that_write_five_times_less_give_back_four_fifths() {
    let mut pace = pace(1_000_000, 1000.0);
    assert_eq!(times(&mut pace, 4), [0, 1000, 2000, 3000]);
    for _ in 0..4 {
        pace.committed(200);
        pace.settle(1000, 1, 200);
    }
    // 4000 bytes were charged and 800 written: the next ticket goes after 800 bytes.
    assert_eq!(pace.due_us(4000.0, 4000.0), Some(800));
    // One that is far behind it will probably go a little sooner, because of further refunds.
    assert!((5300..5400).contains(&pace.due_us(4000.0, 9000.0).unwrap()));
    // One that is near counts on none, because the ticket before it must commit first.
    assert_eq!(pace.due_us(4000.0, 5000.0), Some(1800));
    // None that is not due sleeps for no time at all, whatever the refunds before it.
    for _ in 0..1000 {
        pace.committed(100);
        pace.settle(1000, 1, 100);
    }
    let place = pace.place();
    pace.granted = place.position - 500.0;
    assert_eq!(
        pace.due_us(place.position - 10_000.0, place.position),
        Some(500)
    );
}

/// They hold up those that have come when one thousand bytes were typical.
#[test]
fn the_first_passes_that_write_five_times_more_hold_up_the_next() {
    let mut pace = pace(1_000_000, 1000.0);
    assert_eq!(times(&mut pace, 4), [0, 1000, 2000, 3000]);
    for _ in 0..3 {
        pace.committed(5000);
        pace.settle(1000, 1, 5000);
    }
    assert_eq!(pace.owed(), 0.0);
    assert!(pace.typical() > 1300.0);
    pace.advance(14_800);
    assert!(!pace.is_due(3000.0));
    pace.advance(15_000);
    assert!(pace.is_due(3000.0));
}

/// Bytes beyond what may be typical are owed.
#[test]
fn the_first_pass_that_writes_a_hundred_times_more_is_owed() {
    let mut pace = pace(1_000_000, 1000.0);
    times(&mut pace, 1);
    pace.committed(100_000);
    pace.settle(1000, 1, 100_000);
    assert_eq!(pace.owed(), 92_000.0);
    // Later tickets pay it within some seconds.
    let mut passes = 0;
    while pace.owed() > 500.0 && passes < 20_000 {
        let place = pace.place();
        pace.advance(pace.due_us(place.position, place.position).unwrap());
        pace.committed(1000);
        pace.settle(place.charge, 1, 1000);
        passes += 1;
    }
    assert!((10..10_000).contains(&passes), "{passes}");
    // All that was committed took its time at the rate.
    let place = pace.place();
    let end = pace.due_us(place.position, place.position).unwrap() as f64;
    let committed = 100_000.0 + 1000.0 * f64::from(passes);
    assert!(
        (0.95..1.05).contains(&(committed / end)),
        "{committed} {end}"
    );
}

#[test]
fn nothing_goes_while_the_rate_is_0_and_nothing_is_lost() {
    let mut pace = pace(1_000_000, 1000.0);
    times(&mut pace, 2);
    pace.set_rate(500, 0);
    assert_eq!(pace.due_us(1000.0, 1000.0), None);
    pace.advance(10 * SECOND_US);
    assert!(!pace.is_due(1000.0));
    pace.set_rate(10 * SECOND_US, 2_000_000);
    assert_eq!(pace.due_us(1000.0, 1000.0), Some(10 * SECOND_US + 250));
}

#[test]
fn unused_rate_is_valid_for_a_while_and_pays_debt() {
    let mut pace = pace(1_000_000, 1000.0);
    pace.committed(50_000);
    // After half a second everything is paid, and 20 ms of the rate may be used up at once.
    pace.advance(SECOND_US / 2);
    assert_eq!(pace.owed(), 0.0);
    let due = (0..100).filter(|_| {
        let place = pace.place();
        pace.is_due(place.position)
    });
    assert_eq!(due.count(), 21);
}

#[test]
fn a_new_limit_knows_nothing_of_an_earlier_one() {
    let mut pace = pace(1_000_000, 1000.0);
    pace.committed(1 << 40);
    times(&mut pace, 10);
    pace.begin(SECOND_US, None);
    pace.set_rate(SECOND_US, 1_000_000);
    assert_eq!((pace.owed(), pace.typical()), (0.0, 1000.0));
    assert_eq!(times(&mut pace, 2), [SECOND_US, SECOND_US + 1000]);
}

/// One pass is not charged for more than its own size and a second of debt, whatever is owed.
#[test]
fn one_pass_pays_a_limited_share_of_the_debt() {
    let mut pace = pace(MIB, 1000.0);
    pace.committed(1 << 40);
    let first = pace.place();
    let second = pace.place();
    let charged = second.position - first.position;
    assert!(
        (1000.0..=1000.0 + MIB as f64).contains(&charged),
        "{charged}"
    );
    // A ticket that is given back has paid nothing.
    let owed = pace.owed();
    let unused = pace.give_up(second);
    assert_eq!(pace.owed() + unused, owed + unused + second.extra);
}

/// A run of writers at full speed.
struct Run {
    /// Passes and committed bytes in each second.
    passes: Vec<u64>,
    bytes: Vec<u64>,
    /// Longest wait of a writer, microseconds.
    wait_us_max: u64,
}

/// `writers` commit `size` bytes some time after each pass, and come again. A writer wakes up to
/// `late_us` too late.
fn simulate(
    rng: &mut StdRng,
    writers: usize,
    pace: &mut Pace,
    late_us: u64,
    seconds: u64,
    mut size: impl FnMut(&mut StdRng) -> u64,
) -> Run {
    let mut now = 0;
    let mut line: VecDeque<(u64, Place)> = (0..writers).map(|_| (0, pace.place())).collect();
    // Commits under way, by the time when they end: their charges and bytes.
    let mut running: BTreeMap<(u64, u64), (u64, u64)> = BTreeMap::new();
    let mut begun = 0;
    let mut run = Run {
        passes: vec![0; seconds as usize],
        bytes: vec![0; seconds as usize],
        wait_us_max: 0,
    };
    loop {
        let turn = line.front().map(|(_, place)| {
            pace.due_us(place.position, place.position)
                .unwrap()
                .max(now)
                + rng.random_range(0..=late_us)
        });
        let ends = running.keys().next().map(|(ends, _)| *ends);
        now = turn.into_iter().chain(ends).min().unwrap().max(now);
        if now >= seconds * SECOND_US {
            return run;
        }
        pace.advance(now);
        let second = (now / SECOND_US) as usize;
        while let Some(entry) = running.first_entry().filter(|e| e.key().0 <= now) {
            let (charge, bytes) = entry.remove();
            run.bytes[second] += bytes;
            pace.committed(bytes);
            pace.settle(charge, 1, bytes);
            line.push_back((now, pace.place()));
        }
        while let Some((came, place)) = line.front().copied()
            && pace.is_due(place.position)
        {
            line.pop_front();
            run.wait_us_max = run.wait_us_max.max(now - came);
            run.passes[second] += 1;
            begun += 1;
            running.insert((now + 100, begun), (place.charge, size(rng)));
        }
    }
}

/// Four thousand writers pass at the rate, as one does, however late they wake and whatever size is
/// expected at first.
#[test]
fn the_rate_holds_for_any_number_of_writers() {
    for seed in 0..3 {
        println!("seed {seed}");
        let mut rng = StdRng::seed_from_u64(seed);
        for writers in [4, 64, 4000] {
            for late_us in [0, 100, 4000] {
                for typical in [200.0, 1000.0, 5000.0] {
                    let rate = 20 * MIB;
                    let mut pace = pace(rate, typical);
                    let size = |rng: &mut StdRng| rng.random_range(500..1500);
                    let run = simulate(&mut rng, writers, &mut pace, late_us, 5, size);
                    for (second, bytes) in run.bytes.iter().enumerate() {
                        let share = *bytes as f64 / rate as f64;
                        // Commits that end later count later; 4 late writers cannot use the rate.
                        let least = match (writers, second) {
                            (4, _) => 0.1,
                            (_, 0) => 0.7,
                            _ => 0.9,
                        };
                        let all = format!("{writers} {late_us} {typical} {second}: {share}");
                        assert!((least..1.1).contains(&share), "{all}");
                    }
                    let round_us = writers as u64 * 1000 * SECOND_US / rate;
                    let most = 2 * round_us + 5 * (late_us + 20_000);
                    assert!(run.wait_us_max < most, "{writers}: {}", run.wait_us_max);
                }
            }
        }
    }
}

/// After a transaction of 64 MiB, small ones go on at about half of their pace until it is paid
/// for, and in the end as many bytes were committed as the rate allows.
#[test]
fn a_large_transaction_is_paid_for_by_many_small_ones() {
    let mut rng = StdRng::seed_from_u64(7);
    let rate = 20 * MIB;
    let mut passes = 0;
    let size = |_: &mut StdRng| {
        passes += 1;
        if passes == 60_000 { 64 * MIB } else { 1000 }
    };
    let mut pace = pace(rate, 1000.0);
    let run = simulate(&mut rng, 256, &mut pace, 100, 20, size);
    let usual = run.passes[1];
    let slowest = *run.passes.iter().min().unwrap();
    assert!(
        slowest > usual / 4,
        "{slowest} of {usual}: {:?}",
        run.passes
    );
    assert!(run.passes[19] > usual * 9 / 10, "{:?}", run.passes);
    let share = run.bytes.iter().sum::<u64>() as f64 / (20 * rate) as f64;
    assert!((0.95..1.05).contains(&share), "{share}");
    assert!(pace.owed() < rate as f64 / 20.0, "{}", pace.owed());
    assert!(run.wait_us_max < SECOND_US / 2, "{}", run.wait_us_max);
}

/// Of two hundred transactions one is large. The small ones pay for it, and debt stays within some
/// seconds' worth.
#[test]
fn debt_is_bounded_where_large_transactions_go_on() {
    let mut rng = StdRng::seed_from_u64(9);
    let rate = 20 * MIB;
    let size = |rng: &mut StdRng| match rng.random_range(0..200) {
        0 => 4 * MIB,
        _ => 1000,
    };
    let mut pace = pace(rate, 1000.0);
    let run = simulate(&mut rng, 64, &mut pace, 100, 120, size);
    let bytes: u64 = run.bytes[80..].iter().sum();
    let share = bytes as f64 / (40 * rate) as f64;
    assert!((0.9..1.1).contains(&share), "{share}");
    let owed_s = pace.owed() / rate as f64;
    assert!((0.0..60.0).contains(&owed_s), "{owed_s}");
}

#[test]
fn the_first_charge_is_limited() {
    let mut pace = pace(MIB, 1e9);
    assert_eq!(pace.typical(), 65_536.0);
    pace.begin(0, Some(0.0));
    assert_eq!(pace.typical(), 1.0);
}

/// If all transactions become large, the charge follows within a hundred of them.
#[test]
fn the_charge_follows_the_size() {
    let mut pace = pace(20 * MIB, 1000.0);
    for _ in 0..100 {
        pace.settle(0, 1, 4 * MIB);
    }
    assert!(pace.typical() > 3.0 * MIB as f64, "{}", pace.typical());
    for _ in 0..400 {
        pace.settle(0, 1, 1000);
    }
    assert!(pace.typical() < 2000.0, "{}", pace.typical());
    // A transaction of several statements counts by statement; one that wrote nothing counts, too.
    for _ in 0..400 {
        pace.settle(0, 10, 2000);
    }
    assert!(
        (190.0..210.0).contains(&pace.typical()),
        "{}",
        pace.typical()
    );
    for _ in 0..1000 {
        pace.settle(0, 1, 0);
    }
    assert!(pace.typical() >= 1.0);
}
