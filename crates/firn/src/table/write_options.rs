//! Options and outcome of the write of a row.

/// Options of an insert or update: how it treats duplicates and locks.
#[derive(Debug, Clone, Copy, Default)]
pub struct WriteFlags {
    /// Whether to lock a duplicate exclusively, because the statement is about to replace or update
    /// it.
    pub lock_duplicate_exclusive: bool,
    /// Whether no other session sees the table yet. Then writes take no row locks.
    pub private: bool,
    /// Whether the write skips the check of unique secondary indexes, because the caller guarantees
    /// that their keys are unique.
    pub skip_unique_secondary: bool,
    /// Whether the commit validates the write, which then locks nothing. The caller's value is
    /// ignored: [`Table`] sets the flag itself.
    pub validated: bool,
    /// Foreign keys are neither checked nor followed.
    pub skip_foreign_keys: bool,
}

impl WriteFlags {
    /// Whether the write locks what it touches.
    pub(super) fn locks(self) -> bool {
        !self.private && !self.validated
    }
}

/// Outcome of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The row is in the write set.
    Done {
        /// Id of the row if its key is hidden.
        row_id: Option<u64>,
    },
    /// The new row equals the old one.
    Same,
    /// The index with this number has the key already.
    Duplicate {
        /// Number of the index.
        index: usize,
    },
}
