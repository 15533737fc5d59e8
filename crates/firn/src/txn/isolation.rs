//! Isolation levels of transactions.

/// Isolation levels. READ UNCOMMITTED reads as READ COMMITTED does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isolation {
    /// A statement sees the data committed before its first consistent read.
    ReadCommitted,
    /// A transaction sees the data committed before its first consistent read.
    RepeatableRead,
    /// As REPEATABLE READ; the host makes plain reads lock what they read.
    Serializable,
}

impl Isolation {
    /// The level with this number; the inverse of `as u8`.
    pub(super) fn from_number(number: u8) -> Self {
        match number {
            0 => Self::ReadCommitted,
            1 => Self::RepeatableRead,
            _ => Self::Serializable,
        }
    }

    /// Whether all reads of a transaction see one snapshot, and locking reads lock gaps.
    pub(super) fn repeats_reads(self) -> bool {
        self >= Self::RepeatableRead
    }

    /// The level as SQL names it.
    pub fn words(self) -> &'static str {
        match self {
            Self::ReadCommitted => "READ COMMITTED",
            Self::RepeatableRead => "REPEATABLE READ",
            Self::Serializable => "SERIALIZABLE",
        }
    }
}
