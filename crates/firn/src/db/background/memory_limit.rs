//! One memory limit over all memory of the engine.

use super::BackgroundWork;
use super::allocator_watch::{AllocatorWatch, UncountedAllowance};
use super::write_set_memory::WriteSetMemory;
use crate::base::allocator_stats::AllocatorBytes;
use crate::base::memory_tracker::{MemoryCharge, MemoryTracker};
use crate::base::options::{MEMTABLE_MIN, MutableOptions, Options};
use crate::cache::RowCache;
use crate::db::Db;
use crate::env::Env;
use crate::read::SuperVersion;
use crate::sst::{SstBlockCache, SstReader};
use crate::version::{FileHandle, Version};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// Memory use by part, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryReport {
    /// The limit; 0 for none.
    pub limit: u64,
    /// Memtables, active and frozen.
    pub memtables: u64,
    /// Uncommitted write sets of transactions, and the memory of loads.
    pub write_sets: u64,
    /// Sessions and cursors, also those of idle sessions and of tables in the server's table cache.
    pub sessions: u64,
    /// Memory that open files keep outside of the block cache: the top levels of their indexes, and
    /// pinned index partitions with their filters.
    pub pinned: u64,
    /// Memory of cached blocks and partitions.
    pub block_cache: u64,
    /// Capacity of the block cache.
    pub block_cache_capacity: u64,
    /// Memory of cached rows.
    pub row_cache: u64,
    /// Capacity of the row cache.
    pub row_cache_capacity: u64,
    /// Memory in use according to the allocator that the engine does not count; 0 if the allocator
    /// has no statistics.
    pub uncounted: u64,
    /// Numbers of the memory allocator; zeros if it has no statistics.
    pub allocator: AllocatorBytes,
}

impl MemoryReport {
    /// Sum of the parts that the engine counts.
    pub fn counted(&self) -> u64 {
        let caches = self.pinned + self.block_cache + self.row_cache;
        self.memtables + self.write_sets + self.sessions + caches
    }

    /// All memory in use.
    pub fn total(&self) -> u64 {
        self.counted() + self.uncounted
    }
}

/// The memory that takes precedence over the caches, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MemoryDemand {
    /// All memtables.
    memtables: u64,
    /// Memtables of ephemeral databases beside this one.
    ephemeral_memtables: u64,
    /// Configured size at which a memtable freezes.
    memtable_size: u64,
    write_sets: u64,
    /// Sessions and cursors.
    sessions: u64,
    /// Memory that the allocator reports and the engine does not count, at most half of the limit.
    uncounted: u64,
}

/// A division of the limit, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MemorySplit {
    /// The block cache, and the memory that open files keep.
    blocks: u64,
    /// Limit of the pins of all open files together, a part of `blocks`. Above it a file gets only
    /// the pins that it cannot do without.
    pins: u64,
    rows: u64,
    /// Size at which a memtable freezes.
    memtable_size: u64,
}

/// Number of memtables whose room is reserved in advance: one that takes commits, and one that is
/// being flushed.
const MEMTABLES: u64 = 2;
/// A memtable freezes at the latest when it takes 1/8 of what the write sets leave of the memory
/// limit.
const MEMTABLE_SHARE: u64 = 8;
/// Size of the largest chunk of a memtable's arena. The last chunk may be nearly empty, so a
/// memtable takes up to this much more than its size.
const MEMTABLE_CHUNK: u64 = 1 << 20;
/// A memtable's filter takes 1/64 of its size.
const FILTER_SHARE: u64 = 64;
/// If frozen memtables leave less than 1/8 of the limit to the caches, writers are stopped.
const CACHES_SHARE_MIN: u64 = 8;
/// The row cache takes 1/3 of the caches' room. With a larger share, measured with ten times as
/// much data as fits into the caches (`cache.md`), skewed point reads miss less often, uniform ones
/// as often, and range reads find fewer blocks in the cache.
const ROWS_SHARE: u64 = 3;
/// The caches' room changes in steps of 1/64 of the limit.
const STEPS: u64 = 64;
/// Sessions and memory that is not counted take at most 1/2 of the limit from the other parts. With
/// more memtables and caches would be too small to work, and what takes the memory would take it
/// all the same. Beyond that they still take up to 1/2 of the caches' room.
const FIXED_SHARE_MAX: u64 = 2;
/// Of a limit beyond `SLACK_FROM`, uncounted memory may take 1/10 without taking it from the parts:
/// all parts are seldom full at once, and the resident memory may exceed the limit by a tenth and
/// 32 MiB. Small limits have no slack, because the memory of sessions does not shrink with them.
const SLACK_SHARE: u64 = 10;
const SLACK_FROM: u64 = 64 << 20;
/// The division allows for uncounted memory in steps of 1/32 of the limit.
const UNCOUNTED_STEPS: u64 = 32;

