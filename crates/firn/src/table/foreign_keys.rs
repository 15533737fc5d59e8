//! Foreign keys: the checks of referencing and referenced rows, and cascades.
//!
//! A write set is private, so a deleter of a referenced row does not see a row that refers to it
//! and is not committed. Both sides meet in two places:
//!
//! 1. The writer of a referencing row locks the referenced value, shared: in an index that the
//!    columns identify as a whole (the primary key, a unique key), its key; elsewhere one row with
//!    the value. Deleters of the value hold that lock exclusively anyway.
//! 2. The deleter searches the index of the referencing table, also among the uncommitted new keys
//!    of others ([`crate::txn::ActiveInserts`]), and waits for the rows that it finds.
//!
//! Each side locks first and reads afterwards, at the latest commit and with its own writes. In the
//! first place, a writer that would refer to a value waits for a transaction that is deleting the
//! value. The second place protects rows of transactions that do not hold that lock: those that did
//! not check foreign keys, and prepared ones, whose shared locks are released.
//! [`ReferencedTables`](crate::txn::ReferencedTables) keeps DDL from replacing an index between
//! lock and write.
//!
//! The order of checks among the indexes of a row is InnoDB's, because the client sees which error
//! comes first, and because it decides whether a row that refers to itself can be deleted.

mod cascade;
mod cascade_virtual_columns;
mod check_stored_rows;
mod child_rows;
mod column_values;
mod key_map;
mod parent_row;

pub(super) use cascade::{CascadeLink, CascadeStep};
pub use check_stored_rows::check_foreign_keys;
pub(super) use child_rows::RowChange;
pub(super) use parent_row::NewReferences;

use super::index_info::IndexInfo;
use crate::base::key::index_prefix;
use crate::base::{Error, ForeignKeyError, ForeignKeyViolation, IndexId, Result};
use crate::catalog::{Catalog, ForeignKey, ReferentialAction, TableEntry, TableSchema};
use crate::keycode::KeyCodec;
use key_map::KeyMap;
use std::sync::Arc;

/// The foreign keys of an open table, both those of which it is the referencing table and those
/// that refer to it. They are resolved to indexes of the tables whenever the ids of the table are
/// read, which happens once for each generation of the catalog.
pub(crate) struct ForeignKeys {
    /// Foreign keys of which the table is the referencing one, by name.
    own: Vec<OwnKey>,
    /// Foreign keys that refer to the table and find an index of it, ordered by their ids.
    referencing: Vec<ReferencingKey>,
    /// Whether a foreign key refers to the table, even if the table has no index for it.
    is_referenced: bool,
    /// Why the foreign keys could not be resolved. Writes that must check foreign keys then fail
    /// with this error, because foreign keys resolved for an earlier generation may lead to indexes
    /// that are gone.
    failure: Option<Error>,
}

/// A foreign key by the names that an error message needs.
#[derive(PartialEq, Eq)]
pub(super) struct KeyName {
    /// The referencing table.
    table: String,
    name: String,
}

/// A foreign key of this table.
struct OwnKey {
    name: Arc<KeyName>,
    /// Number of the index that begins with the columns of the foreign key; `None` if there is
    /// none, which only DDL without foreign key checks can achieve.
    index: Option<usize>,
    /// Positions of the columns.
    columns: Vec<usize>,
    parent: Parent,
    inherited: bool,
    /// Finds NULLs in keys of the referencing table's index.
    nulls: Option<KeyCodec>,
}

/// The referenced table of a foreign key.
enum Parent {
    /// The referenced table does not exist, or it has no index for the foreign key.
    Missing,
    /// A copying ALTER is replacing the table that has this clustered index.
    Swapping(IndexId),
    Found(ReferencedIndex),
}

/// How the columns of a foreign key identify rows in an index of the referenced table.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Identity {
    /// The whole primary key.
    Row,
    /// The declared columns of a unique index.
    Unique,
    /// The columns are the beginning of the index's keys, and several rows may have the same values
    /// there.
    Prefix,
}

struct ReferencedIndex {
    other: OtherIndex,
    identity: Identity,
    /// Turns keys of the referencing table's index into keys of the referenced index.
    map: KeyMap,
}

/// A foreign key that refers to this table.
struct ReferencingKey {
    name: Arc<KeyName>,
    on_delete: ReferentialAction,
    on_update: ReferentialAction,
    /// Number of the referenced index.
    index: usize,
    /// Positions of the referenced columns.
    columns: Vec<usize>,
    /// The index of the referencing table; `None` if there is none.
    child: Option<ChildIndex>,
}

struct ChildIndex {
    other: OtherIndex,
    /// Turns keys of the referenced index into keys of the referencing table's index.
    map: KeyMap,
    /// Number of the referencing table's index.
    number: usize,
    /// Positions of the columns, each with the largest number of characters that it takes.
    columns: Vec<(usize, u32)>,
}

/// An index of another table, or of this one, by its stored definition.
struct OtherIndex {
    clustered: IndexId,
    index: IndexInfo,
}

impl OtherIndex {
    fn new(entry: &TableEntry, number: usize) -> Result<Self> {
        let weightless = entry.schema.with_any_collator();
        let codec = weightless.index_codecs()?.swap_remove(number);
        let ids = entry.indexes[number];
        Ok(Self {
            clustered: entry.clustered.id,
            index: IndexInfo::new(&weightless.indexes[number], ids, codec),
        })
    }

    fn is_clustered(&self) -> bool {
        self.index.id() == self.clustered
    }

    /// The key of the row that an entry leads to.
    fn row_key(&self, entry: &[u8]) -> Result<Vec<u8>> {
        if self.is_clustered() {
            return Ok(entry.to_vec());
        }
        let mut key = index_prefix(self.clustered).to_vec();
        key.extend_from_slice(&entry[self.index.declared_len(entry)?..]);
        Ok(key)
    }
}

