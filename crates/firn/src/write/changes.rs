//! The changes of a transaction, of any size.

use super::batch::Batch;
use crate::base::key::index_id_of;
use crate::base::{IndexId, Result};
use crate::version::FileMeta;
use std::collections::BTreeSet;

/// The changes of a transaction: in memory, or in files.
#[derive(Debug, Clone)]
pub enum Changes {
    /// Few enough to be in memory.
    Batch(Batch),
    /// Files written beforehand, ascending, without a common user key. Files and names are synced.
    Run(Vec<FileMeta>),
}

impl Changes {
    /// The files, if the changes are in files.
    pub fn files(&self) -> &[FileMeta] {
        match self {
            Self::Batch(_) => &[],
            Self::Run(files) => files,
        }
    }

    /// The indexes of the entries.
    ///
    /// # Errors
    /// Damage of a batch.
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
