//! Walking over one block.

use super::Block;
use super::entry::RawEntry;
use super::key_buf::KeyBuf;
use super::search::{DAMAGED_ENTRY, split_trailer};
use crate::base::{InternalKey, Kind, Seqno, Value, key};
use crate::sst::damage::{Damage, Decoded};
use std::cmp::Ordering;
use std::sync::Arc;

/// The entries of one restart interval, decoded on the way to the last of them.
#[derive(Default)]
struct Kept {
    restart: Option<u32>,
    /// Each entry and the end of its key.
    entries: Vec<(RawEntry, usize)>,
    keys: Vec<u8>,
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
    key: KeyBuf,
    /// Made at the first step backward.
    kept: Option<Box<Kept>>,
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
        if let Some(kept) = &mut self.kept {
            kept.restart = None;
        }
        self.valid = false;
    }

    pub(in crate::sst) fn valid(&self) -> bool {
        self.valid
    }

    pub(in crate::sst) fn key(&self) -> InternalKey<'_> {
        debug_assert!(self.valid);
        InternalKey::new(
            self.key.as_slice(),
            self.seqno,
            self.kind.unwrap_or(Kind::Delete),
        )
    }

    pub(in crate::sst) fn value(&self) -> Value<'_> {
        debug_assert!(self.valid);
        match &self.block {
            Some(block) => block.value(self.current.head, self.current.tail),
            None => Value::EMPTY,
        }
    }

    /// Number of the current entry in its block.
    pub(in crate::sst) fn ordinal(&self) -> u32 {
        self.ordinal
    }

    pub(in crate::sst) fn seek_to_first(&mut self) -> Decoded<bool> {
        self.with_block(|cursor, block| match block.is_fixed() {
            true => cursor.seek_to_ordinal(block, 0),
            false => cursor.seek_to_restart(block, 0),
        })
    }

    pub(in crate::sst) fn seek_to_last(&mut self) -> Decoded<bool> {
        self.with_block(|cursor, block| cursor.seek_to_ordinal(block, block.header.entries - 1))
    }

    /// To the first entry at or after (`user_key`, `seqno`).
    pub(in crate::sst) fn seek(&mut self, user_key: &[u8], seqno: Seqno) -> Decoded<bool> {
        self.with_block(|cursor, block| {
            if block.is_fixed() {
                let ordinal = block.fixed_lower_bound(user_key, seqno)?;
                return match ordinal < block.header.entries {
                    true => cursor.seek_to_ordinal(block, ordinal),
                    false => Ok(false),
                };
            }
            let restart = block.restart_before(user_key, seqno)?;
            let mut found = cursor.seek_to_restart(block, restart)?;
            while found
                && key::compare(cursor.key.as_slice(), cursor.seqno, user_key, seqno)
                    == Ordering::Less
            {
                found = cursor.step(block)?;
            }
            Ok(found)
        })
    }

    pub(in crate::sst) fn next(&mut self) -> Decoded<bool> {
        debug_assert!(self.valid);
        self.with_block(Self::step)
    }

    pub(in crate::sst) fn prev(&mut self) -> Decoded<bool> {
        debug_assert!(self.valid);
        self.with_block(|cursor, block| match cursor.ordinal.checked_sub(1) {
            Some(ordinal) => cursor.seek_to_ordinal(block, ordinal),
            None => Ok(false),
        })
    }

    #[inline]
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
        self.ordinal = restart * block.header.restart_interval;
        self.key.truncate(0);
        self.load(block, at)
    }

    /// To the entry after the current one.
    #[inline]
    fn step(&mut self, block: &Block) -> Decoded<bool> {
        if self.ordinal + 1 >= block.header.entries {
            return Ok(false);
        }
        self.ordinal += 1;
        if block.is_fixed() {
            self.load_fixed(block)
        } else {
            self.load(block, self.current.next)
        }
    }

    /// Decodes entry `self.ordinal`, which lies at `at`; `self.key` holds the key before it.
    #[inline]
    fn load(&mut self, block: &Block, at: u32) -> Decoded<bool> {
        let entry = block.entry(at, self.ordinal).ok_or(DAMAGED_ENTRY)?;
        if entry.shared as usize > self.key.len() {
            return Err(Damage::Corrupt("key shares more than its predecessor has"));
        }
        self.key.truncate(entry.shared as usize);
        self.key.extend(block.slice(entry.suffix));
        self.stand_on(entry)
    }

    /// Decodes entry `self.ordinal` of a block of fixed keys; `self.key` starts with their prefix.
    #[inline]
    fn load_fixed(&mut self, block: &Block) -> Decoded<bool> {
        let (trailer, head, tail) = block.parts(self.ordinal).ok_or(DAMAGED_ENTRY)?;
        self.key.truncate(block.header.prefix_len as usize);
        self.key.extend(block.fixed_suffix(self.ordinal));
        self.stand_on(RawEntry {
            trailer,
            head,
            tail,
            ..RawEntry::default()
        })
    }

    #[inline]
    fn stand_on(&mut self, entry: RawEntry) -> Decoded<bool> {
        let (seqno, kind) = split_trailer(entry.trailer)?;
        self.seqno = seqno;
        self.kind = Some(kind);
        self.current = entry;
        self.valid = true;
        Ok(true)
    }

    fn seek_to_ordinal(&mut self, block: &Block, ordinal: u32) -> Decoded<bool> {
        self.ordinal = ordinal;
        if block.is_fixed() {
            self.key.truncate(0);
            self.key.extend(block.key_prefix());
            return self.load_fixed(block);
        }
        let restart = ordinal / block.header.restart_interval;
        let index = (ordinal % block.header.restart_interval) as usize;
        let kept = self.kept.get_or_insert_default();
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
        self.stand_on(entry)
    }
}

impl Kept {
    /// Decodes the entries of `restart` up to number `last`.
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
                return Err(Damage::Corrupt("key shares more than its predecessor has"));
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
