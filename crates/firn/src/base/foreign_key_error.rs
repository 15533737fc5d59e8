//! Errors of foreign keys, which the host reports with numbers and texts of its own.

/// The rule of foreign keys that a row or a definition breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForeignKeyViolation {
    /// A row of another table refers to the row to delete or to change.
    RowIsReferenced,
    /// No row has the value that the new row refers to.
    NoReferencedRow,
    /// A cascade reaches deeper than is allowed.
    TooDeep,
    /// A cascade would make two rows equal in a unique index. The name in the error is that of the
    /// index.
    DuplicateInChild,
    /// Another table has a foreign key that refers to the table to drop.
    TableIsReferenced,
    /// Another foreign key of the database has the name.
    NameIsTaken,
    /// The statement gives two new foreign keys the name.
    NameGivenTwice,
    /// A foreign key needs the index to drop. The name in the error is that of the index.
    IndexIsNeeded,
    /// The referencing table has no index that begins with the columns.
    NoIndex,
    /// The referenced table has no index that begins with the columns, of the same types.
    NoReferencedIndex,
    /// The referenced table does not exist.
    NoReferencedTable,
    /// An action sets a column to NULL that cannot be NULL.
    NotNull,
    /// The definition is not allowed for another reason.
    Definition,
}

/// The foreign key that an error is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignKeyError {
    /// The rule.
    pub violation: ForeignKeyViolation,
    /// The referencing table, `database/table`.
    pub table: String,
    /// Name of the foreign key, without its database, unless the violation says otherwise.
    pub name: String,
}
