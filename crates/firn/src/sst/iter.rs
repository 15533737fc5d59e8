//! An iterator over one SST.

use super::block::{Block, BlockIter};
use super::decode_error::Decoded;
use super::dictionary::Dictionary;
use super::format::Handle;
use super::index::{BlockPosition, Partition};
use super::read_ahead::{READ_AHEAD, READ_AHEAD_FROM, READ_AHEAD_MIN, ReadAhead};
use super::reader::{BlockInfo, BlockWindow, SstReader};
use super::stored_block::StoredBlock;
use crate::base::key::{SEQNO_MAX, UNCOMMITTED_BIT};
use crate::base::{
    BlockResidence, Error, InternalIterator, InternalKey, Kind, Result, Seqno, Value,
};
use crate::env::ReadClass;
use std::sync::Arc;

/// An iterator over all entries of an SST.
///
/// A seek finds the block by the index and searches in it. `next` and `prev` enter another block
/// only at the end of the current one. After several blocks in a row the iterator uses readahead,
/// whose reads grow the longer the scan goes on. The iterator holds references to the current block
/// and index partition, so they stay in memory even if the cache evicts them.
///
/// With `fill_cache`, blocks are read through the block cache and stay there. Without it (for
/// compactions), blocks that are cached are used, and others are read in large pieces and not
/// cached, because a compaction must not evict the blocks that queries need.
///
/// Invariant: after an error the iterator has no position, because `enter` leaves the old block
/// before it reads the new one.
pub struct SstIter {
    reader: Arc<SstReader>,
    /// The file's external seqno, if it has one: all entries show it instead of their stored seqno.
    external: Option<Seqno>,
    /// The purpose of the reads, before readahead.
    class: ReadClass,
    fill_cache: bool,
    spot: Option<BlockPosition>,
    /// The index partition used last, with its number. It is kept even when the iterator loses its
    /// position.
    partition: Option<(u32, Arc<Partition>)>,
    cursor: BlockIter,
    /// Where the current block is kept in memory. Set only without `fill_cache`.
    residence: BlockResidence,
    /// `next_offset` is the file offset at which the block after the current one begins. `in_a_row`
    /// is the number of blocks that the scan has entered each directly after the one before it in
    /// the file. Both serve readahead, and only in forward scans.
    next_offset: u64,
    in_a_row: u32,
    /// The readahead buffer, allocated when it is first needed.
    ahead: Option<Box<ReadAhead>>,
    /// The dictionaries of the blocks that [`Self::stored_block`] has returned.
    copied_dictionaries: Vec<Arc<Dictionary>>,
}

impl SstReader {
    /// An iterator over all entries for the purpose `class`, which has no position yet. With
    /// `fill_cache`, what it reads goes into the block cache.
    pub fn iter(self: &Arc<Self>, class: ReadClass, fill_cache: bool) -> SstIter {
        SstIter {
            reader: self.clone(),
            external: self.external_seqno(),
            class,
            fill_cache,
            spot: None,
            partition: None,
            cursor: BlockIter::default(),
            residence: BlockResidence::default(),
            next_offset: u64::MAX,
            in_a_row: 0,
            ahead: None,
            copied_dictionaries: Vec::new(),
        }
    }
}

impl SstIter {
    /// The reader of the file that the iterator walks over.
    pub fn reader(&self) -> &Arc<SstReader> {
        &self.reader
    }

    /// Moves the cursor into the block at `spot`, unless it is there already.
    fn enter(&mut self, spot: BlockPosition) -> Result<()> {
        if self.spot != Some(spot) {
            // Leave the old block first: after an error the iterator must have no position.
            self.leave();
            let handle = self.partition(spot.partition)?.block(spot.block).handle;
            let block = if self.fill_cache {
                self.filling(spot.block, handle)?
            } else {
                let held = self.reader.cached(handle);
                self.residence = BlockResidence {
                    cached: held.is_some(),
                    pooled: self.reader.is_in_pool(handle.offset),
                };
                match held {
                    Some(block) => block,
                    None => {
                        let class = self.class.reading_ahead();
                        let partition = self.partition.as_ref();
                        let window = BlockWindow::of(partition, spot.block, READ_AHEAD)?;
                        let ahead = self.ahead.get_or_insert_default();
                        ahead
                            .block(&self.reader, handle, &window, class, false)
                            .map(Arc::new)?
                    }
                }
            };
            self.cursor.enter(block);
            self.spot = Some(spot);
        }
        Ok(())
    }

