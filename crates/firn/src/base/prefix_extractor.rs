//! Boundaries of key parts. The layer that encodes keys implements these traits; the layers that
//! write files call them, for example to count distinct values of a prefix.

use super::IndexId;
use std::sync::Arc;

/// The key layout of one index. Methods may be called from any thread.
pub trait PrefixExtractor: Send + Sync {
    /// Number of prefixes of a key whose distinct values are counted: the first part alone, the
    /// first two parts, and so on. For a unique index, the prefix of all parts is left out, since
    /// each row has another value of it.
    fn prefixes(&self) -> usize;

    /// Length of part `part` (from 0) in bytes, if it is the same in all keys.
    fn fixed_len(&self, part: usize) -> Option<usize>;

    /// Offset at which part `part` (from 0) of `user_key` ends; the part begins at offset `from`.
    /// `None` if the bytes are no key of this layout.
    fn part_end(&self, user_key: &[u8], part: usize, from: usize) -> Option<usize>;
}

/// The key layouts of all indexes.
pub trait PrefixExtractors: Send + Sync {
    /// The key layout of an index; `None` if it is unknown, or if there is no prefix to count.
    fn prefix_extractor(&self, index: IndexId) -> Option<Arc<dyn PrefixExtractor>>;
}

/// Knows the layout of no index.
#[derive(Debug, Clone, Copy)]
pub struct NoPrefixExtractors;

impl PrefixExtractors for NoPrefixExtractors {
    fn prefix_extractor(&self, _: IndexId) -> Option<Arc<dyn PrefixExtractor>> {
        None
    }
}
