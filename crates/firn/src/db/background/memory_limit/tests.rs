use super::*;
use rand::{Rng, SeedableRng, rngs::StdRng};

const MIB: u64 = 1 << 20;

fn demand(memtables: u64, write_sets: u64) -> MemoryDemand {
    MemoryDemand {
        memtables,
        ephemeral_memtables: 0,
        memtable_size: 64 * MIB,
        write_sets,
        uncounted: 0,
    }
}

#[test]
fn the_parts_stay_within_the_limit() {
    for limit in [MIB, 8 * MIB, 32 * MIB, 512 * MIB, 64 << 30] {
        for memtables in [0, limit / 10, limit / 4, limit / 2] {
            for write_sets in [0, limit / 10, limit / 4] {
                let split = split(limit, demand(memtables, write_sets));
                let all = split.blocks + split.rows + memtables + write_sets;
                assert!(all <= limit, "{limit}: {split:?}");
                assert!(split.pins <= split.blocks);
                assert!(split.memtable_size <= 64 * MIB);
            }
        }
    }
}

#[test]
fn small_limits_have_small_memtables() {
    assert_eq!(split(32 * MIB, demand(0, 0)).memtable_size, 4 * MIB);
    assert_eq!(split(32 * MIB, demand(0, 16 * MIB)).memtable_size, 2 * MIB);
    assert_eq!(split(4 << 30, demand(0, 0)).memtable_size, 64 * MIB);
}

/// A memtable that fills and is flushed in time does not change the caches' sizes.
#[test]
fn ordinary_work_moves_nothing() {
    let limit = 512 * MIB;
    let at_rest = split(limit, demand(0, 0));
    for memtables in [0, 10 * MIB, 64 * MIB, 100 * MIB, 128 * MIB] {
        assert_eq!(split(limit, demand(memtables, 0)), at_rest);
    }
    let late = split(limit, demand(300 * MIB, 0));
    assert!(late.blocks < at_rest.blocks);
    assert_eq!(late.memtable_size, at_rest.memtable_size);
}

/// Memtables of an ephemeral database come out of the caches' room.
#[test]
fn memtables_of_a_database_beside_take_room_from_the_caches() {
    let limit = 64 * MIB;
    let alone = split(limit, demand(0, 0));
    let demand = MemoryDemand {
        ephemeral_memtables: 8 * MIB,
        ..demand(0, 0)
    };
    let shared = split(limit, demand);
    assert_eq!(
        alone.blocks + alone.rows,
        shared.blocks + shared.rows + 8 * MIB
    );
    assert_eq!(alone.memtable_size, shared.memtable_size);
}

#[test]
fn what_exceeds_the_limit_leaves_the_caches_a_step() {
    let split = split(64 * MIB, demand(64 * MIB, 64 * MIB));
    assert_eq!(split.blocks + split.rows, MIB);
    assert_eq!(split.memtable_size, MEMTABLE_MIN);
}

/// Uncounted memory comes out of the caches' room.
#[test]
fn uncounted_memory_takes_room_from_the_caches() {
    let limit = 256 * MIB;
    let caches = |uncounted| {
        let demand = MemoryDemand {
            uncounted,
            ..demand(0, 0)
        };
        let split = split(limit, demand);
        split.blocks + split.rows
    };
    assert!(caches(32 * MIB) <= caches(0) - 24 * MIB);
    assert!(caches(limit / 2) > limit / 4);
}

/// Takes over a reading every 100 ms, from `from_us` on; returns how often the allowance changed.
fn heed_all(
    allowance: &mut UncountedAllowance,
    from_us: u64,
    readings: impl IntoIterator<Item = u64>,
) -> u64 {
    let mut changes = 0;
    for (i, uncounted) in readings.into_iter().enumerate() {
        let before = allowance.bytes;
        let reading = AllocatorReading {
            at_us: from_us + i as u64 * 100_000,
            uncounted,
            ..AllocatorReading::default()
        };
        allowance.heed(reading, 8 * MIB);
        assert!(allowance.bytes >= uncounted);
        changes += u64::from(allowance.bytes != before);
    }
    changes
}

#[test]
fn uncounted_memory_rises_at_once_and_falls_later() {
    let mut allowance = UncountedAllowance::default();
    heed_all(&mut allowance, 1, [17 * MIB]);
    assert_eq!(allowance.bytes, 24 * MIB);
    // The same reading again, and less than 20 seconds without need.
    heed_all(&mut allowance, 1, [0]);
    heed_all(&mut allowance, 100_001, [MIB; 198]);
    assert_eq!(allowance.bytes, 24 * MIB);
    heed_all(&mut allowance, 19_900_001, [MIB; 102]);
    assert_eq!(allowance.bytes, 8 * MIB);
}

/// A load whose jobs come and go at any time does not change the allowance, and so no cache.
#[test]
fn a_steady_load_leaves_the_allowance_as_it_is() {
    for seed in 0..20 {
        let mut rng = StdRng::seed_from_u64(seed);
        let base = rng.random_range(0..64) * MIB;
        let job = rng.random_range(1..64) * MIB;
        let mut next = 0;
        let load = (0..20_000).map(|i| {
            // A job takes a second, and the next one begins after at most eight.
            if i == next + 10 {
                next = i + rng.random_range(0..80);
            }
            base + rng.random_range(0..4 * MIB) + job * u64::from(i >= next)
        });
        let mut allowance = UncountedAllowance::default();
        let changes = heed_all(&mut allowance, 1, load);
        assert!(
            changes <= 4,
            "{changes} changes in 2000 seconds, seed {seed}"
        );
    }
}

/// However many sets grow, together they keep to their share until each is at its minimum.
#[test]
fn write_sets_share_a_quarter_of_the_limit() {
    for limit in [8 * MIB, 64 * MIB, 256 * MIB, 4 << 30] {
        let floor = (limit / 256).max(128 << 10);
        for sets in [1, 2, 10, 100, 2000] {
            let mut each = 0;
            while each + 4096 <= write_set_cap(limit, sets * each) {
                each += 4096;
            }
            assert!(each >= floor, "{sets} sets of {each}, limit {limit}");
            assert!(
                each == floor || sets * each <= limit / 4,
                "{sets} sets of {each}, limit {limit}"
            );
        }
        assert_eq!(write_set_cap(limit, 10 * limit), floor);
        assert!(write_set_cap(limit, limit / 6) >= limit / 6 - 1);
    }
}
