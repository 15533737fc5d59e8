use super::*;
use crate::base::Error;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Clone)]
struct Blob(u64);

impl Weighted for Blob {
    fn weight(&self) -> u64 {
        self.0
    }
}

fn key(offset: u64) -> BlockKey {
    BlockKey { file_id: 1, offset }
}

fn load(cache: &BlockCache<Blob>, offset: u64, fill: bool) -> Blob {
    cache
        .get_or_load(key(offset), fill, || Ok(Blob(4096)))
        .unwrap()
}

#[test]
fn hits_and_misses_are_counted() {
    let cache = BlockCache::new(1 << 20);
    load(&cache, 0, true);
    load(&cache, 0, true);
    load(&cache, 1, false);
    load(&cache, 1, false);
    let stats = cache.stats();
    assert_eq!((stats.hits, stats.misses), (1, 3));
    assert_eq!((stats.entries, stats.bytes), (1, 4096 + ENTRY_OVERHEAD));
    assert!(cache.peek(key(1)).is_none());
    cache.remove(key(0));
    assert!(cache.peek(key(0)).is_none());
}

#[test]
fn the_capacity_holds_and_can_change() {
    let cache = BlockCache::new(4 << 20);
    for i in 0..4096 {
        load(&cache, i * 4096, true);
    }
    assert!(cache.stats().bytes <= 4 << 20);
    assert!(cache.stats().bytes > 2 << 20);
    cache.set_capacity(1 << 20);
    assert!(cache.stats().bytes <= 1 << 20);
}

#[test]
fn a_scan_leaves_the_hot_blocks() {
    let cache = BlockCache::new(4 << 20);
    for _ in 0..4 {
        for i in 0..256 {
            load(&cache, i, true);
        }
    }
    for i in 0..10_000 {
        load(&cache, 1_000_000 + i, true);
    }
    let kept = (0..256).filter(|&i| cache.peek(key(i)).is_some()).count();
    assert!(kept > 200, "{kept} of 256 hot blocks survived a scan");
}

#[test]
fn a_block_as_large_as_its_shard_is_not_kept() {
    let cache = BlockCache::new(1 << 20);
    load(&cache, 0, true);
    cache
        .get_or_load(key(1), true, || Ok(Blob(1 << 20)))
        .unwrap();
    assert!(cache.peek(key(0)).is_some());
    assert!(cache.peek(key(1)).is_none());
}

#[test]
fn a_failed_load_caches_nothing() {
    let cache = BlockCache::<Blob>::new(1 << 20);
    assert!(
        cache
            .get_or_load(key(0), true, || Err(Error::invalid("no")))
            .is_err()
    );
    load(&cache, 0, true);
    assert_eq!(cache.stats().entries, 1);
}

#[test]
fn one_thread_loads_and_the_others_wait() {
    let cache = BlockCache::new(1 << 20);
    let loads = AtomicU64::new(0);
    let start = Barrier::new(4);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for offset in 0..100 {
                    start.wait();
                    let block = cache.get_or_load(key(offset), true, || {
                        loads.fetch_add(1, Ordering::Relaxed);
                        Ok(Blob(100))
                    });
                    assert_eq!(block.unwrap().0, 100);
                }
            });
        }
    });
    assert_eq!(loads.into_inner(), 100);
}

/// The constant [`ENTRY_OVERHEAD`] is not less than the memory that the cache takes beside the
/// values.
#[test]
fn the_weight_covers_the_tables() {
    let cache = BlockCache::new(4 << 20);
    for i in 0..100_000 {
        cache.get_or_load(key(i), true, || Ok(Blob(200))).unwrap();
    }
    let stats = cache.stats();
    assert!(stats.bytes > 3 << 20, "{stats:?}");
    // Reference counts and two allocator headers of each value take 48 bytes.
    let around = stats.entries * 48 + cache.inner.memory_used().total() as u64;
    let each = around / stats.entries;
    assert!(each <= ENTRY_OVERHEAD, "{each} bytes an entry");
}

#[test]
fn pins_are_granted_within_the_limit_and_given_back() {
    let cache = BlockCache::<Blob>::new(1 << 20);
    let pins = cache.pins();
    pins.set_limit(1000);
    let first = pins.grant(700, false).unwrap();
    assert!(
        pins.grant(100, false).is_none(),
        "the rest is for upper levels"
    );
    let second = pins.grant(100, true).unwrap();
    assert!(pins.grant(300, true).is_none());
    let third = pins.charge(300);
    assert_eq!(pins.used(), 1100);
    drop((first, second, third));
    assert_eq!(pins.used(), 0);
}
