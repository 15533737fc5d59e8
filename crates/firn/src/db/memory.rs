//! One memory limit over caches, memtables, indexes and write sets.

use super::Db;
use super::background::Work;
use crate::base::gauge::Gauge;
use crate::base::options::{LiveOptions, Options};
use crate::cache::RowCache;
use crate::read::View;
use crate::sst::SstBlockCache;
use crate::version::Version;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Who holds how much memory, bytes as the engine counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryReport {
    /// The limit; 0 for none.
    pub limit: u64,
    /// Memtables, the active one and frozen ones.
    pub memtables: u64,
    /// What transactions have written and not committed.
    pub write_sets: u64,
    /// What open files keep: tops of indexes, dictionaries, pinned partitions and filters.
    pub pinned: u64,
    /// Cached blocks and partitions.
    pub block_cache: u64,
    /// What they may take.
    pub block_cache_capacity: u64,
    /// Cached rows.
    pub row_cache: u64,
    /// What they may take.
    pub row_cache_capacity: u64,
}

impl MemoryReport {
    /// All that is held.
    pub fn total(&self) -> u64 {
        self.memtables + self.write_sets + self.pinned + self.block_cache + self.row_cache
    }
}

/// What comes before the caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Demand {
    /// All memtables.
    memtables: u64,
    /// At what size a memtable freezes if nothing forbids it.
    memtable_size: u64,
    write_sets: u64,
}

/// How a limit is dealt out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Split {
    /// Blocks, and what open files keep.
    blocks: u64,
    /// The part of it that may be pinned by choice.
    pins: u64,
    rows: u64,
    /// At what size a memtable freezes.
    memtable_size: u64,
}

/// Two memtables get their room in advance: the one that fills, and the one being flushed.
const MEMTABLES: u64 = 2;
/// A memtable takes at most this share of what write sets leave.
const MEMTABLE_SHARE: u64 = 8;
const MEMTABLE_MIN: u64 = 64 << 10;
/// The arena's largest chunk: the last one may be nearly empty.
const MEMTABLE_CHUNK: u64 = 1 << 20;
/// The filter's share of a memtable.
const FILTER_SHARE: u64 = 64;
/// The caches keep this share of the limit; memtables that leave less stop writers.
const CACHES_SHARE_MIN: u64 = 8;
/// The row cache's share of the caches. Measured over ten times the caches (`cache.md`): with more of it
/// skewed reads miss less, uniform ones as much as with none, and ranges have fewer blocks.
const ROWS_SHARE: u64 = 3;
/// The caches follow in steps of this share of the limit.
const STEPS: u64 = 64;

/// What a memtable that freezes at `size` takes from the allocator.
fn footprint(size: u64) -> u64 {
    size + size.min(MEMTABLE_CHUNK) + size / FILTER_SHARE
}

fn split(limit: u64, demand: Demand) -> Split {
    let left = limit.saturating_sub(demand.write_sets);
    let memtable_size = (left / MEMTABLE_SHARE)
        .max(MEMTABLE_MIN)
        .min(demand.memtable_size);
    let reserved = demand.memtables.max(MEMTABLES * footprint(memtable_size));
    let step = (limit / STEPS).max(1);
    // Downwards, so that a step is taken back only once there is room for it.
    let caches = left.saturating_sub(reserved) / step * step;
    let caches = caches.max(step);
    let rows = caches / ROWS_SHARE;
    let blocks = caches - rows;
    Split {
        blocks,
        pins: blocks / 2,
        rows,
        memtable_size,
    }
}

/// Deals the limit out.
///
/// Memtables and write sets take what they need: the rest is for the caches, and goes to them in
/// steps. Inside the block cache's part, what open files keep takes its bytes first (see
/// [`crate::cache::PinBudget`]); index partitions and filters stay in memory up to half of the part,
/// and come and go as blocks do beyond it. When the limit is lowered, files that keep more are closed, and
/// opened again by their next reads.
///
/// When memtables leave less than an eighth of the limit, writers are slowed and at last stopped
/// until a flush has made room: the stall gate hears of it as of too many memtables. Nothing is
/// ever refused for the limit; write sets alone may exceed it, up to their own.
///
/// Bytes are those the engine counts, allocators' headers included by estimate. Not counted: stacks,
/// log buffers (a few MiB), what running compactions hold (about 10 MiB each), decoded blocks that
/// readers hold after their eviction.
///
/// Rejected: watching the process's memory (it belongs to the server, and lags); a ledger in which
/// every part asks for each allocation (a contended counter in the hot paths).
pub(super) struct Arbiter {
    live: Arc<LiveOptions>,
    cache: Arc<SstBlockCache>,
    rows: Arc<RowCache>,
    write_sets: Arc<Gauge>,
    /// What the caches may take without a limit.
    block_cache_size: AtomicU64,
    row_cache_size: AtomicU64,
    /// The split in force.
    current: Mutex<Option<Split>>,
}

impl Arbiter {
    pub(super) fn new(
        options: &Options,
        cache: Arc<SstBlockCache>,
        rows: Arc<RowCache>,
        write_sets: Arc<Gauge>,
    ) -> Self {
        Self {
            live: Arc::clone(&options.live),
            cache,
            rows,
            write_sets,
            block_cache_size: AtomicU64::new(options.block_cache_size),
            row_cache_size: AtomicU64::new(options.row_cache_size),
            current: Mutex::new(None),
        }
    }

