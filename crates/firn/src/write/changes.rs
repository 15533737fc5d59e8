//! The changes of a transaction: a batch in memory, or SSTs if they are too large.

use super::batch::Batch;
use crate::base::key::index_id_of;
use crate::base::memory_tracker::{MemoryCharge, MemoryTracker};
use crate::base::{IndexId, Result};
use crate::version::FileMeta;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The stall gate charges the commit of a run for at most this many bytes, as for a large batch.
/// Writers pay for what others owe, and a transaction of hundreds of gigabytes would make them pay
/// for hours.
const RUN_CHARGE_MAX: u64 = 64 << 20;

/// The part of a run for which the stall gate charges its commit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunCharge {
    /// Bytes of the entries: the charge.
    pub bytes: u64,
    /// Stored bytes of these entries.
    pub stored_bytes: u64,
}

impl RunCharge {
    /// The charge of a run with these files. Of a run with more than [`RUN_CHARGE_MAX`] bytes it is
    /// a part, with the same ratio of stored bytes.
    pub fn of<'a>(files: impl Iterator<Item = &'a FileMeta>) -> Self {
        let sums = files.fold((0, 0), |(raw, stored), file| {
            (raw + file.raw_bytes, stored + file.size)
        });
        let bytes = sums.0.min(RUN_CHARGE_MAX);
        let stored = u128::from(sums.1) * u128::from(bytes) / u128::from(sums.0.max(1));
        Self {
            bytes,
            stored_bytes: stored as u64,
        }
    }
}

/// The changes of a transaction, in memory or in SSTs.
#[derive(Debug, Clone)]
pub enum Changes {
    /// A batch, for changes that fit in memory.
    Batch(Batch),
    /// A run of SSTs that were written before the commit. They are in ascending key order, and no
    /// two share a user key. The files and their names are synced.
    Run(Vec<FileMeta>),
}

impl Changes {
    /// The SSTs that hold the changes; empty if the changes are a batch.
    pub fn files(&self) -> &[FileMeta] {
        match self {
            Self::Batch(_) => &[],
            Self::Run(files) => files,
        }
    }

    /// Bytes of the batch; 0 for files, which take no room in a memtable.
    pub fn batch_bytes(&self) -> u64 {
        match self {
            Self::Batch(batch) => batch.as_bytes().len() as u64,
            Self::Run(_) => 0,
        }
    }

    /// Bytes for which the stall gate charges the commit. A run takes no room in a memtable. But
    /// its files are as much work for compactions as those of a flush, so it is charged as a batch
    /// would be, up to [`RUN_CHARGE_MAX`].
    pub fn charged_bytes(&self) -> u64 {
        match self {
            Self::Batch(_) => self.batch_bytes(),
            Self::Run(files) => RunCharge::of(files.iter()).bytes,
        }
    }

    /// Counts the memory of the changes in `tracker`, as long as the result lives.
    pub fn charge(&self, tracker: &Arc<MemoryTracker>) -> MemoryCharge {
        let mut charge = MemoryCharge::new(Arc::clone(tracker));
        charge.set(self.batch_bytes());
        charge
    }

    /// The ids of all indexes to which entries of the changes belong.
    ///
    /// # Errors
    /// `Corruption` for a malformed batch.
    pub fn indexes(&self) -> Result<BTreeSet<IndexId>> {
        match self {
            Self::Batch(batch) => {
                let mut indexes = BTreeSet::new();
                let mut last = None;
                batch.for_each(|entry| {
                    let index = index_id_of(entry.user_key);
                    if index != last {
                        indexes.extend(index);
                        last = index;
                    }
                })?;
                Ok(indexes)
            }
            Self::Run(files) => {
                let counted = files.iter().flat_map(|file| &file.per_index);
                Ok(counted.map(|stats| stats.index).collect())
            }
        }
    }
}

#[cfg(test)]
mod tests;
