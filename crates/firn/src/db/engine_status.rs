//! The text of `SHOW ENGINE STATUS`, the counters of status variables, and sums by index and level.

use super::Db;
use crate::cache::PinStats;
use crate::store::{FileKind, OpenFileStats, file_name, open_files_limit};
use crate::table::{IndexSums, live_rows, out_of_line_bytes};
use crate::version::LEVELS;
use crate::write::{STALL_ENDS, STALL_REASONS};
use std::fmt::Write;
use std::sync::atomic::Ordering;

/// The status names at most this many damaged files.
const DAMAGED_NAMES_MAX: usize = 10;

/// Counters since the database was opened, sizes in bytes. [`Self::last_seqno`] is no counter, but
/// the last seqno.
#[derive(Debug, Clone, Copy, Default)]
pub struct Metrics {
    /// Bytes written to files, those of the log included.
    pub bytes_written: u64,
    /// Bytes read from files.
    pub bytes_read: u64,
    /// Bytes written to the log.
    pub wal_bytes_written: u64,
    /// Durable log writes.
    pub wal_syncs: u64,
    /// Blocks found in the cache.
    pub block_cache_hits: u64,
    /// Blocks read from files.
    pub block_cache_misses: u64,
    /// Memory of cached blocks.
    pub block_cache_bytes: u64,
    /// Point reads that the memtables did not answer and that found their row in the row cache.
    pub row_cache_hits: u64,
    /// Point reads that the memtables did not answer and that did not find their row in the row
    /// cache.
    pub row_cache_misses: u64,
    /// Memory of cached rows.
    pub row_cache_bytes: u64,
    /// Bytes written by flushes.
    pub flushed_bytes: u64,
    /// Bytes read by compactions.
    pub compacted_bytes_read: u64,
    /// Bytes written by compactions.
    pub compacted_bytes_written: u64,
    /// The part of `compacted_bytes_written` that was copied as stored blocks, without being
    /// merged.
    pub reused_bytes: u64,
    /// Files written by compactions for which tunings were tried and a dictionary was trained.
    pub recipes_tried: u64,
    /// Files written by compactions that inherited the compression recipe of an input.
    pub recipes_inherited: u64,
    /// Memory of memtables, frozen ones included.
    pub memtable_bytes: u64,
    /// Row lock waits.
    pub lock_waits: u64,
    /// Deadlocks found.
    pub deadlocks: u64,
    /// The last seqno assigned. It grows by one with each transaction that writes, is not reset at
    /// open, and jumps at a new epoch.
    pub last_seqno: u64,
    /// Commits delayed or stopped by backpressure.
    pub write_stalls: u64,
    /// Time spent in delays and stops, microseconds.
    pub write_stall_us: u64,
}

/// One index of a table.
#[derive(Debug, Clone)]
pub struct IndexReport {
    /// `database/table`.
    pub table: String,
    /// Name of the index.
    pub index: String,
    /// Number of rows of the table, kept up to date by each commit.
    pub rows: u64,
    /// Bytes of keys and values before compression.
    pub raw_bytes: u64,
    /// Bytes in files.
    pub stored_bytes: u64,
    /// Bytes in blob files that the table's out-of-line values take.
    pub blob_bytes: u64,
}

/// One level of the tree.
#[derive(Debug, Clone, Copy)]
pub struct LevelReport {
    /// 0 is the newest level.
    pub level: u32,
    /// Number of sorted runs.
    pub runs: u64,
    /// Number of files.
    pub files: u64,
    /// Bytes in files.
    pub stored_bytes: u64,
    /// Number of entries, tombstones and old versions included.
    pub entries: u64,
    /// Number of tombstones.
    pub deletes: u64,
    /// Target size, bytes.
    pub target_bytes: u64,
}

/// The operations that a database can serve now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Condition {
    /// All operations.
    Good = 0,
    /// The last attempt of some work found the disk full. Reads succeed. `DELETE`, `TRUNCATE` and
    /// `DROP` succeed while the disk reserve lasts, and other writes as long as the log and the
    /// memtables have room.
    DiskFull = 1,
    /// When the database was opened, the disk was full and the disk reserve used up: only reads
    /// succeed.
    ReadOnly = 2,
    /// A write failed: reads only, until the database is reopened.
    Stopped = 3,
}

