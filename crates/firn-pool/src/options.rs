//! Options of the pool.

use crate::cipher::Key;

/// Options that do not change while the pool lives.
pub struct Options {
    /// Number of this server among those that share the nodes. It stays the same over restarts, so
    /// that a server finds its own news again.
    pub server: u64,
    /// Key under which values are encrypted.
    pub key: Option<Key>,
    /// Processor cores: callers poll in fewer threads than half of them.
    pub cores: usize,
    /// Bytes of puts that may wait.
    pub queue_bytes: usize,
    /// Mean bytes of a stored block, to size the fingerprint table by the memory of the nodes.
    pub block_bytes: u64,
    /// Most bytes of a generation of that table, whatever the nodes say of their memory.
    pub table_bytes_max: u64,
    /// Blocks whose first load is remembered, 4 bytes each. Where more are loaded within the
    /// window,
    /// the oldest are forgotten, and fewer blocks are admitted.
    pub first_touches: u64,
}

impl Options {
    /// The defaults for a server of this number.
    pub fn new(server: u64) -> Self {
        Self {
            server,
            key: None,
            cores: std::thread::available_parallelism().map_or(2, usize::from),
            queue_bytes: 16 << 20,
            block_bytes: 7000,
            table_bytes_max: 256 << 20,
            first_touches: 1 << 20,
        }
    }
}
