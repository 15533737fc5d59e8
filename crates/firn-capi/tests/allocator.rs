//! The allocator of the core. This is the only test of its process, because others would allocate
//! and free beside it.

#![cfg(feature = "jemalloc")]

use firn::base::allocator_stats::AllocatorStats;
use firn_capi::allocator::CoreAllocator;
use tikv_jemalloc_ctl::{Access, AsName};

const MIB: u64 = 1 << 20;
const BYTES: u64 = 64 * MIB;

#[test]
fn the_allocator_has_its_options_says_what_it_holds_and_gives_it_back() {
    let decay: tikv_jemalloc_ctl::Result<isize> = b"opt.dirty_decay_ms\0".name().read();
    assert_eq!(decay, Ok(500));
    let cached: tikv_jemalloc_ctl::Result<usize> = b"opt.tcache_max\0".name().read();
    assert_eq!(cached, Ok(4096));
    let huge: tikv_jemalloc_ctl::Result<&'static [u8]> = b"opt.thp\0".name().read();
    assert_eq!(huge, Ok(&b"never\0"[..]));

    let before = CoreAllocator.read();
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
