//! Histories of concurrent sessions.

use firn_sim::concurrent;

#[test]
fn threads_see_nothing_that_their_isolation_level_forbids() {
    let mut stats = concurrent::ConcurrentStats::default();
    for seed in 0..12 {
        stats.add(&concurrent::run(seed).unwrap());
    }
    assert!(stats.committed > 0 && stats.crashes > 0, "{stats:?}");
}