    /// The data block at `handle`, block `number` of the current partition, which stays in the
    /// block cache. If the iterator enters blocks in a row, forwards, readahead reads several
    /// blocks at once.
    fn filling(&mut self, number: u32, handle: Handle) -> Result<Arc<Block>> {
        self.in_a_row = match self.next_offset == handle.offset {
            true => self.in_a_row.saturating_add(1),
            false => 0,
        };
        self.next_offset = handle.end();
        let Some(doublings) = self.in_a_row.checked_sub(READ_AHEAD_FROM) else {
            return self.reader.block(handle, self.class, true);
        };
        let window = (READ_AHEAD_MIN << doublings.min(16)).min(READ_AHEAD);
        let class = self.class.reading_ahead();
        let (reader, ahead) = (&self.reader, &mut self.ahead);
        let partition = self.partition.as_ref();
        reader.block_by(handle, class, || {
            let window = BlockWindow::of(partition, number, window)?;
            let ahead = ahead.get_or_insert_default();
            ahead.block(reader, handle, &window, class, true)
        })
    }

    /// Index partition `number`. Needs no lookup in the block cache if the iterator used it last.
    fn partition(&mut self, number: u32) -> Result<&Arc<Partition>> {
        if self.partition.as_ref().is_none_or(|(at, _)| *at != number) {
            let piece = self.reader.partition(number, self.class, self.fill_cache)?;
            self.partition = Some((number, piece.into_shared()));
        }
        Ok(&self.partition.as_ref().expect("just set").1)
    }

    fn leave(&mut self) {
        self.cursor.leave();
        self.spot = None;
    }

    /// Unwraps `moved`, the result of a move inside the current block. If the move failed, adds the
    /// file's name and the block's offset to the error and takes away the iterator's position.
    #[inline]
    fn checked(&mut self, moved: Decoded<bool>) -> Result<bool> {
        let damage = match moved {
            Ok(moved) => return Ok(moved),
            Err(damage) => damage,
        };
        let handle = match (self.spot, &self.partition) {
            (Some(spot), Some((_, partition))) => partition.block(spot.block).handle,
            _ => Handle::default(),
        };
        self.leave();
        Err(self.reader.damaged(damage, handle))
    }

    /// Moves to the first entry of the block at `spot`. If `spot` is `None`, the iterator has no
    /// position afterwards.
    fn first_from(&mut self, spot: Option<BlockPosition>) -> Result<bool> {
        let Some(spot) = spot else {
            self.leave();
            return Ok(false);
        };
        self.enter(spot)?;
        let moved = self.cursor.seek_to_first();
        self.checked(moved)
    }

    /// Moves to the last entry of the block at `spot`. If `spot` is `None`, the iterator has no
    /// position afterwards.
    fn last_until(&mut self, spot: Option<BlockPosition>) -> Result<bool> {
        let Some(spot) = spot else {
            self.leave();
            return Ok(false);
        };
        self.enter(spot)?;
        let moved = self.cursor.seek_to_last();
        self.checked(moved)
    }

    /// The index entry of the current block, if the iterator stands on the first entry of the
    /// block.
    #[inline]
    pub fn block_begun(&self) -> Option<BlockInfo<'_>> {
        if !self.cursor.valid() || self.cursor.ordinal() != 0 {
            return None;
        }
        let (spot, (_, partition)) = (self.spot?, self.partition.as_ref()?);
        let entry = partition.block(spot.block);
        let separator = partition.separator(spot.block);
        Some(BlockInfo::new(separator, entry, self.external))
    }

    /// As [`InternalIterator::seek`], but compares stored seqnos even if the file has an external
    /// one.
    fn seek_stored(&mut self, user_key: &[u8], seqno: Seqno) -> Result<bool> {
        let Some(number) = self.reader.index().partition_of(user_key) else {
            self.leave();
            return Ok(false);
        };
        let block = match self.partition(number) {
            Ok(partition) => partition.find(user_key),
            Err(error) => {
                self.leave();
                return Err(error);
            }
        };
        let mut spot = BlockPosition {
            partition: number,
            block,
        };
        loop {
            self.enter(spot)?;
            let moved = self.cursor.seek(user_key, seqno);
            if self.checked(moved)? {
                return Ok(true);
            }
            // All entries of the block lie before the target. Either the key lies between the
            // block's last key and its separator, or all its versions here are too new and older
            // ones may follow in the next block.
            match self.reader.index().next(spot) {
                Some(next) => spot = next,
                None => {
                    self.leave();
                    return Ok(false);
                }
            }
        }
    }

    /// A lower bound of the stored bytes of the blocks from the current one up to the block in
    /// which `limit` lies, without that block (`None`: up to the end of the file). Computed from
    /// the top index and the current partition alone, without a read. 0 if the iterator has no
    /// position.
    pub fn bytes_ahead(&self, limit: Option<&[u8]>) -> u64 {
        let (Some(spot), Some((_, partition))) = (self.spot, self.partition.as_ref()) else {
            return 0;
        };
        let here = partition.block(spot.block).handle.offset;
        let limited = limit.and_then(|limit| self.reader.index().partition_of(limit));
        let end = match (limit, limited) {
            (Some(limit), Some(number)) if number == spot.partition => {
                partition.block(partition.find(limit)).handle.offset
            }
            (None, _) | (_, None) => self.reader.data_end(),
            _ => partition.data_end(),
        };
        end.saturating_sub(here)
    }

    /// The current block in stored form. The iterator must have a position.
    ///
    /// # Errors
    /// `Corruption` if the bytes of the block or of its dictionary are damaged; those of reading
    /// the file: `Io`.
    pub fn stored_block(&mut self) -> Result<StoredBlock<'_>> {
        let (Some(spot), Some((_, partition))) = (self.spot, self.partition.as_ref()) else {
            return Err(Error::invalid("a cursor that stands in no block"));
        };
        let entry = *partition.block(spot.block);
        let Some(block) = self.cursor.block() else {
            return Err(Error::invalid("a cursor that stands in no block"));
        };
        let class = self.class.reading_ahead();
        let ahead = self.ahead.get_or_insert_default();
        let blocks = BlockWindow {
            partition,
            first: spot.block,
            end: entry.handle.offset.saturating_add(READ_AHEAD),
        };
        let bytes = ahead.stored(&self.reader, entry.handle, &blocks, class)?;
        let dictionaries = &mut self.copied_dictionaries;
        StoredBlock::new(
            &self.reader,
            entry.handle,
            entry.stats,
            bytes,
            block,
            dictionaries,
        )
    }

    /// Moves to the first entry of the block after the current one. The iterator must have a
    /// position.
    ///
    /// # Errors
    /// As [`InternalIterator::next`].
    pub fn next_block(&mut self) -> Result<bool> {
        let next = self.spot.and_then(|spot| self.reader.index().next(spot));
        self.first_from(next)
    }
}

