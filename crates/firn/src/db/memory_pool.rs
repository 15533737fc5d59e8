//! The memory pool of a database: the crate `firn-pool` behind the trait that readers of files
//! know.

use super::Db;
use crate::base::event_listener::Severity;
use crate::base::{Error, Result};
use crate::env::ReadClass;
use crate::store::{BlockName, BlockPool, PoolOutlook, PooledBlocks, WantedBlock};
use firn_pool::{Class, Name, Outlook, Pool, PoolStats};
use std::fmt::Write;
use std::sync::Arc;

/// A pool of stored blocks for [`Db::open_with`]. It is off until
/// [`Db::set_pool_enabled`].
pub struct MemoryPool {
    pool: Pool,
    has_thread: bool,
}

impl MemoryPool {
    /// A pool whose background work a thread does, once it is on.
    pub fn new(pool: Pool) -> Self {
        Self {
            pool,
            has_thread: true,
        }
    }

    /// A pool whose background work the caller does, by [`Pool::tick`]: for simulations.
    pub fn without_thread(pool: Pool) -> Self {
        Self {
            pool,
            has_thread: false,
        }
    }

    /// The pool itself.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }
}

/// Bytes that a value in the pool has beside those of its block, at most.
const VALUE_OVERHEAD: usize = 64;

/// The name in the pool.
fn pool_name(name: &BlockName) -> Name {
    match *name {
        BlockName::Block {
            file,
            checksum,
            offset,
        } => Name::of_block(file, checksum, offset),
        BlockName::BlobPiece {
            file,
            checksum,
            piece,
        } => Name::of_blob_chunk(file, checksum, piece),
    }
}

/// The class that decides about lookup and admission of a read.
fn pool_class(class: ReadClass, blocks: usize) -> Class {
    match class {
        ReadClass::Index => Class::Index,
        ReadClass::Point => Class::Point,
        ReadClass::Range if blocks > 1 => Class::BatchedKeys,
        ReadClass::Range => Class::ShortRange,
        ReadClass::Scan => Class::Scan,
        ReadClass::Blob => Class::BlobChunk,
        ReadClass::Compaction
        | ReadClass::Load
        | ReadClass::Log
        | ReadClass::Verify
        | ReadClass::Backup => Class::Maintenance,
    }
}

fn wanted(block: &WantedBlock) -> firn_pool::WantedBlock {
    firn_pool::WantedBlock {
        name: pool_name(&block.name),
        len: block.len,
    }
}

impl BlockPool for MemoryPool {
    fn probably_has(&self, name: &BlockName) -> bool {
        // The length takes no part in this.
        let block = WantedBlock {
            name: *name,
            len: 0,
        };
        self.pool.probably_has(&wanted(&block))
    }

    fn outlook(&self, name: &BlockName, class: ReadClass, together: bool) -> PoolOutlook {
        let class = pool_class(class, if together { 2 } else { 1 });
        match self.pool.outlook(&pool_name(name), class) {
            Outlook::Asks => PoolOutlook::Asks,
            Outlook::Tries => PoolOutlook::Tries,
            Outlook::Passes => PoolOutlook::Passes,
        }
    }

    fn get(
        &self,
        blocks: &[WantedBlock],
        class: ReadClass,
        is_right: &dyn Fn(usize, &[u8]) -> bool,
        found: &mut dyn FnMut(usize, &[u8]),
    ) {
        let class = pool_class(class, blocks.len());
        if let [block] = blocks {
            let is_right = |bytes: &[u8]| is_right(0, bytes);
            if let Some(stored) = self.pool.get(&wanted(block), class, &is_right) {
                found(0, &stored);
            }
            return;
        }
        let blocks: Vec<_> = blocks.iter().map(wanted).collect();
        let all = self.pool.get_many(&blocks, class, is_right);
        for (number, stored) in all.iter().enumerate() {
            if let Some(stored) = stored {
                found(number, stored);
            }
        }
    }

    fn offer(&self, name: &BlockName, class: ReadClass, stored: &[u8]) {
        self.pool
            .offer(&pool_name(name), pool_class(class, 1), stored);
    }

    fn put(&self, name: &BlockName, stored: &[u8]) -> bool {
        // There is never room for a longer block, nor in a pool whose thread has failed, so nobody
        // need wait for it.
        let too_long = stored.len() + VALUE_OVERHEAD > firn_pool::VALUE_LEN_MAX;
        too_long || !self.pool.is_enabled() || self.pool.put(&pool_name(name), Class::Point, stored)
    }

    fn delete(&self, name: &BlockName) {
        self.pool.delete(&pool_name(name), Class::Point);
    }

    fn note_pool_read(&self, class: ReadClass, us: u64) {
        self.pool.note_pool_read(pool_class(class, 1), us);
    }

