use super::*;

#[test]
fn neighbours_become_one_range() {
    let mut from_cache = FromCache::default();
    for cached in [false, true, true, false, true] {
        from_cache.note(cached);
    }
    assert_eq!(from_cache.ranges, [1..3, 4..5]);
}

#[test]
fn files_without_cached_entries_are_not_named() {
    let handover = CacheHandover::default();
    let mut cold = FromCache::default();
    cold.note(false);
    handover.output(1, cold);
    let mut warm = FromCache::default();
    warm.note(true);
    handover.output(2, warm);
    let outputs = handover.outputs.into_inner();
    assert_eq!(outputs.into_keys().collect::<Vec<_>>(), [2]);
}