    /// The sizes the caches start with: shards and tables are made for them. Also sets where the first
    /// memtables freeze.
    pub(super) fn initial_sizes(options: &Options) -> (u64, u64) {
        match options.live.memory_limit.load(Ordering::Relaxed) {
            0 => (options.block_cache_size, options.row_cache_size),
            limit => {
                let memtable_size = options.live.memtable_size.load(Ordering::Relaxed);
                let nothing = Demand {
                    memtables: 0,
                    memtable_size,
                    write_sets: 0,
                };
                let split = split(limit, nothing);
                let cap = &options.live.memtable_cap;
                cap.store(split.memtable_size, Ordering::Relaxed);
                (split.blocks, split.rows)
            }
        }
    }

    /// Deals out anew. Cheap when nothing has moved by a step.
    pub(super) fn balance(&self, view: &View) {
        // First: whoever applies a split last has computed it last.
        let mut current = self.current.lock();
        let limit = self.live.memory_limit.load(Ordering::Relaxed);
        let wanted = match limit {
            0 => Split {
                blocks: self.block_cache_size.load(Ordering::Relaxed),
                pins: u64::MAX,
                rows: self.row_cache_size.load(Ordering::Relaxed),
                memtable_size: u64::MAX,
            },
            limit => split(limit, self.demand(view)),
        };
        if *current == Some(wanted) {
            return;
        }
        self.live
            .memtable_cap
            .store(wanted.memtable_size, Ordering::Relaxed);
        if limit == 0 {
            self.cache.set_capacity(wanted.blocks);
            self.rows.set_capacity(wanted.rows);
        } else {
            self.cache.set_room(wanted.blocks, wanted.pins);
            self.rows.set_room(wanted.rows);
        }
        *current = Some(wanted);
    }

    fn demand(&self, view: &View) -> Demand {
        Demand {
            memtables: memtable_bytes(view),
            memtable_size: self.live.memtable_size.load(Ordering::Relaxed),
            write_sets: self.write_sets.sum(),
        }
    }

    /// How near frozen memtables bring the caches to their least share: from 1 on a flush must make
    /// room first. 0 while a flush could make none.
    pub(super) fn pressure(&self, view: &View) -> f64 {
        let limit = self.live.memory_limit.load(Ordering::Relaxed);
        if limit == 0 || view.frozen.is_empty() {
            return 0.0;
        }
        let most = limit - limit / CACHES_SHARE_MIN;
        let frozen: u64 = view.frozen.iter().map(|m| m.memory_bytes()).sum();
        let room = most.saturating_sub(self.write_sets.sum()).max(1);
        frozen as f64 / room as f64
    }

    /// Where write sets, and the memory of loads, are counted.
    pub(super) fn write_sets(&self) -> &Arc<Gauge> {
        &self.write_sets
    }

    pub(super) fn report(&self, view: &View) -> MemoryReport {
        let (blocks, rows) = (self.cache.stats(), self.rows.stats());
        MemoryReport {
            limit: self.live.memory_limit.load(Ordering::Relaxed),
            memtables: memtable_bytes(view),
            write_sets: self.write_sets.sum(),
            pinned: self.cache.pins().used(),
            block_cache: blocks.bytes,
            block_cache_capacity: blocks.capacity,
            row_cache: rows.bytes,
            row_cache_capacity: rows.capacity,
        }
    }
}

/// Files to close, so that what they keep in memory by choice falls by `excess` bytes: those of the last
/// levels first, which are asked least.
fn files_to_close(version: &Version, mut excess: u64) -> HashSet<u64> {
    let mut closed = HashSet::new();
    let files: Vec<_> = version.files().collect();
    for (_, file) in files.into_iter().rev() {
        let bytes = file.opened().map_or(0, |reader| reader.optional_bytes());
        if excess > 0 && bytes > 0 {
            excess = excess.saturating_sub(bytes);
            closed.insert(file.file_id);
        }
    }
    closed
}

impl Work {
    /// Brings what open files keep in memory by choice down to its limit. They are opened again by
    /// their next reads, without; statements under way keep theirs to their end.
    fn unpin(&self) {
        let excess = self.memory.cache.pins().excess();
        if excess > 0 {
            self.close_files(|version| files_to_close(version, excess));
        }
    }
}

fn memtable_bytes(view: &View) -> u64 {
    view.memtables().map(|m| m.memory_bytes()).sum()
}

impl Db {
    /// Who holds how much memory.
    pub fn memory(&self) -> MemoryReport {
        self.work.memory.report(&self.cx.views.pin())
    }

    /// Changes the memory limit, bytes; 0 for none.
    pub fn set_memory_limit(&self, bytes: u64) {
        let live = &self.work.options.live;
        live.memory_limit.store(bytes, Ordering::Relaxed);
        self.work.memory.balance(&self.cx.views.pin());
        self.work.unpin();
    }

    /// Changes the capacity of the block cache, bytes. Without effect under a memory limit, until
    /// that goes.
    pub fn set_block_cache_size(&self, bytes: u64) {
        let memory = &self.work.memory;
        memory.block_cache_size.store(bytes, Ordering::Relaxed);
        memory.balance(&self.cx.views.pin());
    }

    /// Changes the capacity of the row cache, bytes; 0 for none. Without effect under a memory limit,
    /// until that goes.
    pub fn set_row_cache_size(&self, bytes: u64) {
        let memory = &self.work.memory;
        memory.row_cache_size.store(bytes, Ordering::Relaxed);
        memory.balance(&self.cx.views.pin());
    }
}

#[cfg(test)]
mod tests;
