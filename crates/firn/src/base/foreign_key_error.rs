//! Errors of foreign keys. The host reports them with its own error numbers and texts.

/// The rule of foreign keys that a row or a definition breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForeignKeyViolation {
    /// A row of the referencing table refers to the row that the statement deletes or changes.
    RowIsReferenced,
    /// No row has the value that the new row refers to.
    NoReferencedRow,
    /// A cascade reaches deeper than is allowed.
    TooDeep,
    /// A cascade would make two rows of the referencing table equal in a unique index.
    /// [`ForeignKeyError::name`] is the name of that index.
    DuplicateInChild,
    /// A foreign key of another table refers to the table that the statement drops.
    TableIsReferenced,
    /// Another foreign key of the database has the name.
    NameIsTaken,
    /// The statement gives two new foreign keys the name.
    NameGivenTwice,
    /// The statement drops an index that a foreign key needs. [`ForeignKeyError::name`] is the name
    /// of that index.
    IndexIsNeeded,
    /// The referencing table has no index that begins with the referencing columns.
    NoIndex,
    /// The referenced table has no index that begins with the referenced columns, or their types
    /// differ from those of the referencing columns.
    NoReferencedIndex,
    /// The referenced table does not exist.
    NoReferencedTable,
    /// The action SET NULL is defined for a column that is NOT NULL.
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
    /// Name of the foreign key, without its database; for some violations, as documented there, the
    /// name of an index.
    pub name: String,
}