/// Memory that a memtable frozen at `size` takes from the allocator, bytes.
fn footprint(size: u64) -> u64 {
    size + size.min(MEMTABLE_CHUNK) + size / FILTER_SHARE
}

/// Uncounted memory that the division of `limit` does not allow for, bytes.
fn slack(limit: u64) -> u64 {
    limit.saturating_sub(SLACK_FROM) / SLACK_SHARE
}

fn split(limit: u64, demand: MemoryDemand) -> MemorySplit {
    let step = (limit / STEPS).max(1);
    // Round up: the size of the memtables changes only when the others take a step more or less.
    let fixed = demand.sessions + demand.uncounted;
    let bounded = fixed.min(limit / FIXED_SHARE_MAX);
    let others = (demand.write_sets + bounded).next_multiple_of(step);
    let left = limit.saturating_sub(others);
    let memtable_size = (left / MEMTABLE_SHARE)
        .max(MEMTABLE_MIN)
        .min(demand.memtable_size);
    let reserved =
        demand.memtables.max(MEMTABLES * footprint(memtable_size)) + demand.ephemeral_memtables;
    // Round down: the caches grow by a step only when there is room for the whole step.
    let caches = left.saturating_sub(reserved);
    let caches = caches - (fixed - bounded).min(caches / 2);
    let caches = (caches / step * step).max(step);
    let rows = caches / ROWS_SHARE;
    let blocks = caches - rows;
    MemorySplit {
        blocks,
        pins: blocks / 2,
        rows,
        memtable_size,
    }
}

/// The memory arbiter of a database: divides the memory limit among the parts.
///
/// Memtables, write sets and sessions take what they need. The caches get the rest, in steps.
/// Within the block cache's part, open files come first (see [`crate::cache::PinBudget`]): up to
/// half of the part they pin their indexes and filters. Beyond that they keep only the top of their
/// index, which is evicted when others need the memory, and partitions, filters and dictionaries
/// enter and leave the cache like blocks. When the limit is lowered, files that pin more are
/// closed; their next reads open them again.
///
/// The more memory frozen memtables take, the more writers are slowed. When the memtables leave
/// less than an eighth of the limit to the caches, writers stop until a flush has made room; the
/// stall gate treats this like too many memtables. Nothing is ever refused because of the limit.
/// [`WriteSetMemory`] says how write sets and loads keep to a quarter.
///
/// The allocator knows what the engine does not count: stacks of structures, log buffers, running
/// compactions, blocks that readers hold after their eviction, row locks, gaps between allocations.
/// The memory that it has in use beyond the counted parts and a slack comes out of the caches'
/// room, at most half of the limit. The pages that it keeps unused do not count, because a cache
/// that shrinks leaves such pages, and would then shrink again because of them; instead they go
/// back to the system when the resident memory exceeds the limit.
///
/// Lock: `current` is held while a division is computed and applied, outside the locks of the
/// caches.
///
/// Rejected: watching the process's memory (it belongs to the server); a ledger that every part
/// asks for each allocation (a contended counter in the hot paths).
pub(in crate::db) struct MemoryArbiter {
    mutable: Arc<MutableOptions>,
    cache: Arc<SstBlockCache>,
    rows: Arc<RowCache>,
    write_sets: Arc<WriteSetMemory>,
    /// Size of the block cache while there is no limit.
    block_cache_size: AtomicU64,
    /// Size of the row cache while there is no limit.
    row_cache_size: AtomicU64,
    allocator: AllocatorWatch,
    current: Mutex<CurrentSplit>,
    /// Uncounted memory beyond the slack that the division in force allows for, at most half of the
    /// limit, bytes.
    /// Writers read it without waiting for a division.
    uncounted: AtomicU64,
    /// Memory of the memtables of all ephemeral databases whose host database is this one; it
    /// counts within this database's limit.
    ephemeral_memtables: Arc<MemoryTracker>,
    /// Memory of the host's sessions and cursors.
    sessions: Arc<MemoryTracker>,
    closed: Mutex<ClosedFiles>,
    /// The memory of the ephemeral database, if this is the memory arbiter of one; `None` for the
    /// server's database.
    guest: Option<EphemeralMemory>,
}

