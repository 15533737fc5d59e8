//! Epochs: ranges of ids and seqnos, one for each successive writer of a database.
//!
//! A database has one writer at a time. A successor that cannot ask its predecessor for the last
//! numbers begins a new epoch: its file ids, segment ids and seqnos begin above all that the
//! predecessor may have given out. So no two writers ever use the same number. A database that was
//! never taken over is in epoch 0.
//!
//! ```text
//! ids      epoch · 2^40 + counter     2^62 ids are 2^22 epochs
//! seqnos   a jump of 2^32             2^55 seqnos are 2^23 such jumps
//! ```

use super::key::SEQNO_COMMITTED_MAX;
use super::{Error, Result, Seqno};
use std::fmt;

/// Number of ids in an epoch.
pub const IDS_PER_EPOCH: u64 = 1 << 40;

/// The seqnos of a new epoch begin this far above the last seqno known of the epoch before.
pub const SEQNO_JUMP: u64 = 1 << 32;

/// The last epoch: its ids stay below 2^62.
pub const EPOCH_MAX: u64 = (1 << 22) - 1;

/// The first id of an epoch.
pub fn first_id(epoch: u64) -> u64 {
    debug_assert!(epoch <= EPOCH_MAX);
    epoch.saturating_mul(IDS_PER_EPOCH)
}

/// The first id behind the ids of an epoch.
pub fn end_of_ids(epoch: u64) -> u64 {
    first_id(epoch).saturating_add(IDS_PER_EPOCH)
}

/// Number of ids at the end of an epoch's range that an open never skips, whatever file names it
/// finds; see [`end_of_names`].
const FREE_IDS_MIN: u64 = 1 << 32;

/// The first id that the open of a database in this epoch ignores. An open gives out ids above the
/// largest id in the names of files and segments. An id from here on comes from a later epoch or a
/// stray file, and the ids above it may be outside of the range of this epoch.
pub fn end_of_names(epoch: u64) -> u64 {
    end_of_ids(epoch) - FREE_IDS_MIN
}

/// The epoch of an id.
pub fn epoch_of(id: u64) -> u64 {
    id / IDS_PER_EPOCH
}

/// The seqno above which the commits of a new epoch lie; `last` is the last known seqno.
///
/// # Errors
/// `Unsupported` if too few seqnos are left for another epoch.
pub fn seqnos_after(last: Seqno) -> Result<Seqno> {
    last.checked_add(SEQNO_JUMP)
        .filter(|seqno| *seqno < SEQNO_COMMITTED_MAX)
        .ok_or_else(|| Error::unsupported("seqnos are used up: no further epoch can begin"))
}

/// Identifies a database. Drawn at random at its creation; copies keep it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DatabaseId(pub [u8; 16]);

impl fmt::Display for DatabaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for DatabaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DatabaseId({self})")
    }
}

#[cfg(test)]
mod tests;
