use super::*;
use firn::write::admission::WINDOW;

const SECOND_US: u64 = 1_000_000;
const MIB: u64 = 1 << 20;
const WRITERS: usize = 4000;

/// Four thousand writers at a megabyte a second: a round takes about four seconds.
fn plan(seed: u64) -> GatePlan {
    GatePlan {
        seed,
        writers: WRITERS,
        size: 500..1500,
        typical: 1000.0,
        modes: vec![(0, Mode::Limited(MIB)), (20 * SECOND_US, Mode::Open)],
        kills: Vec::new(),
        end_us: 20 * SECOND_US,
    }
}

/// The checks that hold for each run: nobody is lost, nobody passes much later than one who came
/// after it, each wait costs a few runs of its thread, few threads are awake at a time, and no call
/// visits more tickets because more writers wait.
fn check(outcome: &GateOutcome) {
    assert_eq!(outcome.lost, 0);
    let overtaken = outcome.overtaken_us();
    assert!(overtaken < 10_000, "overtaken for {overtaken} us");
    let runs: u64 = outcome.passes.iter().map(|pass| pass.runs).sum();
    let passes = outcome.passes.len() as u64;
    assert!(runs < passes * 4, "{runs} runs for {passes} waits");
    let most = outcome.passes.iter().map(|pass| pass.runs).max();
    assert!(most < Some(20), "{most:?} runs for one wait");
    assert!(outcome.herd <= WINDOW + 1, "{} awake", outcome.herd);
    let (visits, calls) = (outcome.visits, outcome.calls);
    assert!(visits < calls * (2 * WINDOW as u64 + 2), "{visits} {calls}");
}

#[test]
fn a_burst_passes_at_the_rate_in_its_order() {
    for (seed, typical) in [(1, 1000.0), (2, 200.0), (3, 5000.0)] {
        let outcome = run(GatePlan {
            typical,
            ..plan(seed)
        });
        check(&outcome);
        let bytes = &outcome.bytes[..20];
        for (second, bytes) in bytes.iter().enumerate() {
            let share = *bytes as f64 / MIB as f64;
            let near = (0.95..1.05).contains(&share);
            assert!(near, "{typical}: second {second}: {share}");
        }
        // The longest waits are about as long as the others: the order decides, not chance.
        let (median, longest) = (outcome.wait_us(0.5), outcome.wait_us(0.999));
        assert!(longest < 2 * median, "{median} {longest}");
    }
}

#[test]
fn writers_go_on_in_order_after_the_disk_has_stalled() {
    for seed in 10..13 {
        let outcome = run(GatePlan {
            modes: vec![
                (0, Mode::Limited(MIB)),
                (2 * SECOND_US, Mode::Stopped),
                (12 * SECOND_US, Mode::Limited(4 * MIB)),
                (15 * SECOND_US, Mode::Limited(MIB / 2)),
                (16 * SECOND_US, Mode::Stopped),
                (16 * SECOND_US + 3000, Mode::Limited(8 * MIB)),
                (20 * SECOND_US, Mode::Open),
            ],
            ..plan(seed)
        });
        check(&outcome);
        assert_eq!(outcome.bytes[3..12].iter().sum::<u64>(), 0);
        let share = outcome.bytes[13] as f64 / (4 * MIB) as f64;
        assert!((0.9..1.1).contains(&share), "{share}");
        let share = outcome.bytes[18] as f64 / (8 * MIB) as f64;
        assert!((0.9..1.1).contains(&share), "{share}");
    }
}

#[test]
fn a_gate_that_opens_and_closes_keeps_the_order() {
    let mut modes = vec![(0, Mode::Limited(MIB))];
    for at in 1..100 {
        let mode = match at % 4 {
            0 => Mode::Open,
            1 => Mode::Limited(MIB / 2),
            2 => Mode::Stopped,
            _ => Mode::Limited(2 * MIB),
        };
        modes.push((at * SECOND_US / 5, mode));
    }
    modes.push((20 * SECOND_US, Mode::Open));
    let outcome = run(GatePlan { modes, ..plan(20) });
    assert_eq!(outcome.lost, 0);
    assert!(outcome.herd <= WINDOW + 1, "{} awake", outcome.herd);
}

#[test]
fn all_fail_where_room_is_not_made_and_go_on_when_it_is() {
    let outcome = run(GatePlan {
        modes: vec![
            (0, Mode::Stopped),
            (SECOND_US, Mode::Failing),
            (2 * SECOND_US, Mode::Limited(8 * MIB)),
            (5 * SECOND_US, Mode::Open),
        ],
        end_us: 5 * SECOND_US,
        ..plan(30)
    });
    check(&outcome);
    assert!(outcome.failed >= WRITERS as u64, "{}", outcome.failed);
    assert!(outcome.passed >= WRITERS as u64, "{}", outcome.passed);
}

/// The kill of one of four thousand ends its wait within the latency of its thread, and wakes
/// nobody else.
#[test]
fn a_kill_concerns_one_of_thousands() {
    let stopped = GatePlan {
        modes: vec![
            (0, Mode::Stopped),
            (10 * SECOND_US, Mode::Limited(8 * MIB)),
            (12 * SECOND_US, Mode::Open),
        ],
        end_us: 12 * SECOND_US,
        ..plan(40)
    };
    let limited = GatePlan {
        modes: vec![(0, Mode::Limited(MIB)), (12 * SECOND_US, Mode::Open)],
        end_us: 12 * SECOND_US,
        ..plan(41)
    };
    for plan in [stopped, limited] {
        let before = run(plan.clone());
        let outcome = run(GatePlan {
            kills: vec![(SECOND_US, 3333)],
            ..plan
        });
        check(&outcome);
        assert_eq!(outcome.kills_us.len(), 1);
        assert!(outcome.kills_us[0] < LATENCY_US.end, "{outcome:?}");
        // The latencies of all threads differ between both runs, so their wakeups do a little.
        let (wakes, usual) = (outcome.wakes, before.wakes);
        assert!(
            wakes < usual + usual / 20 + 20,
            "{wakes}, without a kill {usual}"
        );
    }
}

#[test]
fn thousands_of_kills_cost_as_little_each() {
    let kills = (0..WRITERS - 1).map(|writer| (SECOND_US + writer as u64, writer));
    let outcome = run(GatePlan {
        modes: vec![
            (0, Mode::Stopped),
            (2 * SECOND_US, Mode::Limited(MIB)),
            (3 * SECOND_US, Mode::Open),
        ],
        kills: kills.collect(),
        end_us: 3 * SECOND_US,
        ..plan(50)
    });
    assert_eq!(outcome.lost, 0);
    assert_eq!(outcome.kills_us.len(), WRITERS - 1);
    assert!(outcome.kills_us.iter().all(|took| *took < LATENCY_US.end));
    let (visits, calls) = (outcome.visits, outcome.calls);
    assert!(visits < calls * (2 * WINDOW as u64 + 2), "{visits} {calls}");
    // The one that is left goes at once when the disk works again.
    let first = outcome.passes[0].at_us;
    assert!(first < 2 * SECOND_US + 1000, "{first}");
}