impl KeyName {
    fn error(&self, violation: ForeignKeyViolation) -> Error {
        let error = ForeignKeyError {
            violation,
            table: self.table.clone(),
            name: self.name.clone(),
        };
        let (table, name) = (&self.table, &self.name);
        let text = match violation {
            ForeignKeyViolation::NoReferencedRow => "no row has the referenced value",
            ForeignKeyViolation::TooDeep => "a cascade is too deep",
            _ => "the row is referenced",
        };
        Error::foreign_key(error, format_args!("{table}, constraint {name}: {text}"))
    }
}

fn positions(schema: &TableSchema, names: &[&str]) -> Option<Vec<usize>> {
    names
        .iter()
        .map(|name| schema.column_called(name))
        .collect()
}

impl ForeignKeys {
    /// Resolves the foreign keys of the table of `entry`; `None` if there are none.
    ///
    /// # Errors
    /// `InvalidArgument` for definitions that do not fit.
    pub(super) fn resolve(catalog: &Catalog, entry: &TableEntry) -> Result<Option<Arc<Self>>> {
        let referencing = catalog.referencing(&entry.name);
        if entry.foreign_keys.is_empty() && referencing.is_empty() {
            return Ok(None);
        }
        let own = entry.foreign_keys.iter();
        let own = own.map(|key| OwnKey::resolve(catalog, entry, key));
        let mut keys = Self {
            own: own.collect::<Result<_>>()?,
            is_referenced: !referencing.is_empty(),
            referencing: Vec::new(),
            failure: None,
        };
        for (child, key) in referencing {
            keys.referencing
                .extend(ReferencingKey::resolve(entry, &child, &key)?);
        }
        Ok(Some(Arc::new(keys)))
    }

    /// Stands for foreign keys that cannot be resolved, because of `error`.
    pub(super) fn unresolved(error: Error) -> Arc<Self> {
        Arc::new(Self {
            own: Vec::new(),
            referencing: Vec::new(),
            is_referenced: true,
            failure: Some(error),
        })
    }

    /// Returns the error that kept the foreign keys from being resolved.
    ///
    /// # Errors
    /// Those of [`Self::resolve`].
    fn resolved(&self) -> Result<()> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// Whether a foreign key refers to the table.
    pub(super) fn is_referenced(&self) -> bool {
        self.is_referenced
    }
}

impl OwnKey {
    fn resolve(catalog: &Catalog, entry: &TableEntry, key: &ForeignKey) -> Result<Self> {
        let names = key.column_names();
        let index = entry.schema.leading_index(&names, None);
        let parent = match index {
            Some(index) => Parent::resolve(catalog, entry, key, index)?,
            None => Parent::Missing,
        };
        Ok(Self {
            name: Arc::new(KeyName {
                table: entry.name.clone(),
                name: key.name.clone(),
            }),
            index,
            columns: positions(&entry.schema, &names).unwrap_or_default(),
            parent,
            inherited: key.inherited,
            nulls: index
                .map(|index| entry.schema.leading_key_codec(index, names.len()))
                .transpose()?,
        })
    }
}

impl Parent {
    fn resolve(
        catalog: &Catalog,
        entry: &TableEntry,
        key: &ForeignKey,
        own: usize,
    ) -> Result<Self> {
        let Some((parent, swapped)) = catalog.table_or_swapped(&key.parent) else {
            return Ok(Self::Missing);
        };
        if swapped {
            return Ok(Self::Swapping(parent.clustered.id));
        }
        let names = key.parent_column_names();
        let like = Some((&entry.schema, own));
        let Some(number) = parent.schema.leading_index(&names, like) else {
            return Ok(Self::Missing);
        };
        let index = &parent.schema.indexes[number];
        let whole = index.parts.len() == names.len();
        let identity = match parent.schema.primary == Some(number as u32) {
            _ if !whole => Identity::Prefix,
            true => Identity::Row,
            false if index.unique => Identity::Unique,
            false => Identity::Prefix,
        };
        Ok(Self::Found(ReferencedIndex {
            other: OtherIndex::new(&parent, number)?,
            identity,
            map: KeyMap::new((&entry.schema, own), (&parent.schema, number), names.len())?,
        }))
    }
}

impl ReferencingKey {
    /// Finds the indexes of the referenced table `entry` and of `child` that the foreign key uses.
    /// `None` if the referenced table has no such index: then the foreign key restricts nothing.
    fn resolve(entry: &TableEntry, child: &TableEntry, key: &ForeignKey) -> Result<Option<Self>> {
        let (names, own_names) = (key.column_names(), key.parent_column_names());
        let number = child.schema.leading_index(&names, None);
        let like = number.map(|number| (&child.schema, number));
        let Some(index) = entry.schema.leading_index(&own_names, like) else {
            return Ok(None);
        };
        let child_index = match number {
            None => None,
            Some(number) => Some(ChildIndex {
                other: OtherIndex::new(child, number)?,
                map: KeyMap::new((&entry.schema, index), (&child.schema, number), names.len())?,
                number,
                columns: key
                    .columns
                    .iter()
                    .filter_map(|one| Some((child.schema.column_called(&one.name)?, one.chars)))
                    .collect(),
            }),
        };
        Ok(Some(Self {
            name: Arc::new(KeyName {
                table: child.name.clone(),
                name: key.name.clone(),
            }),
            on_delete: key.on_delete,
            on_update: key.on_update,
            index,
            columns: positions(&entry.schema, &own_names).unwrap_or_default(),
            child: child_index,
        }))
    }
}
