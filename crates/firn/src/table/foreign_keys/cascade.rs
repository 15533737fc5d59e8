//! The chain of row changes by which a cascade has come to a row.

use super::KeyName;
use std::sync::Arc;

/// The longest chain of changes by which a cascade may come from the statement to a row, as in
/// InnoDB.
pub(super) const DEPTH_MAX: usize = 15;

/// A change of a row, by the statement or by a cascade, and the change that has led to it.
pub(in crate::table) struct CascadeLink<'a> {
    before: Option<&'a CascadeLink<'a>>,
    /// The table of the row.
    table: &'a str,
    deletes: bool,
    /// The foreign key by which the cascade came to this row; `None` for the statement's own row.
    key: Option<&'a Arc<KeyName>>,
}

impl<'a> CascadeLink<'a> {
    /// The link for a change of a row of `table`. `by` is the step of a cascade that makes the
    /// change; `None` if the statement itself makes it.
    pub(in crate::table) fn new(
        by: Option<CascadeStep<'a>>,
        table: &'a str,
        deletes: bool,
    ) -> CascadeLink<'a> {
        Self {
            before: by.map(|step| step.from),
            table,
            deletes,
            key: by.map(|step| step.key),
        }
    }

    /// Whether a cascade makes the change, not the statement itself.
    pub(in crate::table) fn is_cascade(&self) -> bool {
        self.key.is_some()
    }

    /// Number of changes up to this one.
    pub(super) fn depth(&self) -> usize {
        let links = std::iter::successors(Some(self), |link| link.before);
        links.count()
    }

    /// Whether this change, or one before it in the chain, updates a row of `table`.
    pub(super) fn updates(&self, table: &str) -> bool {
        let mut links = std::iter::successors(Some(self), |link| link.before);
        links.any(|link| !link.deletes && link.table == table)
    }

    /// Whether this change is an update that a cascade along the foreign key `key` made. A check of
    /// `key` must be left out then: it would find the referenced row half changed.
    pub(super) fn follows(&self, key: &KeyName) -> bool {
        !self.deletes && self.key.is_some_and(|followed| **followed == *key)
    }
}

/// A step of a cascade: the change that it starts from, and the foreign key.
#[derive(Clone, Copy)]
pub(in crate::table) struct CascadeStep<'a> {
    pub(super) from: &'a CascadeLink<'a>,
    pub(super) key: &'a Arc<KeyName>,
}
