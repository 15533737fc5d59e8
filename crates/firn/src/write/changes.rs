//! The changes of a transaction: a batch in memory, or SSTs if they are too large.

use super::batch::Batch;
use crate::base::key::index_id_of;
use crate::base::memory_tracker::{MemoryCharge, MemoryTracker};
use crate::base::{IndexId, Result};
use crate::version::FileMeta;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The stall gate charges a run for at most this many bytes, as for a large batch. Writers pay for
/// what others owe, and a transaction of hundreds of gigabytes would make them pay for hours.
const RUN_CHARGE_MAX: u64 = 64 << 20;

/// The charge of a run; see [`Changes::charged_bytes`].
pub(super) fn run_charge(files: &[FileMeta]) -> u64 {
    let raw = files.iter().map(|file| file.raw_bytes);
    raw.sum::<u64>().min(RUN_CHARGE_MAX)
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
            Self::Run(files) => run_charge(files),
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
