use super::*;
use crate::env::MemEnv;
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
            outside: 0,
        }
    }

    fn decay(&self) {
        self.decays.fetch_add(1, Ordering::Relaxed);
    }

    fn purge(&self) {
        self.purges.fetch_add(1, Ordering::Relaxed);
    }
}

fn watch() -> (AllocatorWatch, Arc<FakeAllocator>, MemEnv) {
    let (fake, env) = (Arc::new(FakeAllocator::default()), MemEnv::new());
    let watch = AllocatorWatch::new(Some(Arc::clone(&fake) as _), Arc::new(env.clone()));
    (watch, fake, env)
}

#[test]
fn many_questions_are_one_reading() {
    let (watch, fake, env) = watch();
    for _ in 0..1000 {
        watch.read(|| 0);
    }
    assert_eq!(fake.reads.load(Ordering::Relaxed), 1);
    env.advance_clock(READ_EVERY_US);
    watch.read(|| 0);
    assert_eq!(fake.reads.load(Ordering::Relaxed), 2);
}

/// Memory that the engine frees after a reading does not become uncounted memory.
#[test]
fn a_reading_keeps_the_count_of_its_time() {
    let (watch, fake, env) = watch();
    fake.active.store(100 * MIB, Ordering::Relaxed);
    fake.resident.store(300 * MIB, Ordering::Relaxed);
    let uncounted = |counted| watch.read(|| counted).map(|reading| reading.uncounted);
    assert_eq!(uncounted(90 * MIB), Some(11 * MIB));
    assert_eq!(uncounted(50 * MIB), Some(11 * MIB));
    env.advance_clock(READ_EVERY_US);
    assert_eq!(uncounted(50 * MIB), Some(51 * MIB));
    env.advance_clock(READ_EVERY_US);
    assert_eq!(uncounted(200 * MIB), Some(0));
}

#[test]
fn unused_pages_go_back_when_the_limit_is_passed() {
    let (watch, fake, env) = watch();
    let calls = || {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (load(&fake.decays), load(&fake.purges))
    };
    let resident = |bytes| {
        env.advance_clock(READ_EVERY_US);
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
    assert!(!watch.is_present());
    assert_eq!(watch.read(|| 0), None);
    watch.give_back(MIB);
}