/// The division in force, and the uncounted memory that it allows for.
#[derive(Default)]
struct CurrentSplit {
    split: Option<MemorySplit>,
    uncounted: UncountedAllowance,
}

/// The memory of an ephemeral database. The database uses the block cache and the memory limit of
/// its host database, and the memory of its memtables counts under that limit.
struct EphemeralMemory {
    host: Arc<MutableOptions>,
    charge: Mutex<MemoryCharge>,
}

impl MemoryArbiter {
    pub(in crate::db) fn new(
        options: &Options,
        env: Arc<dyn Env>,
        cache: Arc<SstBlockCache>,
        rows: Arc<RowCache>,
        write_sets: Arc<WriteSetMemory>,
    ) -> Self {
        Self {
            mutable: Arc::clone(&options.mutable),
            allocator: AllocatorWatch::new(options.allocator.clone(), env),
            cache,
            rows,
            write_sets,
            block_cache_size: AtomicU64::new(options.block_cache_size),
            row_cache_size: AtomicU64::new(options.row_cache_size),
            current: Mutex::default(),
            uncounted: AtomicU64::new(0),
            ephemeral_memtables: Arc::default(),
            sessions: Arc::default(),
            closed: Mutex::default(),
            guest: None,
        }
    }

    /// Makes the memory arbiter of an ephemeral database whose host database has the arbiter
    /// `self`. The new arbiter uses the memory limit and the block cache of the host database.
    pub(in crate::db) fn guest(&self, options: &Options, env: Arc<dyn Env>) -> Self {
        options.mutable.follow(&self.mutable);
        let charge = MemoryCharge::new(Arc::clone(&self.ephemeral_memtables));
        let mut guest = Self::new(
            options,
            env,
            Arc::clone(&self.cache),
            Arc::new(RowCache::new(0)),
            Arc::clone(&self.write_sets),
        );
        guest.sessions = Arc::clone(&self.sessions);
        guest.guest = Some(EphemeralMemory {
            host: Arc::clone(&self.mutable),
            charge: Mutex::new(charge),
        });
        guest
    }

    /// The block cache.
    pub(in crate::db) fn block_cache(&self) -> &Arc<SstBlockCache> {
        &self.cache
    }

    /// The row cache.
    pub(in crate::db) fn row_cache(&self) -> &Arc<RowCache> {
        &self.rows
    }

    /// The initial sizes of block cache and row cache, which fix their shards and hash tables. Also
    /// sets the size at which the first memtables freeze.
    pub(in crate::db) fn initial_sizes(options: &Options) -> (u64, u64) {
        match options.mutable.memory_limit.load(Ordering::Relaxed) {
            0 => (options.block_cache_size, options.row_cache_size),
            limit => {
                let memtable_size = options.mutable.memtable_size.load(Ordering::Relaxed);
                let nothing = MemoryDemand {
                    memtables: 0,
                    ephemeral_memtables: 0,
                    memtable_size,
                    write_sets: 0,
                    sessions: 0,
                    uncounted: 0,
                };
                let split = split(limit, nothing);
                let cap = &options.mutable.memtable_cap;
                cap.store(split.memtable_size, Ordering::Relaxed);
                (split.blocks, split.rows)
            }
        }
    }

