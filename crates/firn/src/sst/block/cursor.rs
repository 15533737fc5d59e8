//! Walking over one block.

use super::Block;
use super::entry::{Pos, RawEntry};
use super::search::{DAMAGED_ENTRY, split_trailer};
use crate::base::{InternalKey, Kind, Seqno, Value, key};
use crate::sst::damage::{Damage, Decoded};
use std::cmp::Ordering;
use std::sync::Arc;

/// An entry decoded on the way to its successor, kept for steps backward.
struct Kept {
    key_end: usize,
    entry: RawEntry,
}

/// A cursor over one block at a time; its buffers serve block after block.
///
/// A step backward decodes from the restart before. The entries met on the way are kept, so that a
/// backward scan decodes each restart interval once, not once per entry.
///
/// Every move returns whether the cursor stands on an entry; after an error it stands on none.
#[derive(Default)]
pub(in crate::sst) struct BlockCursor {
    block: Option<Arc<Block>>,
    valid: bool,
    /// Number of the current entry in the block.
    ordinal: u32,
    current: RawEntry,
    seqno: Seqno,
    kind: Option<Kind>,
    key: Vec<u8>,
    kept_restart: Option<u32>,
    kept: Vec<Kept>,
    kept_keys: Vec<u8>,
}

impl BlockCursor {
    /// Moves to `block`, onto no entry.
    pub(in crate::sst) fn enter(&mut self, block: Arc<Block>) {
        self.leave();
        self.block = Some(block);
    }

    /// Lets go of the block; the buffers stay.
    pub(in crate::sst) fn leave(&mut self) {
        self.block = None;
        self.kept_restart = None;
        self.valid = false;
    }

    pub(in crate::sst) fn valid(&self) -> bool {
        self.valid
    }

    pub(in crate::sst) fn key(&self) -> InternalKey<'_> {
        debug_assert!(self.valid);
        InternalKey::new(&self.key, self.seqno, self.kind.unwrap_or(Kind::Delete))
    }

    pub(in crate::sst) fn value(&self) -> Value<'_> {
        debug_assert!(self.valid);
        match &self.block {
            Some(block) => block.value(&self.current),
            None => Value::EMPTY,
        }
    }

    /// Number of the current entry in its block.
    pub(in crate::sst) fn ordinal(&self) -> u32 {
        self.ordinal
    }

    pub(in crate::sst) fn seek_to_first(&mut self) -> Decoded<bool> {
        self.with_block(|cursor, block| cursor.seek_to_restart(block, 0))
    }

    pub(in crate::sst) fn seek_to_last(&mut self) -> Decoded<bool> {
        self.with_block(|cursor, block| cursor.seek_to_ordinal(block, block.entries - 1))
    }

    /// To the first entry at or after (`user_key`, `seqno`).
    pub(in crate::sst) fn seek(&mut self, user_key: &[u8], seqno: Seqno) -> Decoded<bool> {
        self.with_block(|cursor, block| {
            let restart = block.restart_before(user_key, seqno)?;
            let mut found = cursor.seek_to_restart(block, restart)?;
            while found
                && key::compare(&cursor.key, cursor.seqno, user_key, seqno) == Ordering::Less
            {
                found = cursor.step(block)?;
            }
            Ok(found)
        })
    }

    pub(in crate::sst) fn next(&mut self) -> Decoded<bool> {
        debug_assert!(self.valid);
        // Not through `with_block`: a scan must not pay for counting references.
        let Some(block) = self.block.take() else {
            return Ok(false);
        };
        self.valid = false;
        let moved = self.step(&block);
        self.block = Some(block);
        moved
    }

    pub(in crate::sst) fn prev(&mut self) -> Decoded<bool> {
        debug_assert!(self.valid);
        self.with_block(|cursor, block| match cursor.ordinal.checked_sub(1) {
            Some(ordinal) => cursor.seek_to_ordinal(block, ordinal),
            None => Ok(false),
        })
    }

    fn with_block(&mut self, f: impl FnOnce(&mut Self, &Block) -> Decoded<bool>) -> Decoded<bool> {
        self.valid = false;
        let Some(block) = self.block.take() else {
            return Ok(false);
        };
        let moved = f(self, &block);
        self.block = Some(block);
        self.valid = moved == Ok(true);
        moved
    }

    fn seek_to_restart(&mut self, block: &Block, restart: u32) -> Decoded<bool> {
        let at = block.restart(restart).ok_or(DAMAGED_ENTRY)?;
        self.ordinal = restart * block.restart_interval;
        self.key.clear();
        self.load(block, at)
    }

    /// To the entry after the current one.
    #[inline]
    fn step(&mut self, block: &Block) -> Decoded<bool> {
        if self.ordinal + 1 >= block.entries {
            return Ok(false);
        }
        self.ordinal += 1;
        self.load(block, self.current.next)
    }

    /// Decodes the entry at `at`; `self.key` holds the key before it.
    #[inline]
    fn load(&mut self, block: &Block, at: Pos) -> Decoded<bool> {
        let entry = block.entry(at).ok_or(DAMAGED_ENTRY)?;
        if entry.shared as usize > self.key.len() {
            return Err(Damage::Corrupt("key shares more than its predecessor has"));
        }
        (self.seqno, self.kind) = {
            let (seqno, kind) = split_trailer(entry.trailer)?;
            (seqno, Some(kind))
        };
        self.key.truncate(entry.shared as usize);
        self.key.extend_from_slice(block.slice(entry.suffix));
        self.current = entry;
        self.valid = true;
        Ok(true)
    }

    fn seek_to_ordinal(&mut self, block: &Block, ordinal: u32) -> Decoded<bool> {
        let restart = ordinal / block.restart_interval;
        let index = (ordinal % block.restart_interval) as usize;
        if self.kept_restart != Some(restart) || self.kept.len() <= index {
            self.keep(block, restart, index)?;
        }
        let start = match index.checked_sub(1) {
            Some(before) => self.kept[before].key_end,
            None => 0,
        };
        let kept = &self.kept[index];
        (self.seqno, self.kind) = {
            let (seqno, kind) = split_trailer(kept.entry.trailer)?;
            (seqno, Some(kind))
        };
        self.key.clear();
        self.key
            .extend_from_slice(&self.kept_keys[start..kept.key_end]);
        self.current = kept.entry;
        self.ordinal = ordinal;
        Ok(true)
    }

    /// Decodes the entries of `restart` up to number `last` into the kept ones.
    fn keep(&mut self, block: &Block, restart: u32, last: usize) -> Decoded<()> {
        self.kept_restart = None;
        self.kept.clear();
        self.kept_keys.clear();
        let mut at = block.restart(restart).ok_or(DAMAGED_ENTRY)?;
        let mut before = 0..0;
        for _ in 0..=last {
            let entry = block.entry(at).ok_or(DAMAGED_ENTRY)?;
            let shared = entry.shared as usize;
            if shared > before.len() {
                return Err(Damage::Corrupt("key shares more than its predecessor has"));
            }
            let start = self.kept_keys.len();
            self.kept_keys
                .extend_from_within(before.start..before.start + shared);
            self.kept_keys.extend_from_slice(block.slice(entry.suffix));
            before = start..self.kept_keys.len();
            self.kept.push(Kept {
                key_end: before.end,
                entry,
            });
            at = entry.next;
        }
        self.kept_restart = Some(restart);
        Ok(())
    }
}
