//! The allocator of the core. This is the only test of its process, because others would allocate
//! and free beside it.

#![cfg(feature = "jemalloc")]

use firn::base::allocator_stats::AllocatorStats;
use firn_capi::allocator::CoreAllocator;
use std::sync::Barrier;
use tikv_jemalloc_ctl::{Access, AsName};

const MIB: u64 = 1 << 20;
const BYTES: u64 = 64 * MIB;

#[test]
fn the_allocator_has_its_options_says_what_it_holds_and_gives_it_back() {
    let decay: tikv_jemalloc_ctl::Result<isize> = b"opt.dirty_decay_ms\0".name().read();
    assert_eq!(decay, Ok(500));
    let cached: tikv_jemalloc_ctl::Result<usize> = b"opt.tcache_max\0".name().read();
    assert_eq!(cached, Ok(256));
    let huge: tikv_jemalloc_ctl::Result<&'static [u8]> = b"opt.thp\0".name().read();
    assert_eq!(huge, Ok(&b"never\0"[..]));

    let text = CoreAllocator.describe();
    assert!(
        text.contains("kept 500 ms, pieces kept by threads up to 256 bytes"),
        "{text}"
    );

    idle_threads_keep_little();

    let read = |name: &'static [u8]| -> usize { name.name().read().expect("a control") };
    let before = CoreAllocator.read();
    let base = read(b"stats.arenas.4096.base\0");
    let internal = read(b"stats.arenas.4096.internal\0");
    assert_eq!(base + internal, read(b"stats.metadata\0"));
    assert_eq!(before.metadata, base as u64);
    assert!(
        before.metadata > 0 && before.thread_caches > 0,
        "{before:?}"
    );
    let pieces: Vec<Vec<u8>> = (0..BYTES >> 14).map(|_| vec![1; 1 << 14]).collect();
    let during = CoreAllocator.read();
    assert!(
        during.allocated + MIB > before.allocated + BYTES,
        "{before:?} {during:?}"
    );
    for read in [before, during] {
        assert!(read.allocated <= read.active, "{read:?}");
        assert!(read.active <= read.resident, "{read:?}");
    }
    drop(pieces);
    CoreAllocator.decay();
    CoreAllocator.purge();
    let after = CoreAllocator.read();
    assert!(
        after.allocated < before.allocated + MIB,
        "{before:?} {after:?}"
    );
    assert!(
        after.resident < before.resident + 4 * MIB,
        "{before:?} {after:?}"
    );
}

/// Threads that have freed many pieces of all small sizes, and then do nothing, keep less than
/// 64 KiB each.
fn idle_threads_keep_little() {
    const THREADS: usize = 64;
    let (freed, read) = (Barrier::new(THREADS + 1), Barrier::new(THREADS + 1));
    let before = CoreAllocator.read();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for size in (8..5000).step_by(8) {
                    let pieces: Vec<Vec<u8>> = (0..50).map(|_| vec![1; size]).collect();
                    drop(pieces);
                }
                freed.wait();
                read.wait();
            });
        }
        freed.wait();
        let idle = CoreAllocator.read();
        read.wait();
        assert!(
            idle.in_use() < before.in_use() + (THREADS as u64) * (64 << 10),
            "{before:?} {idle:?}"
        );
    });
}
