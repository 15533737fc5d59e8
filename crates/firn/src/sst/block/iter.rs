//! Iteration over one data block.

use super::Block;
use super::entry::RawEntry;
use super::key_buf::KeyBuf;
use super::search::{DAMAGED_ENTRY, split_trailer};
use crate::base::{InternalKey, Kind, Seqno, Value, key};
use crate::sst::decode_error::{DecodeError, Decoded};
use std::cmp::Ordering;
use std::sync::Arc;

/// The decoded entries of one restart interval, from its first entry to the furthest that was
/// needed.
#[derive(Default)]
struct IntervalEntries {
    restart: Option<u32>,
    /// Each entry, and the end of its key in `keys`.
    entries: Vec<(RawEntry, usize)>,
    keys: Vec<u8>,
}

/// The current entry of a cursor: its assembled key, and the spans of its value.
#[derive(Default, Clone)]
struct IterPosition {
    /// Number of the entry in the block.
    ordinal: u32,
    entry: RawEntry,
    seqno: Seqno,
    kind: Option<Kind>,
    /// The assembled key. In a block with keys of one length it may be the key of an earlier entry:
    /// after [`BlockIter::next_without_key`], until [`BlockIter::restore_key`].
    key: KeyBuf,
    /// Whether `key` is the key of an earlier entry. Debug builds keep this to check that nobody
    /// uses that key.
    #[cfg(debug_assertions)]
    key_is_stale: bool,
}

/// A cursor over one block at a time. Its buffers are reused from block to block.
///
/// To step backward, the cursor must decode entries from the last restart before the wanted entry
/// on. It keeps all of them, so that a backward scan decodes each restart interval once, not once
/// for each entry.
///
/// Every move returns whether the cursor stands on an entry; after an error it stands on none.
#[derive(Default)]
pub(in crate::sst) struct BlockIter {
    block: Option<Arc<Block>>,
    valid: bool,
    at: IterPosition,
    /// Allocated at the first step backward.
    kept: Option<Box<IntervalEntries>>,
}

impl BlockIter {
    /// Enters `block`, without a position in it yet.
    pub(in crate::sst) fn enter(&mut self, block: Arc<Block>) {
        self.leave();
        self.block = Some(block);
    }

    /// Releases the block, and keeps the buffers for the next one.
    pub(in crate::sst) fn leave(&mut self) {
        self.block = None;
        if let Some(kept) = &mut self.kept {
            kept.restart = None;
        }
        self.valid = false;
    }

    #[inline]
    pub(in crate::sst) fn valid(&self) -> bool {
        self.valid
    }

