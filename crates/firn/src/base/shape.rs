//! Where the parts of keys end: known to the layer that makes keys, asked for by those that write files.

use super::IndexId;
use std::sync::Arc;

/// The keys of one index. Called from any thread.
pub trait KeyShape: Send + Sync {
    /// Prefixes worth counting the distinct values of: the first part alone, the first two, and so
    /// on to this number. Less than all where the whole key is unique anyway.
    fn prefixes(&self) -> usize;

    /// Bytes of part `part` (from 0), if all keys have as many.
    fn fixed_len(&self, part: usize) -> Option<usize>;

    /// Where part `part` (from 0) of `user_key` ends, counted from the start of the user key; it
    /// begins at `from`. `None` if the bytes are no such key.
    fn part_end(&self, user_key: &[u8], part: usize, from: usize) -> Option<usize>;
}

/// The keys of all indexes.
pub trait KeyShapes: Send + Sync {
    /// The shape of the keys of an index; `None` if it is not known or has nothing to count.
    fn shape(&self, index: IndexId) -> Option<Arc<dyn KeyShape>>;
}

/// Knows no index.
#[derive(Debug, Clone, Copy)]
pub struct NoShapes;

impl KeyShapes for NoShapes {
    fn shape(&self, _: IndexId) -> Option<Arc<dyn KeyShape>> {
        None
    }
}
