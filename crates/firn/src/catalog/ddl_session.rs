//! The session of a DDL statement, and the names that a rename needs.

use crate::txn::LockOwner;

/// The session of a DDL statement.
#[derive(Default, Clone, Copy)]
pub struct DdlSession<'a> {
    /// It checks foreign keys.
    pub checks: bool,
    /// The owner whose interruption ends waits. `None` means that DDL does not wait.
    pub owner: Option<&'a LockOwner>,
    /// Limit of a wait, microseconds.
    pub lock_timeout_us: u64,
}

/// Facts about the two names that a rename needs.
#[derive(Default, Clone, Copy)]
pub struct TableRename<'a> {
    /// The session.
    pub session: DdlSession<'a>,
    /// The old name of the table as SQL has it, without the database.
    pub from_text: &'a str,
    /// The new name.
    pub to_text: &'a str,
}
