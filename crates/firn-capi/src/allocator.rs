//! The memory allocator of the core: jemalloc, which can be asked how much it holds, and gives
//! memory back.
//!
//! Only Rust code uses it. The C++ part of the plugin and the ZSTD library use the server's
//! `malloc`. The symbols have a prefix of their own and stay inside the plugin, so a server that
//! itself runs on jemalloc has a second, separate one.
//!
//! The allocator keeps state for each thread, whose destructor runs when the thread ends. So the
//! library that contains it must never be unloaded.

use firn::base::allocator_stats::{AllocatorBytes, AllocatorStats};
use firn::base::zstd_memory::zstd_bytes;
use std::ptr::null_mut;
use tikv_jemalloc_ctl::{Access, AsName, epoch, stats};
use tikv_jemalloc_sys::mallctl;
use tikv_jemallocator::Jemalloc;

#[global_allocator]
static GLOBAL: Jemalloc = Jemalloc;

/// The options, which jemalloc reads from this symbol at its first allocation.
///
/// - `thp:never`: with huge pages a page of 2 MiB stays resident because of one allocation in it.
/// - `dirty_decay_ms`, `muzzy_decay_ms`: unused pages go back within half a second.
/// - `narenas_ratio`: arenas for each processor. Each keeps partly used pages of every size, and
///   statements allocate so seldom that threads rarely meet in one.
/// - `cache_oblivious`: by default each piece of 16 KiB or more takes another page, so that such
///   pieces do not all begin in the same cache lines.
/// - `tcache_max`, `tcache_nslots_small_min`, `tcache_nslots_small_max`: a thread keeps at most 8
///   freed pieces of each size up to 256 bytes for itself, and takes 4 at a time, 12 KiB in the
///   worst case. By default thousands of sessions would keep up to 200 of each size up to 32 KiB.
///   Statements allocate so seldom that it costs nothing they would notice.
#[unsafe(export_name = "_rjem_malloc_conf")]
static OPTIONS: &[u8; 151] = b"thp:never,dirty_decay_ms:500,muzzy_decay_ms:0,narenas_ratio:2,\
    cache_oblivious:false,tcache_max:256,tcache_nslots_small_min:8,tcache_nslots_small_max:8\0";

/// The statistics of the allocator, for the options of a database.
pub struct CoreAllocator;

impl CoreAllocator {
    /// Calls a control of all arenas, which takes and returns nothing.
    fn control(name: &'static [u8]) {
        debug_assert_eq!(name.last(), Some(&0));
        // SAFETY: the name ends with a NUL byte, and no value is read or written.
        let failed =
            unsafe { mallctl(name.as_ptr().cast(), null_mut(), null_mut(), null_mut(), 0) };
        debug_assert_eq!(failed, 0);
    }
}

impl AllocatorStats for CoreAllocator {
    fn read(&self) -> AllocatorBytes {
        // The statistics are those of the time of the last advance.
        let _ = epoch::advance();
        let bytes = |read: tikv_jemalloc_ctl::Result<usize>| read.unwrap_or(0) as u64;
        // 4096 stands for all arenas. `stats.metadata` would also count what the allocator takes
        // from itself for the threads' caches, which lies in active pages.
        let metadata = b"stats.arenas.4096.base\0".name().read();
        let thread_caches = b"stats.arenas.4096.tcache_bytes\0".name().read();
        AllocatorBytes {
            allocated: bytes(stats::allocated::read()),
            active: bytes(stats::active::read()),
            metadata: bytes(metadata),
            resident: bytes(stats::resident::read()),
            retained: bytes(stats::retained::read()),
            thread_caches: bytes(thread_caches),
            outside: zstd_bytes(),
        }
    }

    fn decay(&self) {
        // 4096 stands for all arenas.
        Self::control(b"arena.4096.decay\0");
    }

    fn purge(&self) {
        Self::control(b"arena.4096.purge\0");
    }

    fn describe(&self) -> String {
        let decay: isize = b"opt.dirty_decay_ms\0".name().read().unwrap_or(0);
        let cached: usize = b"opt.tcache_max\0".name().read().unwrap_or(0);
        let arenas: u32 = b"opt.narenas\0".name().read().unwrap_or(0);
        format!(
            "jemalloc, {arenas} arenas, unused pages kept {decay} ms, pieces kept by threads up to {cached} bytes"
        )
    }
}