    /// Computes how the memory limit is divided among block cache, pins, row cache and memtables,
    /// and applies the division if it has changed. Sizes are rounded to steps, so it changes only
    /// when the caches get at least one step more or less, or when a memtable size or an option
    /// changes.
    pub(in crate::db) fn balance(&self, super_version: &SuperVersion) {
        if let Some(guest) = &self.guest {
            return guest.balance(&self.mutable, super_version);
        }
        // Hold the mutex `current` while computing the division of the limit, too. Otherwise
        // another thread could apply a newer division first, and this one would overwrite it.
        let mut current = self.current.lock();
        let limit = self.mutable.memory_limit.load(Ordering::Relaxed);
        let (wanted, uncounted) = match limit {
            0 => {
                let sizes = MemorySplit {
                    blocks: self.block_cache_size.load(Ordering::Relaxed),
                    pins: u64::MAX,
                    rows: self.row_cache_size.load(Ordering::Relaxed),
                    memtable_size: u64::MAX,
                };
                // A later limit begins with the readings of its own time.
                current.uncounted = UncountedAllowance::default();
                (sizes, 0)
            }
            limit => {
                let beyond_slack = current.uncounted.bytes().saturating_sub(slack(limit));
                let uncounted = beyond_slack.min(limit / FIXED_SHARE_MAX);
                let demand = self.demand(super_version, uncounted);
                (split(limit, demand), uncounted)
            }
        };
        set_if_new(&self.mutable.write_set_cap, self.write_sets.cap(limit));
        set_if_new(&self.uncounted, uncounted);
        if current.split == Some(wanted) {
            return;
        }
        self.mutable
            .memtable_cap
            .store(wanted.memtable_size, Ordering::Relaxed);
        if limit == 0 {
            self.cache.set_capacity(wanted.blocks);
            self.rows.set_capacity(wanted.rows);
        } else {
            self.cache.set_room(wanted.blocks, wanted.pins);
            self.rows.set_room(wanted.rows);
        }
        current.split = Some(wanted);
    }

    fn demand(&self, super_version: &SuperVersion, uncounted: u64) -> MemoryDemand {
        MemoryDemand {
            uncounted,
            memtables: memtable_bytes(super_version),
            ephemeral_memtables: self.ephemeral_memtables.sum(),
            memtable_size: self.mutable.memtable_size.load(Ordering::Relaxed),
            write_sets: self.write_sets.in_use(),
            sessions: self.sessions.sum(),
        }
    }

    /// The memory that frozen memtables may take, bytes; `None` without a limit. If they take all
    /// of it, the caches are at their minimum, and a flush must make room first.
    pub(in crate::db) fn frozen_room(&self) -> Option<u64> {
        let limit = self.mutable.memory_limit.load(Ordering::Relaxed);
        let most = limit - limit / CACHES_SHARE_MIN;
        // However many sessions there are, writers must get on.
        let fixed = self.uncounted.load(Ordering::Relaxed) + self.sessions.sum();
        let others = fixed.min(limit / FIXED_SHARE_MAX) + self.write_sets.in_use();
        (limit > 0).then(|| most.saturating_sub(others))
    }

    /// The memory of write sets and loads.
    pub(in crate::db) fn write_sets(&self) -> &Arc<WriteSetMemory> {
        &self.write_sets
    }

    /// The memory with which a load begins, bytes, and the charge that other loads and write sets
    /// see as its allowance.
    pub(in crate::db) fn begin_load(&self) -> (u64, MemoryCharge) {
        let host = self.guest.as_ref().map(|guest| &guest.host);
        self.write_sets.begin_load(host.unwrap_or(&self.mutable))
    }

    /// A charge of `bytes` for the memory of a session or cursor of the host.
    pub(in crate::db) fn charge_session(&self, bytes: u64) -> MemoryCharge {
        MemoryCharge::exact(Arc::clone(&self.sessions), bytes)
    }

