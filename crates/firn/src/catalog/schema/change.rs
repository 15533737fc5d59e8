//! Changes of a table's definition that leave its rows as they are: columns come, go and move, and
//! secondary indexes do.

use super::compare::{IndexPairing, same_entries};
use super::{ColumnSchema, TableSchema};
use crate::base::{Error, Result};
use crate::rowcode::{ColumnKind, InstantDefault, RowVersion};

/// Most older versions of a table. More would make the definition large, which each change writes
/// anew.
pub const VERSIONS_MAX: usize = 255;

/// Most columns of all older versions of a table together; see [`VERSIONS_MAX`].
const OLDER_COLUMNS_MAX: usize = 1 << 16;

/// Longest default of a column for rows that lack it, bytes. Each decode of such a row copies it.
const DEFAULT_MAX: usize = 1 << 16;

/// The new definition of a table, and where its columns and indexes come from.
#[derive(Debug, Clone)]
pub struct SchemaChange {
    /// The new definition as the server gives it. Each new stored column has the
    /// [default](crate::rowcode::Column::instant_default) that it gets in the rows that the table
    /// has. Versions and ids of columns do not count.
    pub schema: TableSchema,
    /// For each column of the new definition, its number in the old one; `None` for a new column.
    pub columns: Vec<Option<usize>>,
    /// For each index of the new definition, where it may have another name, its number in the old
    /// one; `None` for a new index.
    pub indexes: Vec<Option<usize>>,
}

impl SchemaChange {
    /// A change to `schema`; `columns` and `indexes` as in [`SchemaChange`]. The defaults of new
    /// columns are their values in `record`, a record of the new definition.
    ///
    /// # Safety
    /// In `record`, each new blob column that is neither NULL nor empty must point to at least as
    /// many bytes as its length says.
    ///
    /// # Errors
    /// `InvalidArgument` if the record is too short or a length in it exceeds its maximum.
    pub unsafe fn new(
        mut schema: TableSchema,
        columns: Vec<Option<usize>>,
        indexes: Vec<Option<usize>>,
        record: &[u8],
    ) -> Result<Self> {
        let layout = schema.row_layout()?;
        for (number, from) in columns.iter().enumerate() {
            let Some(column) = schema.columns.get_mut(number) else {
                break;
            };
            let of = &mut column.column;
            if from.is_some() || !of.stored {
                continue;
            }
            if record.len() < layout.record_len() {
                return Err(Error::invalid("record buffer too short"));
            }
            of.instant_default = match of.kind {
                _ if of.null.is_some_and(|null| null.is_set(record)) => InstantDefault::Null,
                ColumnKind::Fixed { len } => {
                    let at = of.offset as usize;
                    InstantDefault::Bytes(record[at..at + len as usize].into())
                }
                // SAFETY: the caller promises that new blob columns point to their bytes, and the
                // callee needs no more for this column.
                _ => InstantDefault::Bytes(unsafe { layout.variable(number, record) }?.into()),
            };
        }
        Ok(Self {
            schema,
            columns,
            indexes,
        })
    }

    /// A change to `schema`, which has the columns of the old definition. `indexes` as in
    /// [`SchemaChange`].
    pub fn of_indexes(schema: TableSchema, indexes: Vec<Option<usize>>) -> Self {
        let columns = (0..schema.columns.len()).map(Some).collect();
        Self {
            schema,
            columns,
            indexes,
        }
    }
}

impl TableSchema {
    /// The reason, in words, why a change cannot be made without a copy of the rows or of the
    /// primary index; `None` if it can.
    pub fn change_trouble(&self, change: &SchemaChange) -> Option<String> {
        let new = &change.schema;
        if change.columns.len() != new.columns.len() || change.indexes.len() != new.indexes.len() {
            return Some("a column or an index without origin".into());
        }
        self.column_trouble(change)
            .or_else(|| self.index_trouble(change))
            .or_else(|| self.version_trouble(change))
    }

    fn column_trouble(&self, change: &SchemaChange) -> Option<String> {
        let mut used = vec![false; self.columns.len()];
        for (column, from) in change.schema.columns.iter().zip(&change.columns) {
            let Some(from) = *from else {
                if let Some(trouble) = added_trouble(column) {
                    return Some(trouble);
                }
                continue;
            };
            let old = self.columns.get(from).filter(|_| !used[from]);
            let Some(old) = old else {
                return Some(format!("column {} without origin", column.name));
            };
            used[from] = true;
            if !old.becomes(column) {
                return Some(format!(
                    "column {} is {}, not {}",
                    column.name,
                    old.in_words(),
                    column.in_words()
                ));
            }
        }
        let auto_increment = change.schema.auto_increment.map(|at| at as usize);
        let fresh = auto_increment.filter(|at| change.columns.get(*at) == Some(&None));
        fresh.map(|at| {
            let name = &change.schema.columns[at].name;
            format!("the rows have no numbers for column {name}")
        })
    }

