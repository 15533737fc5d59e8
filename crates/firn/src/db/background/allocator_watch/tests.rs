use super::*;
use crate::env::MemEnv;
use rand::{Rng, SeedableRng, rngs::StdRng};
use std::sync::atomic::{AtomicU64, Ordering};

const MIB: u64 = 1 << 20;

/// An allocator that reports what the test says, and counts the calls.
#[derive(Default)]
struct FakeAllocator {
    active: AtomicU64,
    resident: AtomicU64,
    reads: AtomicU64,
    decays: AtomicU64,
    purges: AtomicU64,
}

impl AllocatorStats for FakeAllocator {
    fn read(&self) -> AllocatorBytes {
        self.reads.fetch_add(1, Ordering::Relaxed);
        AllocatorBytes {
            allocated: 0,
            active: self.active.load(Ordering::Relaxed),
            metadata: MIB,
            resident: self.resident.load(Ordering::Relaxed),
            retained: 0,
            thread_caches: 0,
            outside: 0,
        }
    }

    fn decay(&self) {
        self.decays.fetch_add(1, Ordering::Relaxed);
    }

    fn purge(&self) {
        self.purges.fetch_add(1, Ordering::Relaxed);
    }

    fn describe(&self) -> String {
        "a fake".to_owned()
    }
}

fn watch() -> (AllocatorWatch, Arc<FakeAllocator>) {
    let fake = Arc::new(FakeAllocator::default());
    let watch = AllocatorWatch::new(Some(Arc::clone(&fake) as _), Arc::new(MemEnv::new()));
    (watch, fake)
}

/// The last reading serves reports. Memory that the engine frees after a reading does not become
/// uncounted memory.
#[test]
fn a_reading_keeps_the_count_of_its_time() {
    let (watch, fake) = watch();
    assert_eq!(watch.last(), AllocatorReading::default());
    fake.active.store(100 * MIB, Ordering::Relaxed);
    fake.resident.store(300 * MIB, Ordering::Relaxed);
    let uncounted = |counted| watch.read(|| counted).map(|reading| reading.uncounted);
    assert_eq!(uncounted(90 * MIB), Some(11 * MIB));
    fake.active.store(0, Ordering::Relaxed);
    for _ in 0..1000 {
        assert_eq!(watch.last().uncounted, 11 * MIB);
    }
    assert_eq!(fake.reads.load(Ordering::Relaxed), 1);
    fake.active.store(100 * MIB, Ordering::Relaxed);
    assert_eq!(uncounted(50 * MIB), Some(51 * MIB));
    assert_eq!(uncounted(200 * MIB), Some(0));
}

/// A stop is not lost, whether it comes before or during a pause. The test hangs otherwise.
#[test]
fn a_stop_ends_the_pauses() {
    let (watch, _) = watch();
    std::thread::scope(|scope| {
        scope.spawn(|| watch.pause(Duration::from_secs(1_000_000)));
        watch.stop();
    });
    watch.pause(Duration::from_secs(1_000_000));
    assert!(*watch.stopped.lock());
}

#[test]
fn unused_pages_go_back_when_the_limit_is_passed() {
    let (watch, fake) = watch();
    let calls = || {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (load(&fake.decays), load(&fake.purges))
    };
    let resident = |bytes| {
        fake.resident.store(bytes, Ordering::Relaxed);
        watch.read(|| 0);
    };
    resident(64 * MIB);
    watch.give_back(64 * MIB);
    assert_eq!(calls(), (1, 0));
    resident(65 * MIB);
    watch.give_back(64 * MIB);
    assert_eq!(calls(), (1, 1));
    watch.give_back(0);
    assert_eq!(calls(), (2, 1));
}

#[test]
fn without_an_allocator_there_is_no_reading() {
    let watch = AllocatorWatch::new(None, Arc::new(MemEnv::new()));
    assert!(watch.source().is_none());
    assert_eq!(watch.read(|| 0), None);
    watch.give_back(MIB);
}

/// Takes over a reading every 100 ms, from `from_us` on; returns how often the allowance changed.
fn heed_all(
    allowance: &mut UncountedAllowance,
    from_us: u64,
    readings: impl IntoIterator<Item = u64>,
) -> u64 {
    let mut changes = 0;
    for (i, uncounted) in readings.into_iter().enumerate() {
        let reading = AllocatorReading {
            at_us: from_us + i as u64 * 100_000,
            uncounted,
            ..AllocatorReading::default()
        };
        let before = allowance.bytes;
        let changed = allowance.heed(reading, 8 * MIB);
        assert!(allowance.bytes >= uncounted);
        assert_eq!(changed, allowance.bytes != before);
        changes += u64::from(changed);
    }
    changes
}

#[test]
fn uncounted_memory_rises_at_once_and_falls_later() {
    let mut allowance = UncountedAllowance::default();
    heed_all(&mut allowance, 1, [17 * MIB]);
    assert_eq!(allowance.bytes, 24 * MIB);
    // Less than 20 seconds without need.
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
