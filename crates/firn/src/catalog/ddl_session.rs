//! The properties of a session that matter to DDL, and the names that a rename needs.

use crate::txn::LockOwner;

/// Properties of the session that runs a DDL statement.
#[derive(Default, Clone, Copy)]
pub struct DdlSession<'a> {
    /// Whether the session checks foreign keys.
    pub checks: bool,
    /// The lock owner of the session, through which a kill of the session ends the waits of the
    /// statement. With `None` the statement does not wait but fails.
    pub owner: Option<&'a LockOwner>,
    /// Limit of a wait, microseconds.
    pub lock_timeout_us: u64,
}

/// The session and the two names of a rename.
#[derive(Default, Clone, Copy)]
pub struct TableRename<'a> {
    /// The session.
    pub session: DdlSession<'a>,
    /// The old name of the table as SQL has it, without the database.
    pub from_text: &'a str,
    /// The new name.
    pub to_text: &'a str,
}