    fn note_file_read(&self, class: ReadClass, us: u64) {
        self.pool.note_file_read(pool_class(class, 1), us);
        // Blocks of the class `Range` are of another class of the pool if they come in a batch.
        let batched = pool_class(class, 2);
        if batched != pool_class(class, 1) {
            self.pool.note_file_read(batched, us);
        }
    }
}

/// The pool of an open database.
pub(super) struct DbPool {
    pub(super) memory: Arc<MemoryPool>,
    pub(super) blocks: Arc<PooledBlocks>,
}

impl Db {
    fn pool_or_error(&self) -> Result<&DbPool> {
        let missing = || Error::invalid("the database was opened without a memory pool");
        self.pool.as_ref().ok_or_else(missing)
    }

    fn log_pool(&self, message: &str) {
        let listener = &self.work.options.listener;
        listener.log(Severity::Note, &format!("memory pool: {message}"));
    }

    /// Switches the memory pool on or off. Off, no read asks it, and nothing is put there.
    ///
    /// # Errors
    /// `InvalidArgument` if the database has none. `Io` if the system has no thread left.
    pub fn set_pool_enabled(&self, on: bool) -> Result<()> {
        let DbPool { memory, blocks } = self.pool_or_error()?;
        if on && memory.has_thread {
            memory
                .pool
                .start()
                .map_err(|error| Error::io(&error, "start the thread of the memory pool"))?;
        }
        let was_on = self.is_pool_enabled();
        memory.pool.set_enabled(on);
        blocks.set_on(on);
        if on != was_on {
            self.log_pool(if on { "on" } else { "off" });
        }
        Ok(())
    }

    /// Sets nodes and switch of the memory pool at the start. If it cannot be switched on, that is
    /// logged: a cache keeps no server from starting.
    ///
    /// # Errors
    /// As [`Self::set_pool_nodes`].
    pub fn start_pool(&self, nodes: &str, on: bool) -> Result<()> {
        if !nodes.is_empty() {
            self.set_pool_nodes(nodes)?;
        }
        if on && let Err(error) = self.set_pool_enabled(true) {
            let listener = &self.work.options.listener;
            listener.log(
                Severity::Warning,
                &format!("the memory pool is off: {error}"),
            );
        }
        Ok(())
    }

    /// Sets the nodes of the memory pool; see [`firn_pool::parse_nodes`]. Ones that stay in the
    /// list keep their connections and figures.
    ///
    /// # Errors
    /// `InvalidArgument` if the list is faulty, which changes nothing, or if the database has no
    /// pool.
    pub fn set_pool_nodes(&self, list: &str) -> Result<()> {
        let pool = &self.pool_or_error()?.memory.pool;
        pool.set_nodes(list).map_err(Error::invalid)?;
        match list.trim() {
            "" => self.log_pool("no nodes"),
            list => self.log_pool(&format!("the nodes are now {list}")),
        }
        Ok(())
    }

    /// The memory pool, if the database has one.
    pub fn memory_pool(&self) -> Option<&MemoryPool> {
        self.pool.as_ref().map(|pool| &*pool.memory)
    }

    /// The figures of the memory pool; `None` if the database has none.
    pub fn pool_stats(&self) -> Option<PoolStats> {
        self.pool.as_ref().map(|pool| pool.memory.pool.stats())
    }

    /// Appends a line on the memory pool to the engine status, if the pool is on.
    pub(super) fn write_pool(&self, out: &mut String) -> std::fmt::Result {
        let Some(stats) = self.pool_stats().filter(|_| self.is_pool_enabled()) else {
            return Ok(());
        };
        let up = stats.nodes.iter().filter(|node| !node.breaker_open).count();
        let skips = stats.skips.iter();
        let skipped = skips.fold([0; 5], |sum, skip| {
            [
                sum[0] + skip.unknown,
                sum[1] + skip.unprofitable,
                sum[2] + skip.open_breaker,
                sum[3] + skip.silent,
                sum[4] + skip.busy,
            ]
        });
        writeln!(
            out,
            "memory pool: {up} of {} nodes up, {} fingerprints in {} bytes, {} puts of {} bytes waiting, {} hot blocks; \
             blocks not asked for: {} not there, {} faster from the disk, {} while their node was down, {} while it \
             owed an answer, {} while all connections were in use",
            stats.nodes.len(),
            stats.fingerprints,
            stats.fingerprint_bytes,
            stats.queued_puts,
            stats.queued_bytes,
            stats.hot_blocks,
            skipped[0],
            skipped[1],
            skipped[2],
            skipped[3],
            skipped[4],
        )
    }

    /// Whether the memory pool is on.
    pub fn is_pool_enabled(&self) -> bool {
        let is_on = |pool: &DbPool| pool.blocks.is_on() && pool.memory.pool.is_enabled();
        self.pool.as_ref().is_some_and(is_on)
    }
}