    /// Has `observer` called when the memory of write sets, loads, sessions or ephemeral memtables
    /// crosses a multiple of `every` bytes. The observers of an ephemeral database have no effect:
    /// it uses the memory trackers of its host database, and a tracker keeps its first observer.
    pub(in crate::db) fn observe(
        &self,
        every: u64,
        observer: impl Fn() + Clone + Send + Sync + 'static,
    ) {
        self.write_sets.observe(every, observer.clone());
        self.sessions.observe(every, observer.clone());
        self.ephemeral_memtables.observe(every, observer);
    }

    pub(in crate::db) fn report(&self, super_version: &SuperVersion) -> MemoryReport {
        let mut report = self.counted_report(super_version);
        let reading = self.allocator.last();
        report.uncounted = reading.uncounted;
        report.allocator = reading.bytes;
        report
    }

    fn counted_report(&self, super_version: &SuperVersion) -> MemoryReport {
        let (blocks, rows) = (self.cache.stats(), self.rows.stats());
        MemoryReport {
            limit: self.mutable.memory_limit.load(Ordering::Relaxed),
            memtables: memtable_bytes(super_version) + self.ephemeral_memtables.sum(),
            write_sets: self.write_sets.in_use(),
            sessions: self.sessions.sum(),
            pinned: self.cache.pins().used(),
            block_cache: blocks.bytes,
            block_cache_capacity: blocks.capacity,
            row_cache: rows.bytes,
            row_cache_capacity: rows.capacity,
            uncounted: 0,
            allocator: AllocatorBytes::default(),
        }
    }

    /// The allocator, as far as it is watched.
    pub(super) fn allocator(&self) -> &AllocatorWatch {
        &self.allocator
    }

    /// Reads the allocator's statistics, and has it give unused pages back. Returns whether the
    /// limit must be divided again.
    fn heed_allocator(&self, super_version: &SuperVersion) -> bool {
        let counted = || self.counted_report(super_version).counted();
        let Some(reading) = self.allocator.read(counted) else {
            return false;
        };
        let limit = self.mutable.memory_limit.load(Ordering::Relaxed);
        // Writers wait for the mutex `current`, and giving pages back takes long.
        self.allocator.give_back(limit);
        let mut current = self.current.lock();
        let step = (limit / UNCOUNTED_STEPS).max(1);
        limit > 0 && current.uncounted.heed(reading, step)
    }
}

/// Stores `value`, unless it is there already: other threads read `atomic` with each write.
fn set_if_new(atomic: &AtomicU64, value: u64) {
    if atomic.load(Ordering::Relaxed) != value {
        atomic.store(value, Ordering::Relaxed);
    }
}

impl EphemeralMemory {
    /// Takes over the options of the host database, and charges the memtables to it. The active
    /// memtable is charged in advance with the size at which it freezes, since nothing reports how
    /// it grows.
    fn balance(&self, mutable: &MutableOptions, super_version: &SuperVersion) {
        mutable.follow(&self.host);
        let frozen: u64 = super_version.frozen.iter().map(|m| m.memory_bytes()).sum();
        let active = super_version.active.memory_bytes();
        let full = match mutable.memory_limit.load(Ordering::Relaxed) {
            0 => active,
            _ => active.max(footprint(mutable.freeze_at())),
        };
        self.charge.lock().set(frozen + full);
    }
}

/// Files with granted pins of at least `excess` bytes. Files of the last levels come first, because
/// point reads need their pins least.
fn files_to_close(version: &Version, mut excess: u64) -> Vec<Arc<FileHandle>> {
    let mut closed = Vec::new();
    let runs = version.l0.iter().chain(&version.levels).rev();
    for file in runs.flat_map(|run| run.files.iter().rev()) {
        let bytes = file.pinned().map_or(0, |reader| reader.memory_bytes());
        if bytes > 0 {
            excess = excess.saturating_sub(bytes);
            closed.push(Arc::clone(file));
        }
        if excess == 0 {
            break;
        }
    }
    closed
}

