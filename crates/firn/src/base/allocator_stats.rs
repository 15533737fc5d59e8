//! Statistics of the memory allocator, from whoever has chosen it.

/// Memory of the process's allocator that serves the engine, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AllocatorBytes {
    /// Memory that is allocated.
    pub allocated: u64,
    /// Pages with allocated memory: `allocated`, and the gaps between the allocations.
    pub active: u64,
    /// Addresses of the allocator's own structures, which `active` leaves out.
    pub metadata: u64,
    /// Memory that the system has given and can get back only from the allocator: `active`,
    /// `metadata`, and unused pages that the allocator keeps for a while.
    pub resident: u64,
    /// Addresses that the allocator keeps without memory.
    pub retained: u64,
    /// Freed pieces that threads keep for themselves, a part of `allocated`.
    pub thread_caches: u64,
    /// Memory of the engine from another allocator, that of the C library: contexts of ZSTD.
    pub outside: u64,
}

impl AllocatorBytes {
    /// Memory in use: what stays resident when the allocator gives all unused pages back. Part of
    /// `metadata` may never have been touched, so it is not resident.
    pub fn in_use(&self) -> u64 {
        (self.active + self.metadata).min(self.resident) + self.outside
    }
}

/// The memory allocator of the engine. The crate that chooses the allocator implements it; tests
/// may report any numbers.
pub trait AllocatorStats: Send + Sync {
    /// The present numbers. A call takes some hundred microseconds, and longer the more threads
    /// there are.
    fn read(&self) -> AllocatorBytes;

    /// Gives the pages back that have been unused for long. A thread that is idle would keep them
    /// otherwise.
    fn decay(&self);

    /// Gives all unused pages back.
    fn purge(&self);

    /// Its name, and the options that it has taken, for the status.
    fn describe(&self) -> String;
}