    fn index_trouble(&self, change: &SchemaChange) -> Option<String> {
        let new = &change.schema;
        let mut used = Vec::new();
        for (index, from) in new.indexes.iter().zip(&change.indexes) {
            let fits = match from {
                Some(old) => {
                    let fresh = !used.contains(old);
                    used.push(*old);
                    let pairing = IndexPairing {
                        own: self,
                        given: new,
                        columns: Some(&change.columns),
                    };
                    let old = self.indexes.get(*old);
                    fresh && old.is_some_and(|old| same_entries(&pairing, old, index))
                }
                None => index.parts.iter().all(|part| {
                    let column = new.columns.get(part.column as usize);
                    column.is_some_and(|column| column.column.stored)
                }),
            };
            if !fits {
                return Some(format!("index {} cannot be made so", index.name));
            }
        }
        let primary = new.primary.map(|number| change.indexes[number as usize]);
        let own = self.primary.map(|number| Some(number as usize));
        (primary != own).then(|| "another primary key".into())
    }

    fn version_trouble(&self, change: &SchemaChange) -> Option<String> {
        let next = match self.changed_to(change) {
            Ok(next) => next,
            Err(error) => return Some(error.message().to_owned()),
        };
        let columns: usize = next.older.iter().map(|version| version.columns.len()).sum();
        let many = next.older.len() > VERSIONS_MAX || columns > OLDER_COLUMNS_MAX;
        many.then(|| "the table has had too many changes of its columns".into())
    }

    /// The definition after the change, with versions, ids of columns and defaults for older rows.
    /// The version grows if rows are written in another form from now on.
    ///
    /// # Errors
    /// `InvalidArgument`; `Unsupported` if the version numbers or the ids are used up.
    pub fn changed_to(&self, change: &SchemaChange) -> Result<Self> {
        let mut schema = change.schema.clone();
        let mut next_id = self.next_column_id()?;
        for (column, from) in schema.columns.iter_mut().zip(&change.columns) {
            let from = from.map(|from| self.columns.get(from));
            match from {
                Some(Some(old)) => column.take_stored_properties(old),
                Some(None) => return Err(Error::invalid("a column without origin")),
                None => {
                    column.column.id = next_id;
                    let next = next_id.checked_add(1);
                    next_id = next.ok_or_else(|| Error::unsupported("column ids are used up"))?;
                }
            }
        }
        let old = self.row_layout()?.row_version();
        schema.version = self.version;
        schema.older = self.older.clone();
        if schema.row_layout()?.row_version() != old {
            let next = self.version.checked_add(1);
            schema.version = next.ok_or_else(|| Error::unsupported("row versions are used up"))?;
            let older = std::iter::once(old).chain(self.older.iter().cloned());
            schema.older = older.collect();
        }
        schema.row_format()?;
        Ok(schema)
    }

    /// The smallest id that no column has or had in a row.
    fn next_column_id(&self) -> Result<u32> {
        let own = self.columns.iter().map(|column| column.column.id);
        let older = self.older.iter().flat_map(|version: &RowVersion| {
            let columns = version.columns.iter();
            columns.map(|column| column.id)
        });
        let last = own.chain(older).max();
        let next = last.map_or(Some(0), |last| last.checked_add(1));
        next.ok_or_else(|| Error::unsupported("column ids are used up"))
    }

    /// Takes over what only the catalog knows from `stored`, the stored definition of the same
    /// table: versions, ids of columns, and defaults for older rows. The columns of both must
    /// correspond by their positions.
    #[must_use]
    pub fn with_versions_of(mut self, stored: &TableSchema) -> Self {
        self.version = stored.version;
        self.older.clone_from(&stored.older);
        for (column, known) in self.columns.iter_mut().zip(&stored.columns) {
            column.take_stored_properties(known);
        }
        self
    }

    /// The definition for a table without any older row.
    #[must_use]
    pub fn without_older_versions(mut self) -> Self {
        self.older = std::sync::Arc::default();
        for column in &mut self.columns {
            column.column.instant_default = InstantDefault::Impossible;
        }
        self
    }

    /// The column of `new` that is the column `name` of this definition, perhaps under another
    /// name; `None` if there is none.
    pub fn column_in<'a>(&self, name: &str, new: &'a TableSchema) -> Option<&'a ColumnSchema> {
        let id = self.columns[self.find_column(name)?].column.id;
        new.columns.iter().find(|column| column.column.id == id)
    }
}

/// The reason why a column cannot be added without a copy of the rows.
fn added_trouble(column: &ColumnSchema) -> Option<String> {
    let of = &column.column;
    if !of.stored {
        return None;
    }
    match (&of.instant_default, of.kind) {
        (InstantDefault::Null, _) if of.null.is_some() => None,
        (InstantDefault::Bytes(bytes), ColumnKind::Fixed { len })
            if bytes.len() == len as usize =>
        {
            None
        }
        (InstantDefault::Bytes(bytes), kind) if !kind.is_fixed() && bytes.len() <= DEFAULT_MAX => {
            None
        }
        _ => Some(format!("column {} has no default", column.name)),
    }
}

impl ColumnSchema {
    /// Whether the column may become `new` while the rows stay as they are.
    fn becomes(&self, new: &Self) -> bool {
        let mut as_before = self.clone();
        // NULL may be allowed from now on; the values that are stored are not NULL.
        if self.column.null.is_none() {
            as_before.column.null = new.column.null;
        }
        as_before.is_read_as(new)
    }

    fn take_stored_properties(&mut self, known: &Self) {
        self.column.id = known.column.id;
        self.column
            .instant_default
            .clone_from(&known.column.instant_default);
    }
}
