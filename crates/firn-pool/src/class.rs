//! Classes of reads, and what the pool does for each.

/// Why a block is read. It decides whether the pool is asked for the block, and whether the pool
/// takes the block once it was read from a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// Index partitions and filters.
    Index,
    /// Reads of one key.
    Point,
    /// Ranges that end before read-ahead begins.
    ShortRange,
    /// Keys that a statement reads in batches.
    BatchedKeys,
    /// Ranges from read-ahead on.
    Scan,
    /// Chunks of values out of line.
    BlobChunk,
    /// Flushes, compactions, checks, backups: they read each block once, and never use the pool.
    Maintenance,
}

/// When the pool takes a block that was read from a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    /// At the first load.
    First,
    /// At the first load while the block's node has room, else at the second within the window.
    FirstWhileRoom,
    /// At the second load within the window.
    Second,
    /// Never.
    Never,
}

/// Number of classes.
pub const CLASSES: usize = 7;

/// How long a block of a scan stays, seconds.
const SCAN_TTL_S: u32 = 600;

impl Class {
    /// All classes, in the order of their indexes.
    pub const ALL: [Class; CLASSES] = [
        Class::Index,
        Class::Point,
        Class::ShortRange,
        Class::BatchedKeys,
        Class::Scan,
        Class::BlobChunk,
        Class::Maintenance,
    ];

    /// Index into arrays of [`CLASSES`] elements.
    pub fn index(self) -> usize {
        self as usize
    }

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Class::Index => "index",
            Class::Point => "point",
            Class::ShortRange => "short_range",
            Class::BatchedKeys => "batched_keys",
            Class::Scan => "scan",
            Class::BlobChunk => "blob_chunk",
            Class::Maintenance => "maintenance",
        }
    }

    /// Whether the pool is asked.
    pub fn looks_up(self) -> bool {
        self != Class::Maintenance
    }

    /// When the pool takes a block.
    pub fn admission(self) -> Admission {
        match self {
            Class::Index => Admission::First,
            Class::Point | Class::ShortRange | Class::BatchedKeys => Admission::FirstWhileRoom,
            Class::Scan | Class::BlobChunk => Admission::Second,
            Class::Maintenance => Admission::Never,
        }
    }

    /// How long the pool keeps a block, seconds; 0 until memory runs out.
    pub fn ttl_s(self) -> u32 {
        if self == Class::Scan { SCAN_TTL_S } else { 0 }
    }
}
