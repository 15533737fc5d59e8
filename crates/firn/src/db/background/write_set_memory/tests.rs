use super::*;

const MIB: u64 = 1 << 20;

/// However many sets grow, together they keep to their share until each is at its minimum.
#[test]
fn write_sets_share_a_quarter_of_the_limit() {
    for limit in [8 * MIB, 64 * MIB, 256 * MIB, 4 << 30] {
        let floor = (limit / 256).max(128 << 10);
        for sets in [1, 2, 10, 100, 2000] {
            let mut each = 0;
            while each + 4096 <= cap(limit, sets * each) {
                each += 4096;
            }
            assert!(each >= floor, "{sets} sets of {each}, limit {limit}");
            assert!(
                each == floor || sets * each <= limit / 4,
                "{sets} sets of {each}, limit {limit}"
            );
        }
        assert_eq!(cap(limit, 10 * limit), floor);
        assert!(cap(limit, limit / 6) >= limit / 6 - 1);
    }
}

/// Loads that begin together share what a single one would get, before any of them has an entry.
#[test]
fn loads_that_begin_together_share_the_memory() {
    let memory = WriteSetMemory::default();
    let limit = 256 * MIB;
    let options = MutableOptions::default();
    options.memory_limit.store(limit, Ordering::Relaxed);
    options.txn_memory_limit.store(1 << 40, Ordering::Relaxed);
    let alone = memory.begin_load(&options).0;
    assert!(alone > limit / 8 && alone <= limit / 6, "{alone}");
    let mut loads: Vec<_> = (0..50).map(|_| memory.begin_load(&options)).collect();
    assert_eq!(loads[0].0, alone);
    let sum: u64 = loads.iter().map(|load| load.0).sum();
    assert!(sum <= limit / 4 + 50 * MIB, "{sum}");
    assert!(loads.iter().all(|load| load.0 >= MIB));
    assert_eq!(memory.in_use(), 0);
    assert_eq!(memory.cap(limit), MIB);
    loads.clear();
    assert_eq!(memory.begin_load(&options).0, alone);
    assert_eq!(memory.cap(0), u64::MAX);
}

/// The memory that a load has in use counts once.
#[test]
fn entries_of_a_load_do_not_count_beside_its_allowance() {
    let memory = WriteSetMemory::default();
    let options = MutableOptions::default();
    options.memory_limit.store(64 * MIB, Ordering::Relaxed);
    let (bytes, _allowance) = memory.begin_load(&options);
    let before = memory.cap(64 * MIB);
    let mut entries = MemoryCharge::new(Arc::clone(memory.loads()));
    entries.set(bytes / 2);
    assert_eq!(memory.cap(64 * MIB), before);
    assert!(memory.in_use() >= bytes / 2);
}
