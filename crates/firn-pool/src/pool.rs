//! The pool: what the engine calls.
//!
//! ```text
//! get ─► table of fingerprints ─► does it pay? ─► node of the name ─► breaker ─► connection
//!        unknown: None            no: None        (hot: one of two)   open: None  late: None
//! ```
//!
//! `None` always means that the caller reads the file. No call waits for anything but the answer
//! of a get, and for that only until the deadline. Everything else is done by [`Pool::tick`], which
//! a thread of the pool calls, or a simulation.

mod background;
mod gets;
mod puts;
mod thread;

use crate::ask::ReadCosts;
use crate::cipher::{Cipher, Key};
use crate::class::{CLASSES, Class};
use crate::counters::{PoolStats, SkipCounters};
use crate::first_touches::FirstTouches;
use crate::hot_blocks::HotBlocks;
use crate::known::Known;
use crate::link::{Clock, Link};
use crate::name::{NAME_LEN, Name};
use crate::news::News;
use crate::node::Log;
use crate::node_list::parse_nodes;
use crate::options::Options;
use crate::put_queue::PutQueue;
use crate::ring::Ring;
use arc_swap::ArcSwap;
use background::Schedule;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use thread::Thread;

pub use gets::Outlook;

/// A block that a caller wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WantedBlock {
    /// Its name.
    pub name: Name,
    /// Its length as it is stored, bytes.
    pub len: usize,
}

/// The memory pool. Cheap to share: all methods take `&self`.
pub struct Pool {
    shared: Arc<Shared>,
    thread: Thread,
}

/// State that callers and the background thread share.
struct Shared {
    link: Arc<dyn Link>,
    clock: Arc<dyn Clock>,
    log: Log,
    enabled: AtomicBool,
    ring: ArcSwap<Ring>,
    setting_nodes: Mutex<()>,
    known: Known,
    costs: ReadCosts,
    first_touches: FirstTouches,
    hot: HotBlocks,
    hot_turns: AtomicUsize,
    queue: PutQueue,
    cipher: Option<Cipher>,
    /// Mixed into names; see [`Key::name_mask`].
    name_mask: [u8; NAME_LEN],
    skips: [SkipCounters; CLASSES],
    /// Threads that poll now, and the most that may.
    polling: AtomicUsize,
    polling_max: usize,
    block_bytes: u64,
    news: Mutex<News>,
    schedule: Mutex<Schedule>,
    wake: thread::Wake,
}

impl Pool {
    /// A pool without nodes, switched off and without its thread.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub fn new(
        options: Options,
        link: Arc<dyn Link>,
        clock: Arc<dyn Clock>,
        log: Log,
    ) -> io::Result<Self> {
        let name_mask = options.key.as_ref().map_or([0; NAME_LEN], Key::name_mask);
        let mut random = [0; 12];
        clock.random(&mut random)?;
        let cipher = options.key.map(|key| Cipher::new(key, random));
        let shared = Shared {
            link,
            clock,
            log,
            enabled: AtomicBool::new(false),
            ring: ArcSwap::default(),
            setting_nodes: Mutex::default(),
            known: Known::new(options.table_bytes_max),
            costs: ReadCosts::default(),
            first_touches: FirstTouches::new(options.first_touches),
            hot: HotBlocks::new(),
            hot_turns: AtomicUsize::new(0),
            queue: PutQueue::new(options.queue_bytes),
            cipher,
            name_mask,
            skips: Default::default(),
            polling: AtomicUsize::new(0),
            // One on two cores: half of them, and one at least.
            polling_max: (options.cores / 2).max(1),
            block_bytes: options.block_bytes.max(1),
            news: Mutex::new(News::new(options.server)),
            schedule: Mutex::default(),
            wake: thread::Wake::default(),
        };
        Ok(Self {
            shared: Arc::new(shared),
            thread: Thread::default(),
        })
    }

    /// Starts the background thread. A simulation calls [`Self::tick`] instead.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start(&self) -> io::Result<()> {
        self.thread.start(&self.shared)
    }

    /// Ends the background thread and closes idle connections. From now on the pool is off.
    pub fn stop(&self) {
        self.set_enabled(false);
        self.thread.stop(&self.shared);
        self.shared.close();
    }

    /// One round of background work. Returns after how many microseconds the next one is due.
    pub fn tick(&self) -> u64 {
        self.shared.tick()
    }

    /// Switches the pool on or off. Off, no call does anything.
    pub fn set_enabled(&self, enabled: bool) {
        self.shared.enabled.store(enabled, Relaxed);
        self.shared.wake.wake();
    }

    /// Whether the pool is on.
    pub fn is_enabled(&self) -> bool {
        self.shared.is_enabled()
    }

    /// Sets the nodes. Ones that stay in the list keep their connections and figures.
    ///
    /// # Errors
    /// The list is faulty; a sentence for the user says how. Nothing has changed then.
    pub fn set_nodes(&self, list: &str) -> Result<(), String> {
        let specs = parse_nodes(list)?;
        let _one_at_a_time = self.shared.setting_nodes.lock();
        let old = self.shared.ring.load_full();
        self.shared
            .ring
            .store(Arc::new(Ring::new(specs, &old, &self.shared.log)));
        self.shared.schedule.lock().hurry();
        self.shared.wake.wake();
        Ok(())
    }

    /// A block of this class was read from its file in so many microseconds. The pool compares that
    /// with its own times.
    pub fn note_file_read(&self, class: Class, us: u64) {
        self.shared.costs.files.on_read(class, us);
    }

    /// A read of the pool, for which the caller would have read the file once, has taken so many
    /// microseconds. All of it came or a part. A class of which no such reads are noted is compared
    /// by the time of an answer.
    pub fn note_pool_read(&self, class: Class, us: u64) {
        self.shared.costs.pool.on_read(class, us);
    }

    /// The figures of now.
    pub fn stats(&self) -> PoolStats {
        let shared = &self.shared;
        let (fingerprints, fingerprint_bytes) = shared.known.size();
        let (queued_puts, queued_bytes) = shared.queue.len();
        let ring = shared.ring.load();
        PoolStats {
            nodes: ring
                .weighted()
                .map(|(weight, node)| node.stats(weight))
                .collect(),
            skips: std::array::from_fn(|class| shared.skips[class].snapshot()),
            fingerprints,
            fingerprint_bytes,
            queued_puts: queued_puts as u64,
            queued_bytes: queued_bytes as u64,
            hot_blocks: shared.hot.copied(),
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn is_enabled(&self) -> bool {
        self.enabled.load(Relaxed)
    }

    /// The name under which nodes know a block.
    fn masked(&self, name: &Name) -> Name {
        name.masked(&self.name_mask)
    }

    fn close(&self) {
        for node in self.ring.load().nodes() {
            node.close();
        }
    }
}

#[cfg(test)]
mod tests;