impl Condition {
    /// The condition in words, for reports.
    pub fn words(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::DiskFull => {
                "disk full: what needs room fails; reads, DELETE, TRUNCATE and DROP go on, and writes once there is room"
            }
            Self::ReadOnly => {
                "read-only: the disk is full, and nothing can be written until there is room"
            }
            Self::Stopped => "writes stopped: they are refused until a restart",
        }
    }
}

impl Db {
    /// Counters since the database was opened.
    pub fn counters(&self) -> Metrics {
        let work = &self.work;
        let cache = work.versions.source().cache().stats();
        let wal = work.wal.stats();
        let super_version = self.cx.super_versions.pin();
        let rows = super_version.rows.stats();
        let stalls = work.stall.stats();
        let locks = self.cx.locks.stats();
        Metrics {
            bytes_written: self.io.bytes_written.load(Ordering::Relaxed),
            bytes_read: self.io.file_reads().bytes(),
            wal_bytes_written: wal.bytes_written,
            wal_syncs: wal.syncs,
            block_cache_hits: cache.hits,
            block_cache_misses: cache.misses,
            block_cache_bytes: cache.bytes,
            row_cache_hits: rows.hits,
            row_cache_misses: rows.misses,
            row_cache_bytes: rows.bytes,
            flushed_bytes: work.counters.flushed_bytes.load(Ordering::Relaxed),
            compacted_bytes_read: work.counters.compacted_bytes_read.load(Ordering::Relaxed),
            compacted_bytes_written: work
                .counters
                .compacted_bytes_written
                .load(Ordering::Relaxed),
            reused_bytes: work.counters.reused_bytes.load(Ordering::Relaxed),
            recipes_tried: work.counters.recipes_tried.load(Ordering::Relaxed),
            recipes_inherited: work.counters.recipes_inherited.load(Ordering::Relaxed),
            memtable_bytes: super_version.memtables().map(|m| m.size_bytes()).sum(),
            lock_waits: locks.waits,
            deadlocks: locks.deadlocks,
            last_seqno: self.cx.pipeline.last_seqno(),
            write_stalls: stalls.delays + stalls.stops,
            write_stall_us: stalls.delay_us + stalls.stop_us,
        }
    }

    /// Reports every index of every table.
    pub fn indexes(&self) -> Vec<IndexReport> {
        let mut all = Vec::new();
        let tables = self.catalog.list("");
        for entry in &tables {
            let mut ids: Vec<_> = entry.indexes.iter().map(|i| i.id).collect();
            let mut names: Vec<_> = entry
                .schema
                .indexes
                .iter()
                .map(|index| index.name.clone())
                .collect();
            if !ids.contains(&entry.clustered.id) {
                ids.insert(0, entry.clustered.id);
                names.insert(0, "(hidden)".to_owned());
            }
            let clustered = entry.clustered.id;
            let counter = self.catalog.counters().rows(clustered);
            let (rows, point) = live_rows(&counter, &self.cx.super_versions, clustered);
            let super_version = &point.super_version;
            let owner = |index| self.catalog.table_of_index(index);
            let blob_bytes = out_of_line_bytes(super_version, clustered, rows, owner);
            for (id, index) in ids.into_iter().zip(names) {
                let stats = IndexSums::of(super_version, id);
                all.push(IndexReport {
                    table: entry.name.clone(),
                    index,
                    rows,
                    raw_bytes: stats.raw_bytes,
                    stored_bytes: stats.stored_bytes,
                    blob_bytes: if id == clustered { blob_bytes } else { 0 },
                });
            }
        }
        all
    }

    /// Reports every level.
    pub fn levels(&self) -> Vec<LevelReport> {
        let version = self.work.versions.current();
        let shape = self.work.shape();
        let report = |level: u8| {
            let runs = version.runs(level);
            let sums = version.level_sums(level);
            LevelReport {
                level: u32::from(level),
                runs: runs.iter().filter(|run| !run.files.is_empty()).count() as u64,
                files: sums.files,
                stored_bytes: sums.size,
                entries: sums.entries,
                deletes: sums.deletes,
                target_bytes: shape.targets[usize::from(level)],
            }
        };
        (0..LEVELS as u8).map(report).collect()
    }

