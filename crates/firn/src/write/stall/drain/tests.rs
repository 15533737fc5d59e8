use super::super::policy::{Limit, Pressure, StallReason, decide};
use super::*;

/// Totals after `commits` of `bytes` in all.
fn totals(commits: u64, bytes: u64) -> CommitTotals {
    CommitTotals { commits, bytes }
}

#[test]
fn an_idle_tree_and_an_unknown_drain_leave_the_gate_open() {
    let mut drain = Drain::default();
    let deep = Pressure {
        l0: 1.0,
        ..Pressure::default()
    };
    let limit = |pressure: &Pressure, drain: &Drain| decide(pressure, &drain.rates());
    assert_eq!(limit(&deep, &drain), Limit::Open, "nothing was measured");
    drain.flushed(totals(1000, 50_000_000), 25_000_000, 500_000);
    drain.job_begins(1_000_000);
    drain.job_ends(2_000_000, 10_000_000);
    assert_eq!(limit(&Pressure::default(), &drain), Limit::Open);
    assert_eq!(drain.commit_bytes(), Some(50_000.0));
    // Compactions take 10 MB of L0 a second, and a committed byte makes half a byte of L0.
    let (rate, reason) = (20_000_000, StallReason::L0);
    assert_eq!(limit(&deep, &drain), Limit::Rate { rate, reason });
    // The drain counts only time in which a job runs, and counts it once while two jobs run.
    drain.job_begins(100_000_000);
    drain.job_begins(100_000_000);
    drain.job_ends(101_000_000, 10_000_000);
    drain.job_ends(101_000_000, 0);
    let again = drain.rates()[StallReason::L0 as usize].unwrap();
    assert!((19.9e6..=20.0e6).contains(&again), "{again}");
}

#[test]
fn flushes_that_end_together_change_nothing() {
    let mut drain = Drain::default();
    drain.flushed(totals(0, 0), 3_000_000, 100_000);
    let mut committed = 0;
    for _ in 0..50 {
        committed += 10_000_000;
        drain.flushed(totals(0, committed), 5_000_000, 100_000);
    }
    drain.job_begins(1_000_000);
    drain.job_ends(2_000_000, 10_000_000);
    let before = drain.rates()[StallReason::L0 as usize].unwrap();
    assert!((19.9e6..20.1e6).contains(&before), "{before}");
    // Three memtables fill while one flush hangs; then all four flushes end at once.
    committed += 40_000_000;
    for _ in 0..4 {
        drain.flushed(totals(0, committed), 5_000_000, 100_000);
        let rate = drain.rates()[StallReason::L0 as usize].unwrap();
        assert!((0.75..1.25).contains(&(rate / before)), "{rate}");
    }
}

/// Large transactions that commit runs need no flush. Compactions have a rate in committed bytes
/// all the same, also if there are tiny flushes between the runs.
#[test]
fn runs_have_a_part_in_the_ratio_of_stored_bytes() {
    for tiny_flushes in [false, true] {
        let mut drain = Drain::default();
        let (mut commits, mut bytes) = (0, 0);
        for _ in 0..10 {
            if tiny_flushes {
                (commits, bytes) = (commits + 1, bytes + 200);
                drain.installed(totals(commits, bytes), 4000);
            }
            (commits, bytes) = (commits + 1, bytes + 40_000_000);
            drain.installed(totals(commits, bytes), 20_000_000);
        }
        drain.job_begins(1_000_000);
        drain.job_ends(2_000_000, 10_000_000);
        let rates = drain.rates();
        let rate = rates[StallReason::L0 as usize].unwrap();
        assert!((19.9e6..=20.1e6).contains(&rate), "{tiny_flushes}: {rate}");
        assert_eq!(rates[StallReason::Memtables as usize], None);
        assert_eq!(
            drain.commit_bytes(),
            None,
            "only flushes tell the typical size"
        );
    }
}