/// The files that were closed to give back their granted pins.
#[derive(Default)]
struct ClosedFiles {
    /// Readers that statements may still use.
    held: Vec<Weak<SstReader>>,
    /// Number of grants of the pin budget when no file with a grant was found last.
    fruitless_at: Option<u64>,
}

impl ClosedFiles {
    /// Bytes of pins that come back when statements end.
    fn pending(&mut self) -> u64 {
        let mut pending = 0;
        self.held.retain(|reader| {
            let reader = reader.upgrade();
            pending += reader.as_ref().map_or(0, |reader| reader.memory_bytes());
            reader.is_some()
        });
        pending
    }
}

impl BackgroundWork {
    /// Reads the allocator's statistics and follows them. Reading takes the locks of all threads'
    /// caches in turn, so only one thread does it, and no thread that works for a statement.
    pub(super) fn watch_memory(&self) {
        // Release the super version before the limit is divided: it may be the last that keeps a
        // flushed memtable.
        let changed = self.memory.heed_allocator(&self.super_versions.pin());
        if changed {
            self.report_pressure();
        }
    }

    /// If the pins exceed their limit by far, evicts readers, and closes files with granted pins
    /// until the rest is within the limit. The next read of such a file opens it again, without a
    /// grant. Statements that are reading a closed file keep its pins until they end.
    ///
    /// An ephemeral database does not sweep: its host database evicts the readers of both, and
    /// closes its own files.
    pub(super) fn sweep_pins(&self) {
        let pins = self.memory.cache.pins();
        if self.memory.guest.is_some() || !pins.is_over() {
            return;
        }
        pins.evict_excess();
        let mut closed = self.memory.closed.lock();
        let excess = pins.excess().saturating_sub(closed.pending());
        // No file gets a grant while pins exceed the limit. So a search that has found none need
        // not be repeated until one gets a grant.
        let grants = pins.stats().grants;
        if excess == 0 || closed.fruitless_at == Some(grants) {
            return;
        }
        let mut found = Vec::new();
        self.close_files(|version| {
            let files = files_to_close(version, excess);
            found.extend(
                files
                    .iter()
                    .filter_map(|file| file.pinned().map(Arc::downgrade)),
            );
            files
        });
        closed.fruitless_at = found.is_empty().then_some(grants);
        closed.held.append(&mut found);
    }
}

fn memtable_bytes(super_version: &SuperVersion) -> u64 {
    super_version.memtables().map(|m| m.memory_bytes()).sum()
}

impl Db {
    /// Memory use by part.
    pub fn memory(&self) -> MemoryReport {
        self.work.memory.report(&self.cx.super_versions.pin())
    }

    /// A charge of `bytes` for the memory of a session or cursor, which counts under the memory
    /// limit as long as the charge lives.
    pub fn charge_session(&self, bytes: u64) -> MemoryCharge {
        self.work.memory.charge_session(bytes)
    }

    /// Reads the allocator's statistics. A thread of the database does it every 100 ms; a database
    /// without background threads needs this call.
    pub fn watch_memory(&self) {
        self.work.watch_memory();
    }

    /// Changes the memory limit, bytes; 0 for none. Takes effect at once.
    pub fn set_memory_limit(&self, bytes: u64) {
        let mutable = &self.work.options.mutable;
        mutable.memory_limit.store(bytes, Ordering::Relaxed);
        self.work.memory.balance(&self.cx.super_versions.pin());
        self.work.sweep_pins();
    }

    /// Changes the capacity of the block cache, bytes. Takes effect only while there is no memory
    /// limit.
    pub fn set_block_cache_size(&self, bytes: u64) {
        let memory = &self.work.memory;
        memory.block_cache_size.store(bytes, Ordering::Relaxed);
        memory.balance(&self.cx.super_versions.pin());
    }

    /// Changes the capacity of the row cache, bytes; 0 for none. Takes effect only while there is
    /// no memory limit.
    pub fn set_row_cache_size(&self, bytes: u64) {
        let memory = &self.work.memory;
        memory.row_cache_size.store(bytes, Ordering::Relaxed);
        memory.balance(&self.cx.super_versions.pin());
    }
}

#[cfg(test)]
mod tests;
