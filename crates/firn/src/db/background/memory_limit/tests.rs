use super::*;

const MIB: u64 = 1 << 20;

fn demand(memtables: u64, write_sets: u64) -> MemoryDemand {
    MemoryDemand {
        memtables,
        ephemeral_memtables: 0,
        memtable_size: 64 * MIB,
        write_sets,
        sessions: 0,
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

/// Write sets that change by little change no size.
#[test]
fn sizes_change_in_steps() {
    let limit = 512 * MIB;
    let mut splits: Vec<_> = (0..16 * 1024)
        .map(|kib| split(limit, demand(0, kib << 10)))
        .collect();
    splits.dedup();
    assert!(splits.len() <= 3, "{splits:?}");
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

/// Sessions come out of the caches' room, but neither stop writers nor the caches.
#[test]
fn sessions_take_room_from_the_caches() {
    let limit = 64 * MIB;
    let with = |sessions| {
        let demand = MemoryDemand {
            sessions,
            ..demand(0, 0)
        };
        split(limit, demand)
    };
    let (none, some, many) = (with(0), with(16 * MIB), with(2 * limit));
    assert!(some.blocks + some.rows <= none.blocks + none.rows - 12 * MIB);
    assert_eq!(many.memtable_size, with(limit / 2).memtable_size);
    assert!(many.memtable_size >= limit / 16);
    assert!(many.blocks + many.rows >= limit / 8);
    let mut last = u64::MAX;
    for mib in 0..256 {
        let split = with(mib * MIB);
        assert!(split.blocks + split.rows <= last, "{mib}: {split:?}");
        last = split.blocks + split.rows;
    }
}

/// The slack never uses up what the resident memory may exceed the limit by, a tenth and 32 MiB.
#[test]
fn large_limits_have_a_slack() {
    const MIB: u64 = 1 << 20;
    assert_eq!([0, 32 * MIB, 64 * MIB].map(slack), [0; 3]);
    assert_eq!(slack(704 * MIB), 64 * MIB);
    for limit in [65, 256, 512, 4096, 1 << 20].map(|mib| mib * MIB) {
        assert!(slack(limit) > 0 && slack(limit) < limit / 10);
    }
}
