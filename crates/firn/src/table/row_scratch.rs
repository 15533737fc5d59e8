//! Buffers for the write of a row, and the keys that the write claims.

use super::write_options::WriteFlags;
use crate::txn::Transaction;

/// [`RowScratch::trim`] keeps buffers of up to this many bytes.
const KEPT_BYTES: usize = 4 << 10;

/// Buffers that a session keeps as long as it uses the table, so that writing a row allocates
/// nothing.
#[derive(Default)]
pub struct RowScratch {
    pub(super) head: Vec<u8>,
    pub(super) tail: Vec<u8>,
    pub(super) old_entry: Vec<u8>,
    pub(super) new_entry: Vec<u8>,
    pub(super) old_value: Vec<u8>,
    pub(super) new_value: Vec<u8>,
    pub(super) claimed: ClaimedKeys,
}

impl RowScratch {
    /// Frees buffers that have become large: each of thousands of sessions has its own.
    pub fn trim(&mut self) {
        let Self {
            head,
            tail,
            old_entry,
            new_entry,
            old_value,
            new_value,
            claimed: _,
        } = self;
        for buffer in [head, tail, old_entry, new_entry, old_value, new_value] {
            if buffer.capacity() > KEPT_BYTES {
                *buffer = Vec::new();
            }
        }
    }
}

/// Keys that the write of a row has locked or noted for the validation, and that the transaction
/// had neither locked nor noted before: keys of new rows, and new and old values of unique indexes.
/// If the row turns out to be a duplicate, they are given back: in InnoDB the lock of a written row
/// disappears with the row. If the row is written, the locked keys are passed to the transaction,
/// whose rollbacks give them back.
#[derive(Default)]
pub(super) struct ClaimedKeys {
    keys: Vec<Vec<u8>>,
    /// Number of keys in use; the others are spare buffers.
    number: usize,
}

impl ClaimedKeys {
    /// Forgets the keys of the row before.
    pub(super) fn clear(&mut self) {
        self.number = 0;
    }

    pub(super) fn add(&mut self, key: &[u8]) {
        if self.number == self.keys.len() {
            self.keys.push(Vec::new());
        }
        let buffer = &mut self.keys[self.number];
        buffer.clear();
        buffer.extend_from_slice(key);
        self.number += 1;
    }

    /// Gives the claims of a row back, because the row was not written: releases the locks of the
    /// keys, or takes the keys out of the validation set if the write is validated.
    pub(super) fn give_back(&mut self, txn: &mut Transaction, flags: WriteFlags) {
        for key in &self.keys[..std::mem::take(&mut self.number)] {
            match flags.validated {
                true => txn.forget_write(key),
                false => txn.unlock(key),
            }
        }
    }

    /// Leaves the locks of the keys to the transaction, because the row was written: they are
    /// released when this write is rolled back, or at the end of the transaction.
    pub(super) fn keep(&mut self, txn: &mut Transaction, flags: WriteFlags) {
        let keys = &self.keys[..std::mem::take(&mut self.number)];
        if flags.locks() {
            txn.keep_write_locks(keys.iter().map(|key| &key[..]));
        }
    }
}
