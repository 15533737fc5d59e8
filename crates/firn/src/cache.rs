//! The block cache, which keeps decoded blocks, and the row cache, which keeps single rows.

mod block_cache;
mod pin_budget;
mod pin_clock;
mod row_cache;
mod stats;

pub use block_cache::{BlockCache, BlockKey, Weighted};
pub use pin_budget::{Pin, PinBudget, PinStats};
pub use pin_clock::{Evictable, Eviction};
pub use row_cache::{KeyHash, RowCache, SealPoint};
pub use stats::CacheStats;
