//! Readings of the memory allocator's statistics, and the pages that it gives back.

use crate::base::allocator_stats::{AllocatorBytes, AllocatorStats};
use crate::env::Env;
use parking_lot::Mutex;
use std::sync::Arc;

/// A reading serves this long, microseconds: reading takes the locks of all arenas in turn, and the
/// statistics are asked for by each SHOW STATUS and by writers.
const READ_EVERY_US: u64 = 100_000;

/// Watches the allocator of a database; one that has none to watch reports zeros.
pub(super) struct AllocatorWatch {
    source: Option<Arc<dyn AllocatorStats>>,
    env: Arc<dyn Env>,
    last: Mutex<Option<AllocatorReading>>,
}

/// A reading of the allocator's statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct AllocatorReading {
    /// When it was taken, microseconds.
    pub(super) at_us: u64,
    pub(super) bytes: AllocatorBytes,
    /// Memory in use that the engine did not count at that time, bytes.
    pub(super) uncounted: u64,
}

impl AllocatorWatch {
    pub(super) fn new(source: Option<Arc<dyn AllocatorStats>>, env: Arc<dyn Env>) -> Self {
        Self {
            source,
            env,
            last: Mutex::new(None),
        }
    }

    /// Whether there is an allocator to watch.
    pub(super) fn is_present(&self) -> bool {
        self.source.is_some()
    }

    /// A reading at most `READ_EVERY_US` old; `None` if there is no allocator to watch. `counted`
    /// returns the bytes that the engine counts; comparing an old reading with the present count
    /// would take a memtable that was just flushed for uncounted memory.
    pub(super) fn read(&self, counted: impl FnOnce() -> u64) -> Option<AllocatorReading> {
        let source = self.source.as_ref()?;
        let mut last = self.last.lock();
        let now = self.env.monotonic_micros();
        if let Some(reading) = *last
            && now.saturating_sub(reading.at_us) < READ_EVERY_US
        {
            return Some(reading);
        }
        let bytes = source.read();
        let reading = AllocatorReading {
            at_us: now,
            bytes,
            uncounted: bytes.in_use().saturating_sub(counted()),
        };
        *last = Some(reading);
        Some(reading)
    }

    /// Gives the pages back that have been unused for long, and all unused pages if more than
    /// `limit` was resident at the last reading; 0 for no limit. Below the limit, pages that may
    /// soon be used again stay, because the system zeroes each page that it gives.
    pub(super) fn give_back(&self, limit: u64) {
        let Some(source) = &self.source else { return };
        let resident = self.last.lock().unwrap_or_default().bytes.resident;
        if limit > 0 && resident > limit {
            source.purge();
        } else {
            source.decay();
        }
    }
}

#[cfg(test)]
mod tests;
