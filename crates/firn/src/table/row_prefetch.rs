//! Prefetches the rows that a scan of a secondary index is about to read.

use super::read_mode::Entries;
use super::row_fetch::RowFetch;
use crate::read::{MULTI_GET_BATCH, ReadPoint, prefetch_blocks};

/// Number of rows that a scan reads before its first prefetch, because most ranges are short.
const PATIENCE: u32 = 2;
/// Number of rows of the first prefetch. Each further one has four times as many, up to
/// [`MULTI_GET_BATCH`].
const WINDOW_MIN: usize = 8;
/// Number of rows that a scan reads without prefetches after a prefetch that found all blocks in
/// the cache.
const PAUSE: u32 = 8 * MULTI_GET_BATCH as u32;

/// Prefetches the rows that the next entries of a secondary index lead to, so that their blocks are
/// read at the same time and not one after the other.
///
/// The row keys come from the entries behind the scan's position in its index block. They are a
/// hint: the rows are still read one by one, with or without locks, in the order of the index.
///
/// Rejected: reading a batch of rows ahead and returning them later. The batch would be invalid
/// when the transaction writes, changes direction or takes a newer super version, and rows that
/// must be locked cannot be read ahead at all.
pub(super) struct RowPrefetch {
    /// Rows that the scan still reads before the next prefetch.
    wait: u32,
    window: usize,
    /// Row keys, one after the other; `ends` has the offset at which each ends.
    keys: Vec<u8>,
    ends: Vec<usize>,
}

impl RowPrefetch {
    pub(super) fn new() -> Self {
        Self {
            wait: PATIENCE,
            window: WINDOW_MIN,
            keys: Vec::new(),
            ends: Vec::new(),
        }
    }

    /// Begins anew, because a new scan begins.
    pub(super) fn restart(&mut self) {
        self.wait = PATIENCE;
        self.window = WINDOW_MIN;
    }

    /// Frees the buffer of keys.
    pub(super) fn park(&mut self) {
        if self.keys.capacity() > 0 {
            self.keys = Vec::new();
            self.ends = Vec::new();
        }
    }

    /// Called for each entry before its row is read. Prefetches when the rows of the last prefetch
    /// are used up.
    #[inline]
    pub(super) fn pass(&mut self, fetch: &RowFetch, entries: &Entries, point: &ReadPoint) {
        match self.wait.checked_sub(1) {
            Some(wait) => self.wait = wait,
            None => self.prefetch(fetch, entries, point),
        }
    }

    fn prefetch(&mut self, fetch: &RowFetch, entries: &Entries, point: &ReadPoint) {
        self.keys.clear();
        self.ends.clear();
        let (keys, ends) = (&mut self.keys, &mut self.ends);
        entries.peek(self.window, &mut |entry| {
            // Ignore a damaged entry here: the scan reports it when it reaches it.
            if fetch.push_row_key(entry, keys).is_ok() {
                ends.push(keys.len());
            }
        });
        let mut sorted = [&[][..]; MULTI_GET_BATCH];
        let mut start = 0;
        for (key, &end) in sorted.iter_mut().zip(&self.ends) {
            *key = &self.keys[start..end];
            start = end;
        }
        let sorted = &mut sorted[..self.ends.len()];
        sorted.sort_unstable();
        let blocks = prefetch_blocks(&point.super_version, sorted, point.seqno);
        self.window = (self.window * 4).min(MULTI_GET_BATCH);
        self.wait = match blocks {
            0 => PAUSE,
            _ => sorted.len() as u32,
        };
    }
}
