//! The purposes of file reads.

/// The purpose of a file read, which each reader states. Reads are counted by class, and a layer
/// that keeps blocks elsewhere decides by the class which ones are worth keeping.
///
/// The class is chosen where the purpose is known, and is passed down unchanged, with two
/// exceptions in `sst`: a range read becomes a [`Self::Scan`] when it begins to read ahead, and the
/// index parts that a query needs are [`Self::Index`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ReadClass {
    /// Tails of table files that are opened; index partitions, filters and dictionaries that a
    /// query needs.
    Index,
    /// The block of one key.
    Point,
    /// Blocks of a range before readahead begins; blocks of rows that entries of a secondary index
    /// lead to, and of other keys that are read in batches.
    Range,
    /// Blocks of a range from readahead on.
    Scan,
    /// Values out of line that a query needs, and the headers and tables of blob files.
    Blob,
    /// Everything that a compaction reads, also to hand cached blocks over and to rewrite blob
    /// files.
    Compaction,
    /// Rows that a new index is made of; sorted runs of loads, index builds and large transactions
    /// that are merged, or whose keys leave the row cache.
    Load,
    /// Log segments, manifests and the server's binary log, at a start for instance.
    Log,
    /// Files that are read to check or to repair them.
    Verify,
    /// Files that are copied into a backup.
    Backup,
}

impl ReadClass {
    /// All classes, in the order of reports.
    pub const ALL: [Self; 10] = [
        Self::Index,
        Self::Point,
        Self::Range,
        Self::Scan,
        Self::Blob,
        Self::Compaction,
        Self::Load,
        Self::Log,
        Self::Verify,
        Self::Backup,
    ];

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Index => "index",
            Self::Point => "point",
            Self::Range => "range",
            Self::Scan => "scan",
            Self::Blob => "blob",
            Self::Compaction => "compaction",
            Self::Load => "load",
            Self::Log => "log",
            Self::Verify => "verify",
            Self::Backup => "backup",
        }
    }

    /// The class of the reads of index partitions, filters and dictionaries that a read of this
    /// class needs. Those of a query are worth keeping for all queries. Those of other readers
    /// are read once, as their blocks are.
    #[must_use]
    pub fn of_index(self) -> Self {
        match self {
            Self::Index | Self::Point | Self::Range | Self::Scan | Self::Blob => Self::Index,
            other => other,
        }
    }

    /// The class of the reads of a range read that has begun to read ahead.
    #[must_use]
    pub fn reading_ahead(self) -> Self {
        match self {
            Self::Range => Self::Scan,
            other => other,
        }
    }
}
