//! The memory pool as the engine sees it: a place that may have stored blocks.

use super::file_name::FileId;
use crate::env::ReadClass;

/// What a stored block is called outside of its file. Bytes that have a name never change.
///
/// The checksum is part of the name because file ids alone do not identify bytes: a restored copy
/// of a database goes on with the ids of its original, and a crash may give the id of a file that
/// nothing durable named to another one. Names of different contents differ, unless two different
/// files of one id have the same 64-bit checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BlockName {
    /// A stored block of an SST.
    Block {
        /// The SST.
        file: FileId,
        /// The checksum of all bytes of the SST, from the manifest.
        checksum: u64,
        /// The offset of the block in the SST.
        offset: u64,
    },
    /// A part of a value out of line.
    BlobPiece {
        /// The logical blob file.
        file: FileId,
        /// The checksum in the reference to the value. It depends on the place of the value.
        checksum: u64,
        /// The number of the part.
        piece: u64,
    },
}

/// Says whether bytes are an undamaged block of the place, a pair of file id and offset.
pub type IsIntact = fn(stored: &[u8], place: (u64, u64)) -> bool;

/// A stored block that a reader needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WantedBlock {
    /// Its name.
    pub name: BlockName,
    /// Its length as stored, bytes.
    pub len: usize,
}

/// What a get of a block from the pool would do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolOutlook {
    /// It would ask for the block.
    Asks,
    /// Reading the file is faster, so it would ask now and then only.
    Tries,
    /// It would ask nobody: the pool does not have the block, or cannot answer now.
    Passes,
}

/// A cache of stored blocks outside of the process. It may forget a block at any time, and it may
/// be wrong: the caller checks all bytes. No call fails, and only [`Self::get`] waits, for a
/// bounded time.
pub trait BlockPool: Send + Sync + 'static {
    /// Whether the pool probably has a block. Asks nobody. A get may nevertheless ask for none.
    fn probably_has(&self, name: &BlockName) -> bool;

    /// What a get of a block for the purpose `class` would do now, alone or together with others.
    /// Asks nobody.
    fn outlook(&self, name: &BlockName, class: ReadClass, together: bool) -> PoolOutlook;

    /// Calls `found` with the number and the bytes of each of `blocks` that the pool has; the bytes
    /// have the wanted length. `is_right` says whether bytes are those of the block with this
    /// number; bytes that are not are deleted from the pool and count as not found.
    fn get(
        &self,
        blocks: &[WantedBlock],
        class: ReadClass,
        is_right: &dyn Fn(usize, &[u8]) -> bool,
        found: &mut dyn FnMut(usize, &[u8]),
    );

    /// A block was read from its file for the purpose `class`. The pool decides whether to take it.
    fn offer(&self, name: &BlockName, class: ReadClass, stored: &[u8]);

    /// Takes a block that stands for blocks in the pool: an output of a compaction. Returns false
    /// if there is no room now because earlier ones are still on their way.
    fn put(&self, name: &BlockName, stored: &[u8]) -> bool;

    /// Forgets a block that nobody will read again.
    fn delete(&self, name: &BlockName);

    /// A read from the pool for the purpose `class`, in place of one read of the file, has taken
    /// this many microseconds.
    fn note_pool_read(&self, class: ReadClass, us: u64);

    /// A file was read for the purpose `class` in this many microseconds.
    fn note_file_read(&self, class: ReadClass, us: u64);
}
