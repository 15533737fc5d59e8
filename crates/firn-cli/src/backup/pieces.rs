//! Files that change after they were sent: logs and blob files, cut into pieces of a fixed size.
//!
//! A piece is an object of its own, named after its content. So of a file that has grown, or got
//! holes, only the pieces that differ are sent. Blocks of zeros are left out, so holes and reserved
//! room cost nothing.

use super::backup_format::{ByteRange, Piece};
use super::local_error::local_error;
use firn::base::Result;
use firn::base::checksum::xxh3;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Bytes of a file that one piece covers.
pub const PIECE_SIZE: u64 = 4 << 20;

/// Size of the blocks of zeros that are left out; holes have this granularity.
const BLOCK: usize = 4096;

/// A part of a file that becomes a piece.
#[derive(Debug, Clone)]
pub struct PieceSource {
    /// The file's name in the engine's directory.
    pub name: String,
    /// Path of the file on this machine.
    pub file: PathBuf,
    /// Offset of the part in the file: a multiple of [`PIECE_SIZE`].
    pub at: u64,
    /// Length of the part, bytes.
    pub len: u64,
}

impl PieceSource {
    /// The parts of a file's first `len` bytes.
    pub fn of(name: &str, file: &std::path::Path, len: u64) -> impl Iterator<Item = Self> {
        let starts = (0..len).step_by(PIECE_SIZE as usize);
        starts.map(move |at| Self {
            name: name.to_owned(),
            file: file.to_owned(),
            at,
            len: PIECE_SIZE.min(len - at),
        })
    }

    /// Reads the part from the file. Returns the piece and its bytes, both from the same read,
    /// because the file may change; `None` if all bytes are zeros.
    pub fn read(&self) -> Result<Option<(Piece, Vec<u8>)>> {
        let mut bytes = vec![0; self.len as usize];
        let read = File::open(&self.file).and_then(|f| f.read_exact_at(&mut bytes, self.at));
        read.map_err(|e| local_error(&e, &self.file))?;
        let runs = without_zeros(&mut bytes, self.at);
        if runs.is_empty() {
            return Ok(None);
        }
        let checksum = format!("{:016x}", xxh3(&bytes));
        let number = self.at / PIECE_SIZE;
        let object = format!("files/{}.{number}-{checksum}", self.name);
        let piece = Piece {
            object,
            runs,
            checksum,
        };
        Ok(Some((piece, bytes)))
    }
}

/// Removes blocks of zeros from `bytes`, which begin at offset `at` in their file. Returns the
/// ranges of the remaining bytes in the file.
pub fn without_zeros(bytes: &mut Vec<u8>, at: u64) -> Vec<ByteRange> {
    let mut runs: Vec<ByteRange> = Vec::new();
    let mut kept = 0;
    for from in (0..bytes.len()).step_by(BLOCK) {
        let to = bytes.len().min(from + BLOCK);
        if bytes[from..to].iter().all(|&byte| byte == 0) {
            continue;
        }
        bytes.copy_within(from..to, kept);
        kept += to - from;
        let (start, len) = (at + from as u64, (to - from) as u64);
        match runs.last_mut() {
            Some(last) if last.0 + last.1 == start => last.1 += len,
            _ => runs.push((start, len)),
        }
    }
    bytes.truncate(kept);
    runs
}
