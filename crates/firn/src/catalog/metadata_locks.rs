//! The host's metadata locks, as far as the core depends on them.

/// Answers whether a session of the host has locked the metadata of a table.
///
/// DDL that gives a table other indexes relies on these locks: while a session holds one, no other
/// session changes the table's definition. The host takes them when a statement begins, for all
/// tables that the statement names and for those that its foreign keys lead to. If another session
/// adds a foreign key while the statement runs, the statement has no lock of the new referencing
/// table. So the core asks with [`Self::is_held`] whether the session has the lock before it writes
/// to that table.
pub trait MetadataLocks: Send + Sync {
    /// Whether the session with context `host` holds a lock of `table` (`database/table`) under
    /// which it may read the table; with `writes`, one under which it may write, too. Called on the
    /// thread of the session.
    fn is_held(&self, host: u64, table: &str, writes: bool) -> bool;
}
