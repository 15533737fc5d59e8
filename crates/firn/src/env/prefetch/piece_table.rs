//! Maps ranges of files to announced reads.

use super::{PrefetchExtent, SubmittedReads, id_of};
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

/// Memory, in bytes, that all announced reads may take together until callers have taken their
/// bytes. Beyond that, the oldest reads are dropped.
pub(super) const BYTES_MAX: u64 = 16 << 20;
const PIECES_MAX: usize = 1024;

/// File id and offset. The id is the address of the file's handle. The announced reads keep the
/// handle alive, so no other file gets this address.
type Key = (u64, u64);

/// One read.
pub(super) struct PrefetchPiece {
    reads: Arc<SubmittedReads>,
    number: usize,
    /// Offset at which the read begins: the start of the block with the first announced byte.
    start: u64,
    bytes: Range<u64>,
    /// Announced bytes not yet taken.
    left: u64,
    memory: u64,
    serial: u64,
}

/// The announced reads, in a map by file and offset, and in a queue in the order in which they were
/// announced.
#[derive(Default)]
pub(super) struct PieceTable {
    pieces: BTreeMap<Key, PrefetchPiece>,
    order: VecDeque<(u64, Key)>,
    bytes: u64,
    serial: u64,
}

impl PieceTable {
    pub(super) fn len(&self) -> usize {
        self.pieces.len()
    }

    /// The piece that holds all of `bytes`.
    pub(super) fn find(&self, file: &Arc<File>, bytes: &Range<u64>) -> Option<Key> {
        let file = id_of(file);
        let (key, piece) = self.pieces.range(..=(file, bytes.start)).next_back()?;
        (key.0 == file && bytes.end <= piece.bytes.end).then_some(*key)
    }

    /// Finds the announced read that covers `bytes`. Returns the submission to which the read
    /// belongs, the number of the read in this submission, and the start offset of the read in the
    /// file. Removes the read from the table once all its announced bytes are taken.
    pub(super) fn take(
        &mut self,
        file: &Arc<File>,
        bytes: &Range<u64>,
    ) -> Option<(Arc<SubmittedReads>, usize, u64)> {
        let key = self.find(file, bytes)?;
        let piece = self.pieces.get_mut(&key)?;
        let found = (Arc::clone(&piece.reads), piece.number, piece.start);
        piece.left = piece.left.saturating_sub(bytes.end - bytes.start);
        if piece.left == 0 {
            self.remove(key);
        }
        Some(found)
    }

    /// Adds a read for each extent in `places`; `reads` is the submission that makes these reads.
    /// Returns the reads that were removed from the table to make room.
    pub(super) fn insert(
        &mut self,
        reads: &Arc<SubmittedReads>,
        places: &[PrefetchExtent],
    ) -> Vec<PrefetchPiece> {
        let mut dropped = Vec::new();
        for (number, place) in places.iter().enumerate() {
            let key = (id_of(&place.file), place.bytes.start);
            dropped.extend(self.remove(key));
            let blocks = place.blocks();
            self.serial += 1;
            let piece = PrefetchPiece {
                reads: Arc::clone(reads),
                number,
                start: blocks.start,
                bytes: place.bytes.clone(),
                left: place.wanted,
                memory: blocks.end - blocks.start,
                serial: self.serial,
            };
            self.bytes += piece.memory;
            self.order.push_back((self.serial, key));
            self.pieces.insert(key, piece);
        }
        while self.bytes > BYTES_MAX || self.order.len() > PIECES_MAX {
            let Some((serial, key)) = self.order.pop_front() else {
                break;
            };
            // If `pieces` has no read with this serial number, that read was removed earlier,
            // because its bytes were taken or another read replaced it. Only its entry in `order`
            // was left.
            if self
                .pieces
                .get(&key)
                .is_some_and(|piece| piece.serial == serial)
            {
                dropped.extend(self.remove(key));
            }
        }
        dropped
    }

    /// Removes the pieces of a file.
    pub(super) fn forget(&mut self, file: &Arc<File>) -> Vec<PrefetchPiece> {
        let file = id_of(file);
        let keys: Vec<Key> = self
            .pieces
            .range((file, 0)..=(file, u64::MAX))
            .map(|(key, _)| *key)
            .collect();
        keys.into_iter()
            .filter_map(|key| self.remove(key))
            .collect()
    }

    fn remove(&mut self, key: Key) -> Option<PrefetchPiece> {
        let piece = self.pieces.remove(&key)?;
        self.bytes -= piece.memory;
        if self.pieces.is_empty() {
            self.order.clear();
        }
        Some(piece)
    }
}

#[cfg(test)]
impl PieceTable {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether all reads have begun.
    pub(super) fn is_complete(&self) -> bool {
        let begun = |piece: &PrefetchPiece| match &*piece.reads {
            SubmittedReads::Ring(_) => true,
            SubmittedReads::Threads(reads) => reads.has_begun(piece.number),
        };
        self.pieces.values().all(begun)
    }
}