    /// The text of `SHOW ENGINE FIRN STATUS`.
    pub fn status_text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write_status(&mut text);
        text
    }

    /// The bytes that the disk reserve has now, and those that it has when it is full.
    pub fn reserve_bytes(&self) -> (u64, u64) {
        let reserve = self.work.versions.source().store().reserve();
        reserve.map_or((0, 0), |reserve| reserve.bytes())
    }

    /// Counters of the SSTs and blob files that are open for reading.
    pub fn open_file_stats(&self) -> OpenFileStats {
        self.work.versions.source().store().open_files().stats()
    }

    /// Counters of the memory that open files keep.
    pub fn pin_stats(&self) -> PinStats {
        self.work.memory.block_cache().pins().stats()
    }

    /// Changes the number of SSTs and blob files that may be open for reading; 0 for half of the
    /// process's limit on descriptors. Takes effect at once.
    pub fn set_open_files(&self, count: u64) {
        let limit = open_files_limit(count);
        let mutable = &self.work.options.mutable;
        mutable.open_files.store(limit, Ordering::Relaxed);
        let store = self.work.versions.source().store();
        store.open_files().set_limit(limit);
    }

    /// The operations that the database can serve now.
    pub fn condition(&self) -> Condition {
        let health = &self.work.health;
        if health.cause().is_some() {
            Condition::Stopped
        } else if self.cx.pipeline.has_no_segment() {
            Condition::ReadOnly
        } else if health.is_full(None) || self.work.versions.is_read_only() {
            Condition::DiskFull
        } else {
            Condition::Good
        }
    }

    fn write_stalls(&self, out: &mut String) -> std::fmt::Result {
        let s = self.work.stall.stats();
        writeln!(
            out,
            "\nBACKPRESSURE\ndelayed {} statements for {} us, stopped {} for {} us, longest {} us",
            s.delays, s.delay_us, s.stops, s.stop_us, s.longest_us
        )?;
        for ((_, name), (times, us)) in STALL_REASONS.iter().zip(s.by_reason) {
            writeln!(out, "because of {name}: {times}, {us} us")?;
        }
        for ((_, name), times) in STALL_ENDS.iter().zip(s.by_end) {
            writeln!(out, "went on {name}: {times}")?;
        }
        writeln!(out, "{} statements wait", s.waiting)?;
        match s.rate {
            0 if s.stopped => writeln!(out, "the gate is closed"),
            0 => writeln!(out, "the gate is open"),
            rate => writeln!(out, "the gate lets {rate} bytes a second through"),
        }
    }

    fn write_blobs(&self, out: &mut String) -> std::fmt::Result {
        let (now, stats) = (self.blobs(), self.cx.blobs.stats());
        let sum = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        writeln!(
            out,
            "\nVALUES OUT OF LINE\n{} files take {} bytes; {} references to {} bytes, old versions included",
            now.files, now.allocated, now.refs, now.live
        )?;
        writeln!(
            out,
            "written {} values of {} bytes, read {} of {} bytes",
            sum(&stats.written),
            sum(&stats.written_bytes),
            sum(&stats.read),
            sum(&stats.read_bytes)
        )?;
        writeln!(
            out,
            "given back by holes {} bytes, moved {} bytes, removed {} files",
            sum(&stats.punched_bytes),
            sum(&stats.rewritten_bytes),
            sum(&stats.removed_files)
        )
    }

    fn write_damage(&self, out: &mut String) -> std::fmt::Result {
        let version = self.work.versions.current();
        let damaged = version.quarantine();
        if !damaged.is_empty() {
            let named = damaged.iter().take(DAMAGED_NAMES_MAX);
            let names: Vec<String> = named
                .map(|damaged| file_name(FileKind::Sst, damaged.meta.file_id))
                .collect();
            let (count, names) = (damaged.len(), names.join(" "));
            writeln!(
                out,
                "{count} damaged table files are left out of compactions: {names}"
            )?;
        }
        match self.work.given_up_error() {
            Some(error) => writeln!(out, "a compaction fails again and again: {error}"),
            None => Ok(()),
        }
    }

    fn write_status(&self, out: &mut String) -> std::fmt::Result {
        let c = self.counters();
        writeln!(out, "FIRN STATUS")?;
        match self.work.health.cause() {
            None => writeln!(out, "health: {}", self.condition().words())?,
            Some(cause) => writeln!(out, "health: {}: {cause}", self.condition().words())?,
        }
        if let Some(reserve) = self.work.versions.source().store().reserve() {
            let (there, wanted) = reserve.bytes();
            writeln!(out, "reserve for a full disk: {there} of {wanted} bytes")?;
        }
        self.write_damage(out)?;
        writeln!(
            out,
            "\nLOG\nlast commit {}, visible {}",
            c.last_seqno,
            self.cx.super_versions.visible()
        )?;
        writeln!(
            out,
            "written {} bytes in {} durable writes",
            c.wal_bytes_written, c.wal_syncs
        )?;
        writeln!(out, "\nMEMORY\nmemtables {} bytes", c.memtable_bytes)?;
        let memory = self.memory();
        writeln!(
            out,
            "write sets {} bytes, sessions {} bytes, indexes and filters of open files {} bytes, \
             not counted {} bytes",
            memory.write_sets, memory.sessions, memory.pinned, memory.uncounted
        )?;
        let pins = self.pin_stats();
        writeln!(
            out,
            "files opened with their index {}, without {}; evicted {}, beyond the memory for open files {}",
            pins.grants, pins.charges, pins.evictions, pins.over_limit
        )?;
        let limit = match memory.limit {
            0 => "no limit".to_owned(),
            limit => format!("limit {limit}"),
        };
        writeln!(out, "in all {} bytes, {limit}", memory.total())?;
        if let Some(allocator) = &self.options().allocator {
            writeln!(out, "allocator: {}", allocator.describe())?;
        }
        for (cache, bytes, hits, misses) in [
            (
                "block",
                c.block_cache_bytes,
                c.block_cache_hits,
                c.block_cache_misses,
            ),
            (
                "row",
                c.row_cache_bytes,
                c.row_cache_hits,
                c.row_cache_misses,
            ),
        ] {
            let rate = 100.0 * hits as f64 / (hits + misses).max(1) as f64;
            writeln!(out, "{cache} cache {bytes} bytes, hit rate {rate:.1} %")?;
        }
        let store = self.work.versions.source().store();
        writeln!(out, "batched reads: {}", store.prefetch_method())?;
        let files = store.open_files().stats();
        writeln!(
            out,
            "{} files open of {} allowed, {} opened, {} closed to make room, {} beyond the limit",
            files.open, files.limit, files.opens, files.closes, files.over_limit
        )?;
        writeln!(
            out,
            "\nTREE\nlevel  runs  files  stored_bytes  target_bytes  entries  deletes"
        )?;
        for l in self.levels() {
            writeln!(
                out,
                "{:5} {:5} {:6} {:13} {:13} {:8} {:8}",
                l.level, l.runs, l.files, l.stored_bytes, l.target_bytes, l.entries, l.deletes
            )?;
        }
        writeln!(
            out,
            "flushed {} bytes, compactions read {} and wrote {} bytes, {} of them copied in whole blocks",
            c.flushed_bytes, c.compacted_bytes_read, c.compacted_bytes_written, c.reused_bytes
        )?;
        writeln!(
            out,
            "compression recipes of compacted files: {} inherited, {} times new ones tried",
            c.recipes_inherited, c.recipes_tried
        )?;
        let (files, bytes) = self.work.versions.obsolete();
        writeln!(out, "{files} files of {bytes} bytes wait to be deleted")?;
        writeln!(
            out,
            "compactions held up by the limit on background I/O for {} us",
            self.work.limiter.slept_us()
        )?;
        self.write_blobs(out)?;
        self.write_stalls(out)?;
        self.write_transactions(out)
    }
}