    #[inline]
    pub(in crate::sst) fn key(&self) -> InternalKey<'_> {
        debug_assert!(self.valid);
        let at = &self.at;
        #[cfg(debug_assertions)]
        assert!(!at.key_is_stale, "a stale key");
        InternalKey::new(at.key.as_slice(), at.seqno, at.kind.unwrap_or(Kind::Delete))
    }

    #[inline]
    pub(in crate::sst) fn value(&self) -> Value<'_> {
        debug_assert!(self.valid);
        match &self.block {
            Some(block) => block.value(self.at.entry.head, self.at.entry.tail),
            None => Value::EMPTY,
        }
    }

    /// The block that the cursor is in, if it is in one.
    pub(in crate::sst) fn block(&self) -> Option<Arc<Block>> {
        self.block.clone()
    }

    /// Number of the current entry in its block.
    #[inline]
    pub(in crate::sst) fn ordinal(&self) -> u32 {
        self.at.ordinal
    }

    /// See [`crate::base::InternalIterator::rows_ahead`]. `sees` is called with stored seqnos, not
    /// with the external one. Returns 0 in blocks with keys of different lengths, which are rare.
    pub(in crate::sst) fn rows_ahead(
        &self,
        limit: Option<&[u8]>,
        sees: impl Fn(Seqno) -> bool,
    ) -> u32 {
        match &self.block {
            Some(block) if self.valid && block.is_fixed() => {
                block.rows_after(self.at.ordinal, limit, sees)
            }
            _ => 0,
        }
    }

    /// Moves to the next entry without checks. Allowed only if [`Self::rows_ahead`] has counted
    /// that entry and so has checked it.
    #[inline]
    pub(in crate::sst) fn next_unchecked(&mut self) {
        if let Some(block) = &self.block {
            self.at.next_unchecked(block);
        }
    }

    /// As `rows` calls of [`Self::next_unchecked`].
    pub(in crate::sst) fn skip_unchecked(&mut self, rows: u32) {
        debug_assert!(rows > 0);
        if let Some(block) = &self.block {
            self.at.ordinal += rows - 1;
            self.at.next_unchecked(block);
        }
    }

    /// As [`Self::next_unchecked`], but does not assemble the entry's key, which must not be used
    /// until [`Self::restore_key`] has assembled it. Returns kind and value of the entry.
    #[inline]
    pub(in crate::sst) fn next_without_key(&mut self) -> (Kind, Value<'_>) {
        match &self.block {
            Some(block) => {
                let kind = self.at.next_without_key(block);
                let entry = &self.at.entry;
                (kind, block.value(entry.head, entry.tail))
            }
            None => (Kind::Delete, Value::EMPTY),
        }
    }

    /// Assembles the key of the entry under the cursor, after [`Self::next_without_key`].
    pub(in crate::sst) fn restore_key(&mut self) {
        if let Some(block) = self.block.as_ref().filter(|block| block.is_fixed()) {
            self.at.assemble_fixed_key(block);
        }
    }

    /// See [`crate::base::InternalIterator::peek`].
    pub(in crate::sst) fn peek(&self, count: usize, show: &mut dyn FnMut(&[u8])) {
        let Some(block) = self.block.as_ref().filter(|_| self.valid) else {
            return;
        };
        let mut at = self.at.clone();
        let mut shown = 0;
        while shown < count && at.step(block) == Ok(true) {
            if at.kind.is_some_and(Kind::is_put) {
                show(at.key.as_slice());
                shown += 1;
            }
        }
    }

    pub(in crate::sst) fn seek_to_first(&mut self) -> Decoded<bool> {
        self.moved(|at, block, _| match block.is_fixed() {
            true => at.seek_to_fixed(block, 0),
            false => at.seek_to_restart(block, 0),
        })
    }

    pub(in crate::sst) fn seek_to_last(&mut self) -> Decoded<bool> {
        self.moved(|at, block, kept| at.seek_to_ordinal(block, block.header.entries - 1, kept))
    }

    /// Moves to the first entry of the block at or after (`user_key`, `seqno`).
    pub(in crate::sst) fn seek(&mut self, user_key: &[u8], seqno: Seqno) -> Decoded<bool> {
        self.moved(|at, block, _| {
            if block.is_fixed() {
                let ordinal = block.fixed_lower_bound(user_key, seqno)?;
                return match ordinal < block.header.entries {
                    true => at.seek_to_fixed(block, ordinal),
                    false => Ok(false),
                };
            }
            let restart = block.restart_before(user_key, seqno)?;
            let mut found = at.seek_to_restart(block, restart)?;
            while found
                && key::compare(at.key.as_slice(), at.seqno, user_key, seqno) == Ordering::Less
            {
                found = at.step(block)?;
            }
            Ok(found)
        })
    }

    #[inline]
    pub(in crate::sst) fn next(&mut self) -> Decoded<bool> {
        debug_assert!(self.valid);
        self.moved(|at, block, _| at.step(block))
    }

    pub(in crate::sst) fn prev(&mut self) -> Decoded<bool> {
        debug_assert!(self.valid);
        self.moved(|at, block, kept| match at.ordinal.checked_sub(1) {
            Some(ordinal) => at.seek_to_ordinal(block, ordinal, kept),
            None => Ok(false),
        })
    }

    #[inline]
    fn moved(
        &mut self,
        f: impl FnOnce(&mut IterPosition, &Block, &mut Option<Box<IntervalEntries>>) -> Decoded<bool>,
    ) -> Decoded<bool> {
        self.valid = false;
        let Some(block) = &self.block else {
            return Ok(false);
        };
        let on = f(&mut self.at, block, &mut self.kept)?;
        self.valid = on;
        Ok(on)
    }
}

impl IterPosition {
    fn seek_to_restart(&mut self, block: &Block, restart: u32) -> Decoded<bool> {
        let at = block.restart(restart).ok_or(DAMAGED_ENTRY)?;
        self.ordinal = restart * block.header.restart_interval;
        self.key.truncate(0);
        self.load(block, at)
    }

    /// Moves to the entry after the current one.
    #[inline]
    fn step(&mut self, block: &Block) -> Decoded<bool> {
        if self.ordinal + 1 >= block.header.entries {
            return Ok(false);
        }
        self.ordinal += 1;
        if block.is_fixed() {
            self.load_fixed(block)
        } else {
            self.load(block, self.entry.next)
        }
    }

    /// Decodes entry `self.ordinal`, whose key lies at offset `at`; `self.key` still holds the key
    /// of the entry before.
    #[inline]
    fn load(&mut self, block: &Block, at: u32) -> Decoded<bool> {
        let entry = block.entry(at, self.ordinal).ok_or(DAMAGED_ENTRY)?;
        if entry.shared as usize > self.key.len() {
            return Err(DecodeError::Corrupt(
                "key shares more than its predecessor has",
            ));
        }
        self.key.truncate(entry.shared as usize);
        self.key.extend(block.slice(entry.suffix));
        self.key_is_current();
        self.stand_on(entry)
    }