impl InternalIterator for SstIter {
    fn seek_to_first(&mut self) -> Result<bool> {
        let first = self.reader.index().first();
        self.first_from(first)
    }

    fn seek_to_last(&mut self) -> Result<bool> {
        let last = self.reader.index().last();
        self.last_until(last)
    }

    fn seek(&mut self, user_key: &[u8], seqno: Seqno) -> Result<bool> {
        let Some(external) = self.external else {
            return self.seek_stored(user_key, seqno);
        };
        // In a file with an external seqno each user key has one version: find it, whatever its
        // stored seqno is.
        let on = self.seek_stored(user_key, SEQNO_MAX)?;
        if on && external > seqno && self.cursor.key().user_key == user_key {
            return self.next();
        }
        Ok(on)
    }

    fn seek_before(&mut self, user_key: &[u8]) -> Result<bool> {
        if self.seek(user_key, SEQNO_MAX)? {
            self.prev()
        } else {
            self.seek_to_last()
        }
    }

    #[inline]
    fn next(&mut self) -> Result<bool> {
        let moved = self.cursor.next();
        if self.checked(moved)? {
            return Ok(true);
        }
        let next = self.spot.and_then(|spot| self.reader.index().next(spot));
        self.first_from(next)
    }

    fn prev(&mut self) -> Result<bool> {
        let moved = self.cursor.prev();
        if self.checked(moved)? {
            return Ok(true);
        }
        let prev = self.spot.and_then(|spot| self.reader.index().prev(spot));
        self.last_until(prev)
    }

    fn rows_ahead(&mut self, limit: Option<&[u8]>, snapshot: Seqno) -> u32 {
        match self.external {
            None => self.cursor.rows_ahead(limit, |seqno| {
                seqno <= snapshot && seqno & UNCOMMITTED_BIT == 0
            }),
            Some(external) if external <= snapshot => self.cursor.rows_ahead(limit, |_| true),
            Some(_) => 0,
        }
    }

    #[inline]
    fn next_unchecked(&mut self) {
        self.cursor.next_unchecked();
    }

    fn skip_unchecked(&mut self, rows: u32) {
        self.cursor.skip_unchecked(rows);
    }

    #[inline]
    fn next_without_key(&mut self) -> (Kind, Value<'_>) {
        self.cursor.next_without_key()
    }

    fn restore_key(&mut self) {
        self.cursor.restore_key();
    }

    fn peek(&self, count: usize, show: &mut dyn FnMut(&[u8])) {
        self.cursor.peek(count, show);
    }

    #[inline]
    fn valid(&self) -> bool {
        self.cursor.valid()
    }

    #[inline]
    fn key(&self) -> InternalKey<'_> {
        let key = self.cursor.key();
        match self.external {
            None => key,
            Some(seqno) => InternalKey { seqno, ..key },
        }
    }

    #[inline]
    fn value(&self) -> Value<'_> {
        self.cursor.value()
    }

    #[inline]
    fn residence(&self) -> BlockResidence {
        self.residence
    }
}
