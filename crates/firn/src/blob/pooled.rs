//! Values out of line that the memory pool may have.
//!
//! ```text
//! value of 300 KiB: piece 0 is the table of chunks, pieces 1 to 3 are the chunks
//! value of 20 KiB:  piece 0 is all of it
//! ```
//!
//! A piece is named by the checksum in the reference, which depends on the place of the value and,
//! through the table, on each byte of it. So the pieces of a value have one name, wherever a
//! rewrite puts the value, and no other value has it.

use super::chunks::{self, BlobReadExtent};
use crate::base::blob_ref::BlobRef;
use crate::base::checksum::{placed, xxh3};
use crate::env::{ReadClass, ReadFile};
use crate::store::{BlockName, PoolOutlook, PooledBlocks, WantedBlock};
use std::ops::Range;

/// Chunks of a value that are asked for together.
const BATCH_MAX: usize = 32;

/// A value out of line as the memory pool knows it.
pub(super) struct PooledBlob<'a> {
    pub(super) pool: &'a PooledBlocks,
    pub(super) blob: &'a BlobRef,
    pub(super) class: ReadClass,
}

impl PooledBlob<'_> {
    fn name(&self, piece: u64) -> BlockName {
        BlockName::BlobPiece {
            file: self.blob.file,
            checksum: self.blob.checksum,
            piece,
        }
    }

    /// Whether a read would ask the pool for the value, or for the table of its chunks.
    pub(super) fn would_ask(&self) -> bool {
        let outlook = self.pool.pool().outlook(&self.name(0), self.class, false);
        outlook == PoolOutlook::Asks
    }

    /// Notes that the file is being read for a reader that will need the value soon.
    pub(super) fn announce_file(&self) {
        self.pool.announce_file(self.name(0));
    }

    /// Whether the file is being read for this reader. The pool is not asked then, and the time
    /// that is left of the read says nothing about the file.
    pub(super) fn take_announced(&self) -> bool {
        self.pool
            .take_announced(&self.name(0), self.class, &mut [])
            .is_some()
    }

    /// Fills `stored` with what the file has behind the blob's header, as far as `extent` needs it.
    /// Returns false if the pool does not have all of it.
    pub(super) fn fill(&self, extent: &BlobReadExtent, stored: &mut [u8]) -> bool {
        let BlobRef {
            file,
            offset,
            checksum,
            ..
        } = *self.blob;
        let is_right = |bytes: &[u8]| placed(bytes, file, offset) == checksum;
        let begun_us = self.pool.now_us();
        let (came, all) = if extent.table == 0 {
            let came = self.pool.get(self.name(0), self.class, stored, is_right);
            (usize::from(came), 1)
        } else {
            let (table, body) = stored.split_at_mut(extent.table);
            match self.pool.get(self.name(0), self.class, table, is_right) {
                true => self.fill_chunks(table, extent, body),
                false => (0, 1),
            }
        };
        if came > 0 {
            self.pool.note_read(self.class, begun_us);
        }
        came == all
    }

    /// Fills `body` with the chunks that the pool has. Returns how many came, and how many there
    /// are.
    fn fill_chunks(
        &self,
        table: &[u8],
        extent: &BlobReadExtent,
        body: &mut [u8],
    ) -> (usize, usize) {
        let chunks: Vec<(Range<usize>, u64)> = chunks::places(table, extent.len).collect();
        let outlook = |piece| {
            self.pool
                .pool()
                .outlook(&self.name(piece), self.class, true)
        };
        // Where asking does not pay, some chunks would be asked for and the file be read as well.
        let asks = |piece| outlook(piece) == PoolOutlook::Asks;
        let fits = chunks
            .last()
            .is_some_and(|(last, _)| last.end <= body.len());
        if !fits || !(1..=chunks.len() as u64).all(asks) {
            return (0, chunks.len().max(1));
        }
        let mut all_came = 0;
        for (batch, first) in chunks.chunks(BATCH_MAX).zip((0..).step_by(BATCH_MAX)) {
            let wanted: Vec<_> = batch
                .iter()
                .zip(first + 1..)
                .map(|((place, _), piece)| WantedBlock {
                    name: self.name(piece),
                    len: place.len(),
                })
                .collect();
            let mut came = 0;
            let is_right = |number: usize, bytes: &[u8]| xxh3(bytes) == batch[number].1;
            self.pool
                .get_many(&wanted, self.class, &is_right, &mut |number, bytes| {
                    body[batch[number].0.clone()].copy_from_slice(bytes);
                    came += 1;
                });
            all_came += came;
            if came < batch.len() {
                break;
            }
        }
        (all_came, chunks.len())
    }

    /// Reads from the file, and tells the pool how long that took.
    pub(super) fn read_file(
        &self,
        file: &dyn ReadFile,
        at: u64,
        stored: &mut [u8],
    ) -> crate::base::Result<()> {
        self.pool.read_file(file, self.class, at, stored)
    }

    /// Offers what was read from the file, after it was checked.
    pub(super) fn offer(&self, extent: &BlobReadExtent, stored: &[u8]) {
        let offer =
            |piece, bytes: &[u8]| self.pool.pool().offer(&self.name(piece), self.class, bytes);
        if extent.table == 0 {
            return offer(0, stored);
        }
        let (table, body) = stored.split_at(extent.table);
        offer(0, table);
        for ((place, _), piece) in chunks::places(table, extent.len).zip(1..) {
            offer(piece, &body[place]);
        }
    }
}
