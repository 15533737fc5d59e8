//! A compaction does not empty the pool.

use super::*;

#[test]
fn blocks_that_stand_for_pooled_ones_are_in_the_pool_after_a_compaction() {
    let network = network(5);
    let mut server = filled(&network);
    // The lower half of the keys is read, the upper half is not.
    let half = KEYS / 2;
    for _ in 0..2 {
        (0..half).for_each(|n| server.check_get(n * 333 % half, "before"));
        server.tick();
    }
    let items = || NODES.iter().map(|node| network.items(node)).sum::<usize>();
    let before = items();
    let mut random = SplitMix64::new(9);
    let changes: Vec<_> = (0..KEYS)
        .step_by(10)
        .map(|n| (n, Some(bytes(&mut random, 90))))
        .collect();
    server.write(&changes);
    server.db.compact_all().unwrap();
    server.tick();
    let after = items();
    // The names of the inputs are gone.
    assert!(
        after * 2 > before && after < before * 3 / 2,
        "{before} blocks, then {after}"
    );
    let (pool, files) = server.reads_of(|server| {
        (0..half)
            .step_by(7)
            .for_each(|n| server.check_get(n * 333 % half, "lower half"));
    });
    assert!(
        pool > 100 && files * 4 < pool,
        "{pool} from the pool, {files} from files"
    );
    let (pool, files) = server.reads_of(|server| {
        (half..KEYS)
            .step_by(20)
            .for_each(|n| server.check_get(n, "upper half"));
    });
    assert!(files > pool, "{pool} from the pool, {files} from files");
    server.check_all("after");
}
