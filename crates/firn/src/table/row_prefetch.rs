//! Prefetches the rows that a scan of a secondary index is about to read.

use super::read_mode::Entries;
use super::row_fetch::RowFetch;
use crate::read::{MULTI_GET_BATCH, ReadPoint, prefetch_blocks};

/// Rows that pass before anything is announced: most ranges are short.
const PATIENCE: u32 = 2;
/// Rows announced first; then four times as many, up to [`MULTI_GET_BATCH`].
const WINDOW_MIN: usize = 8;
/// Rows that pass unannounced after a batch of which all blocks were cached.
const PAUSE: u32 = 8 * MULTI_GET_BATCH as u32;

/// Announces the rows that the next entries of a secondary index lead to, so that their blocks are
/// read at the same time and not one after the other.
///
/// The keys come from the block of the index that is at hand. They are a hint: the rows are read
/// one by one as ever, with locks or without, in the order of the index.
///
/// Rejected: to read a batch of rows ahead and hand them out. It would have to be thrown away when
/// the transaction writes, turns round or takes a newer view, and rows under locks cannot be read
/// ahead at all.
pub(super) struct RowPrefetch {
    /// Rows to pass before the next batch.
    wait: u32,
    window: usize,
    /// Row keys, one after the other, and where each ends.
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

    /// A scan begins.
    pub(super) fn restart(&mut self) {
        self.wait = PATIENCE;
        self.window = WINDOW_MIN;
    }

    /// The scan stands on an entry whose row is read next.
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
            // A damaged entry is found when its turn comes.
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
