//! The memory pool: memcached nodes that hold hot stored blocks for all servers of a database.
//!
//! A pool is a cache that nobody trusts and nobody waits for. A [`Pool::get`] returns exactly the
//! bytes that were put under the name, or nothing, and then the caller reads the file. Nodes may
//! come, go, hang, evict and lie.
//!
//! The crate knows nothing of the engine, which calls it with names, classes and bytes. All sockets
//! and the clock are behind traits ([`Link`], [`Clock`]); [`mem::MemPool`] is their simulated twin.
//!
//! | layer | modules |
//! |---|---|
//! | 0 | `random`, `name`, `class`, `latency`, `node_list` |
//! | 1 | `link`, `meta`, `cipher`, `breaker`, `rendezvous`, `fingerprints` |
//! | 1 | `first_touches`, `hot_blocks`, `ask` |
//! | 2 | `mem`, `connection`, `value`, `counters`, `known`, `news`, `put_queue`, `options` |
//! | 3 | `node` |
//! | 4 | `ring` |
//! | 5 | `pool` |

mod ask;
mod breaker;
mod cipher;
mod class;
mod connection;
mod counters;
mod fingerprints;
mod first_touches;
mod hot_blocks;
mod known;
mod latency;
mod link;
pub mod mem;
mod meta;
mod name;
mod news;
mod node;
mod node_list;
mod options;
mod pool;
mod put_queue;
mod random;
mod rendezvous;
mod ring;
mod value;

pub use cipher::Key;
pub use class::{Admission, CLASSES, Class};
pub use counters::{ClassStats, NodeStats, PoolStats, SkipStats};
pub use latency::BUCKETS;
pub use link::{Clock, Link, Socket, SystemLink, TlsFiles};
pub use meta::VALUE_LEN_MAX;
pub use name::{NAME_LEN, Name};
pub use node::Log;
pub use node_list::{Address, NODES_MAX, NodeSpec, parse_nodes};
pub use options::Options;
pub use pool::{Outlook, Pool, WantedBlock};
pub use random::SplitMix64;
pub use value::Stored;
