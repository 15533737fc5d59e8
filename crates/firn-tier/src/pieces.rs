//! Pieces of objects in memory, for compactions and checks, which read files once and in order.

use bytes::Bytes;
use firn_objects::{ObjectStore, REQUEST_BYTES_MAX, Result};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::ops::Range;

/// Pieces that are kept at most. Of several readers in order, each needs one.
const PIECES_MAX: usize = 8;

/// A part of an object.
struct Piece {
    name: String,
    offset: u64,
    bytes: Bytes,
}

impl Piece {
    fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }
}

/// The pieces that were read last.
#[derive(Default)]
pub struct Pieces(Mutex<VecDeque<Piece>>);

impl Pieces {
    /// Fills `buf` with the bytes from `offset` on of an object of `size` bytes. What it reads from
    /// the store, it reads `ahead` bytes at once, at least, and 8 MiB at most. Returns how many
    /// bytes the store was asked for.
    pub fn read(
        &self,
        store: &dyn ObjectStore,
        (name, size): (&str, u64),
        mut offset: u64,
        mut buf: &mut [u8],
        ahead: u64,
    ) -> Result<u64> {
        let mut fetched = 0;
        while !buf.is_empty() {
            let piece = match self.take(name, offset) {
                Some(piece) => piece,
                None => {
                    let bytes = ahead.max(buf.len() as u64).min(REQUEST_BYTES_MAX);
                    let range = offset..size.min(offset + bytes);
                    fetched += range.end - range.start;
                    Self::get(store, name, range)?
                }
            };
            let from = (offset - piece.offset) as usize;
            let count = buf.len().min(piece.bytes.len() - from);
            let (part, rest) = buf.split_at_mut(count);
            part.copy_from_slice(&piece.bytes[from..from + count]);
            (offset, buf) = (offset + count as u64, rest);
            // Nobody who reads in order needs it again once it was read to its end.
            if offset < piece.end() {
                self.keep(piece);
            }
        }
        Ok(fetched)
    }

    fn get(store: &dyn ObjectStore, name: &str, range: Range<u64>) -> Result<Piece> {
        Ok(Piece {
            name: name.to_owned(),
            offset: range.start,
            bytes: store.get_range(name, range)?,
        })
    }

    fn take(&self, name: &str, offset: u64) -> Option<Piece> {
        let mut pieces = self.0.lock();
        let has =
            |piece: &Piece| piece.name == name && (piece.offset..piece.end()).contains(&offset);
        let at = pieces.iter().position(has)?;
        pieces.remove(at)
    }

    fn keep(&self, piece: Piece) {
        let mut pieces = self.0.lock();
        pieces.push_back(piece);
        if pieces.len() > PIECES_MAX {
            pieces.pop_front();
        }
    }

    /// Forgets the pieces of an object.
    pub fn forget(&self, name: &str) {
        self.0.lock().retain(|piece| piece.name != name);
    }
}