    /// Decodes entry `self.ordinal` of a block with keys of one length; `self.key` already starts
    /// with the common prefix.
    #[inline]
    fn load_fixed(&mut self, block: &Block) -> Decoded<bool> {
        let (trailer, head, tail) = block.parts(self.ordinal).ok_or(DAMAGED_ENTRY)?;
        self.assemble_fixed_key(block);
        self.stand_on(RawEntry {
            trailer,
            head,
            tail,
            ..RawEntry::default()
        })
    }

    /// Moves to the next entry of a block with keys of one length. The entry exists, and
    /// `rows_ahead` has checked that its trailer is that of a put.
    #[inline]
    fn next_unchecked(&mut self, block: &Block) {
        self.next_without_key(block);
        self.assemble_fixed_key(block);
    }

    /// As [`Self::next_unchecked`], but leaves in `key` the key of an earlier entry. Returns the
    /// entry's kind.
    #[inline]
    fn next_without_key(&mut self, block: &Block) -> Kind {
        self.ordinal += 1;
        #[cfg(debug_assertions)]
        {
            self.key_is_stale = true;
        }
        let mut kind = Kind::Put;
        if let Some((trailer, head, tail)) = block.parts(self.ordinal) {
            self.entry.head = head;
            self.entry.tail = tail;
            self.seqno = trailer >> 8;
            if trailer as u8 != Kind::Put as u8 {
                kind = Kind::PutBlobs;
            }
        }
        self.kind = Some(kind);
        kind
    }

    /// Assembles in `key` the key of entry `self.ordinal`, in a block with keys of one length.
    /// `key` already starts with the common prefix.
    #[inline]
    fn assemble_fixed_key(&mut self, block: &Block) {
        self.key.truncate(block.header.prefix_len as usize);
        self.key.extend(block.fixed_suffix(self.ordinal));
        self.key_is_current();
    }

    #[inline]
    fn key_is_current(&mut self) {
        #[cfg(debug_assertions)]
        {
            self.key_is_stale = false;
        }
    }

    #[inline]
    fn stand_on(&mut self, entry: RawEntry) -> Decoded<bool> {
        let (seqno, kind) = split_trailer(entry.trailer)?;
        self.seqno = seqno;
        self.kind = Some(kind);
        self.entry = entry;
        Ok(true)
    }

    fn seek_to_fixed(&mut self, block: &Block, ordinal: u32) -> Decoded<bool> {
        self.ordinal = ordinal;
        self.key.truncate(0);
        self.key.extend(block.key_prefix());
        self.load_fixed(block)
    }

    fn seek_to_ordinal(
        &mut self,
        block: &Block,
        ordinal: u32,
        kept: &mut Option<Box<IntervalEntries>>,
    ) -> Decoded<bool> {
        if block.is_fixed() {
            return self.seek_to_fixed(block, ordinal);
        }
        self.ordinal = ordinal;
        let restart = ordinal / block.header.restart_interval;
        let index = (ordinal % block.header.restart_interval) as usize;
        let kept = kept.get_or_insert_default();
        if kept.restart != Some(restart) || kept.entries.len() <= index {
            kept.fill(block, restart, index)?;
        }
        let start = match index.checked_sub(1) {
            Some(before) => kept.entries[before].1,
            None => 0,
        };
        let (entry, key_end) = kept.entries[index];
        self.key.truncate(0);
        self.key.extend(&kept.keys[start..key_end]);
        self.key_is_current();
        self.stand_on(entry)
    }
}

impl IntervalEntries {
    /// Decodes the first `last + 1` entries of restart interval `restart`.
    fn fill(&mut self, block: &Block, restart: u32, last: usize) -> Decoded<()> {
        self.restart = None;
        self.entries.clear();
        self.keys.clear();
        let mut at = block.restart(restart).ok_or(DAMAGED_ENTRY)?;
        let mut before = 0..0;
        let first = restart * block.header.restart_interval;
        for i in 0..=last as u32 {
            let entry = block.entry(at, first + i).ok_or(DAMAGED_ENTRY)?;
            let shared = entry.shared as usize;
            if shared > before.len() {
                return Err(DecodeError::Corrupt(
                    "key shares more than its predecessor has",
                ));
            }
            let start = self.keys.len();
            self.keys
                .extend_from_within(before.start..before.start + shared);
            self.keys.extend_from_slice(block.slice(entry.suffix));
            before = start..self.keys.len();
            self.entries.push((entry, before.end));
            at = entry.next;
        }
        self.restart = Some(restart);
        Ok(())
    }
}
