//! Internal keys: user key ascending, seqno descending, kind.
//!
//! A *user key* is an index id (u32 big-endian) followed by a memcomparable key. An internal key
//! adds the seqno of the commit and the kind of the entry; it is encoded only inside blocks.

use super::{Error, Result};
use std::cmp::Ordering;

/// Commit sequence number: 56 bits, one per committed transaction.
pub type Seqno = u64;

/// Identifies an index for ever: the id of a dropped index is never given to another one.
pub type IndexId = u32;

/// Largest seqno. A read at this seqno sees everything, the transaction's own uncommitted writes
/// included.
pub const SEQNO_MAX: Seqno = (1 << 56) - 1;

/// Seqnos with this bit are positions in a private write set. They never reach a memtable or a
/// cache; the only files with them are the spilled runs of a transaction, whose readers map them to
/// the seqno of its commit.
pub const UNCOMMITTED_BIT: Seqno = 1 << 55;

/// Largest seqno a commit may get.
pub const SEQNO_COMMITTED_MAX: Seqno = UNCOMMITTED_BIT - 1;

/// Bytes of an index id at the start of each user key.
pub const INDEX_ID_LEN: usize = 4;

/// The index that holds the catalog.
pub const CATALOG_INDEX: super::IndexId = 0;

/// The kind of an entry. An unknown kind in stored bytes is an error, never skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// The key has no value from this seqno on.
    Delete = 0,
    /// The key has this value.
    Put = 1,
    /// As `Put`, but some columns are stored as blobs: the value ends with a trailer that lists
    /// their blob references and can be decoded without a schema.
    PutBlobs = 2,
    /// A range tombstone: all keys from the user key of the entry up to its value (exclusive) are
    /// deleted from this seqno on. Nothing writes such entries, and reads refuse them.
    RangeDelete = 3,
}

impl Kind {
    /// Decodes a stored kind.
    ///
    /// # Errors
    /// `Unsupported` for an unknown kind: a later version of Firn may have written it.
    pub fn from_u8(byte: u8) -> Result<Self> {
        match byte {
            0 => Ok(Self::Delete),
            1 => Ok(Self::Put),
            2 => Ok(Self::PutBlobs),
            3 => Ok(Self::RangeDelete),
            other => Err(Error::unsupported(format!("entry kind {other}"))),
        }
    }

    /// Whether the entry carries a value that a read returns.
    pub fn is_put(self) -> bool {
        matches!(self, Self::Put | Self::PutBlobs)
    }
}

/// A borrowed internal key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InternalKey<'a> {
    /// Index id and memcomparable key.
    pub user_key: &'a [u8],
    /// Commit seqno.
    pub seqno: Seqno,
    /// Kind of the entry.
    pub kind: Kind,
}

impl<'a> InternalKey<'a> {
    /// The internal key of the given parts.
    pub fn new(user_key: &'a [u8], seqno: Seqno, kind: Kind) -> Self {
        Self {
            user_key,
            seqno,
            kind,
        }
    }

    /// Seqno and kind packed as stored: `seqno << 8 | kind`. Larger sorts first.
    pub fn trailer(&self) -> u64 {
        pack_trailer(self.seqno, self.kind)
    }
}

impl Ord for InternalKey<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        compare(self.user_key, self.seqno, other.user_key, other.seqno)
            .then_with(|| other.kind.cmp(&self.kind))
    }
}

impl PartialOrd for InternalKey<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Compares (user key, seqno) pairs in internal order.
pub fn compare(a_key: &[u8], a_seqno: Seqno, b_key: &[u8], b_seqno: Seqno) -> Ordering {
    a_key.cmp(b_key).then_with(|| b_seqno.cmp(&a_seqno))
}

/// Packs seqno and kind as stored: `seqno << 8 | kind`.
pub fn pack_trailer(seqno: Seqno, kind: Kind) -> u64 {
    debug_assert!(seqno <= SEQNO_MAX);
    seqno << 8 | kind as u64
}

/// Splits a stored trailer into seqno and kind.
///
/// # Errors
/// `Unsupported` for an unknown kind.
pub fn unpack_trailer(trailer: u64) -> Result<(Seqno, Kind)> {
    Ok((trailer >> 8, Kind::from_u8(trailer as u8)?))
}

/// The index a user key belongs to; `None` if the key is shorter than an index id.
pub fn index_id_of(user_key: &[u8]) -> Option<IndexId> {
    user_key
        .first_chunk::<INDEX_ID_LEN>()
        .map(|b| u32::from_be_bytes(*b))
}

/// The first user key of an index.
pub fn index_prefix(index: IndexId) -> [u8; INDEX_ID_LEN] {
    index.to_be_bytes()
}

#[cfg(test)]
mod tests;
