use super::*;

const CACHED: BlockResidence = BlockResidence {
    cached: true,
    pooled: false,
};
const POOLED: BlockResidence = BlockResidence {
    cached: false,
    pooled: true,
};
const NOWHERE: BlockResidence = BlockResidence {
    cached: false,
    pooled: false,
};

#[test]
fn neighbours_become_one_range() {
    let mut from = FromMemory::default();
    for residence in [NOWHERE, CACHED, CACHED, POOLED, CACHED, POOLED, POOLED] {
        from.note(residence);
    }
    assert_eq!(from.cached.0, [1..3, 4..5]);
    assert_eq!(from.pooled.0, [3..4, 5..7]);
}

#[test]
fn files_without_entries_from_memory_are_not_named() {
    let handover = CacheHandover::default();
    for (file_id, residence) in [(1, NOWHERE), (2, CACHED), (3, POOLED)] {
        let mut from = FromMemory::default();
        from.note(residence);
        handover.output(file_id, from);
    }
    let outputs = handover.outputs.into_inner();
    let mut named: Vec<_> = outputs.into_keys().collect();
    named.sort_unstable();
    assert_eq!(named, [2, 3]);
}
