//! Compares two table definitions: do rows and keys have the same bytes in both?
//!
//! The server's definition and the catalog's must agree in everything that the encoding of rows and
//! keys depends on; otherwise stored rows would be decoded wrongly. Other differences are harmless:
//! codecs are made from the server's definition, and read and write the same bytes.

use super::{ColumnSchema, IndexPart, IndexSchema, PartSchema, TableSchema};
use crate::keycode::CollationSpec;
use crate::rowcode::ColumnKind;

/// The difference of two definitions, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Difference {
    /// Rows and keys have the same bytes in both.
    Harmless(String),
    /// Rows or keys of one decode wrongly in the other.
    Stored(String),
}

impl TableSchema {
    /// How `given`, the server's definition, differs from this stored one, by which rows and keys
    /// were encoded; `None` if they agree. Column ids, schema versions and the defaults of
    /// instantly added columns are not compared, because the server does not know them; names are
    /// not, because the server may rename columns and indexes.
    pub fn difference(&self, given: &TableSchema) -> Option<Difference> {
        let stored = self
            .difference_of_rows(given)
            .or_else(|| self.difference_of_indexes(given));
        if let Some(stored) = stored {
            return Some(Difference::Stored(stored));
        }
        self.difference_of_records(given).map(Difference::Harmless)
    }

    /// The first difference, in words, because of which stored rows would be decoded wrongly.
    fn difference_of_rows(&self, given: &TableSchema) -> Option<String> {
        if self.columns.len() != given.columns.len() {
            let (own, others) = (self.columns.len(), given.columns.len());
            return Some(format!("{own} columns, not {others}"));
        }
        let mut pairs = self.columns.iter().zip(&given.columns);
        let differing = pairs.find(|(own, given)| !own.is_read_as(given));
        differing.map(|(own, given)| {
            format!(
                "column {} is {}, not {}",
                given.name,
                own.in_words(),
                given.in_words()
            )
        })
    }

    /// The first difference, in words, because of which stored keys would be decoded or sorted
    /// wrongly.
    fn difference_of_indexes(&self, given: &TableSchema) -> Option<String> {
        if self.indexes.len() != given.indexes.len() {
            let (own, others) = (self.indexes.len(), given.indexes.len());
            return Some(format!("{own} indexes, not {others}"));
        }
        if self.primary != given.primary {
            return Some("another primary key".into());
        }
        let mut pairs = self.indexes.iter().zip(&given.indexes);
        let pairing = IndexPairing {
            own: self,
            given,
            columns: None,
        };
        let differing = pairs.find(|(own, given)| !same_entries(&pairing, own, given));
        differing.map(|(own, given)| {
            format!(
                "index {} is {}, not {}",
                given.name,
                self.index_in_words(own),
                self.index_in_words(given)
            )
        })
    }

    /// The first difference, in words, that changes neither the bytes of stored rows nor those of
    /// stored keys.
    fn difference_of_records(&self, given: &TableSchema) -> Option<String> {
        if self.locking != given.locking {
            let (own, others) = (self.locking, given.locking);
            return Some(format!("locking: {own:?}, not {others:?}"));
        }
        if self.auto_increment != given.auto_increment {
            let name = |schema: &TableSchema| {
                let column = schema.auto_increment.map(|at| at as usize);
                let column = column.and_then(|at| given.columns.get(at));
                column.map_or_else(|| "none".to_owned(), |column| column.name.clone())
            };
            let (own, others) = (name(self), name(given));
            return Some(format!("AUTO_INCREMENT column: {own}, not {others}"));
        }
        if (self.record_len, self.null_bytes) != (given.record_len, given.null_bytes) {
            return Some(format!(
                "record of {} bytes, {} of them NULL bits, not {} and {}",
                self.record_len, self.null_bytes, given.record_len, given.null_bytes
            ));
        }
        let mut pairs = self.columns.iter().zip(&given.columns);
        let differing = pairs.find(|(own, given)| !own.is_same(given));
        if let Some((own, given)) = differing {
            return Some(format!(
                "column {} is {}, not {}",
                given.name,
                own.in_words(),
                given.in_words()
            ));
        }
        let mut pairs = self.columns.iter().zip(&given.columns);
        let differing = pairs.find(|(own, given)| !own.is_interpreted_as(given));
        differing.map(|(_, given)| {
            format!(
                "column {} has another sign, number of decimals, character set or list of members",
                given.name
            )
        })
    }

    fn index_in_words(&self, index: &IndexSchema) -> String {
        let parts = index.parts.iter().map(|part| {
            let column = self.columns.get(part.column as usize);
            let name = column.map_or("?", |column| column.name.as_str());
            let prefix = part.prefix.map_or(String::new(), |len| format!("({len})"));
            let order = if part.desc { " DESC" } else { "" };
            let kind = match &part.kind {
                PartSchema::Text(collation) => format!(" {}", collation.spec.name),
                _ => String::new(),
            };
            format!("{name}{prefix}{kind}{order}")
        });
        let parts = parts.collect::<Vec<_>>().join(", ");
        let unique = if index.unique { "unique " } else { "" };
        format!("{unique}({parts})")
    }
}

/// Two definitions of a table whose indexes are compared.
pub(super) struct IndexPairing<'a> {
    pub(super) own: &'a TableSchema,
    pub(super) given: &'a TableSchema,
    /// For each column of `given`, its number in `own`; without it, the columns correspond by their
    /// numbers.
    pub(super) columns: Option<&'a [Option<usize>]>,
}

/// Whether two indexes over the same rows, one of each definition, have entries with the same
/// bytes.
pub(super) fn same_entries(
    pairing: &IndexPairing<'_>,
    own: &IndexSchema,
    given: &IndexSchema,
) -> bool {
    own.unique == given.unique
        && own.parts.len() == given.parts.len()
        && own.parts.iter().zip(&given.parts).all(|(own, given)| {
            let at = given.column as usize;
            let from = match pairing.columns {
                Some(columns) => columns.get(at).copied().flatten(),
                None => Some(at),
            };
            let column = pairing.own.columns.get(own.column as usize);
            let (Some(column), Some(new)) = (column, pairing.given.columns.get(at)) else {
                return false;
            };
            // The key of a part that may be NULL has a marker.
            from == Some(own.column as usize)
                && column.column.null.is_some() == new.column.null.is_some()
                && own.is_encoded_as(given)
                && (column.column.kind.is_open_ended() || own.image_len == given.image_len)
        })
}

impl ColumnSchema {
    /// Whether a value that was stored for this column decodes to the same value if the column is
    /// defined as `given`. `given` may have a larger maximum length, and may lie at another offset
    /// in the record buffer. Two virtual columns always match, since no value of them is stored.
    pub(super) fn is_read_as(&self, given: &Self) -> bool {
        let (own, other) = (&self.column, &given.column);
        if !own.stored && !other.stored {
            return true;
        }
        let room = match (own.kind, other.kind) {
            (ColumnKind::VarChar { max, .. }, ColumnKind::VarChar { max: room, .. }) => max <= room,
            (ColumnKind::Blob { len_bytes }, ColumnKind::Blob { len_bytes: room }) => {
                len_bytes <= room
            }
            (own, other) => own == other,
        };
        room && own.stored == other.stored
            && own.null.is_some() == other.null.is_some()
            && (self.chars, self.type_code) == (given.chars, given.type_code)
    }

    /// Whether both columns have the same place and form in the record buffer.
    fn is_same(&self, given: &Self) -> bool {
        let (own, other) = (&self.column, &given.column);
        (own.kind, own.offset, own.null, own.stored)
            == (other.kind, other.offset, other.null, other.stored)
            && (self.chars, self.type_code) == (given.chars, given.type_code)
    }

    /// Whether the server reads the same value from the same bytes under both definitions, as far
    /// as the checksums in [`ColumnSchema::interpretation`] tell. A definition that was stored in
    /// format 1 has no such checksum (it is 0); then the answer is yes.
    fn is_interpreted_as(&self, given: &Self) -> bool {
        let (own, other) = (self.interpretation, given.interpretation);
        own == other || own == 0 || other == 0
    }

    pub(super) fn in_words(&self) -> String {
        let column = &self.column;
        let kind = match column.kind {
            ColumnKind::Fixed { len } => format!("{len} bytes"),
            ColumnKind::Char { len, .. } => format!("CHAR of {len} bytes"),
            ColumnKind::VarChar { max, .. } => format!("at most {max} bytes"),
            ColumnKind::Blob { len_bytes } => format!("a blob whose length has {len_bytes} bytes"),
        };
        format!(
            "{kind} at offset {}, of the server's type {}, {}{}",
            column.offset,
            self.type_code,
            if column.null.is_some() {
                "NULL"
            } else {
                "NOT NULL"
            },
            if column.stored { "" } else { ", not stored" }
        )
    }
}

impl IndexPart {
    /// Whether the same values have the same bytes in both parts, apart from the NULL marker.
    fn is_encoded_as(&self, other: &Self) -> bool {
        let kinds = match (&self.kind, &other.kind) {
            (PartSchema::Int { signed: a }, PartSchema::Int { signed: b }) => a == b,
            (PartSchema::Text(a), PartSchema::Text(b)) => same_format(&a.spec, &b.spec),
            (PartSchema::Float, PartSchema::Float)
            | (PartSchema::Fixed, PartSchema::Fixed)
            | (PartSchema::VarBytes, PartSchema::VarBytes) => true,
            _ => false,
        };
        kinds && (self.desc, self.prefix) == (other.desc, other.prefix)
    }
}

/// Whether text has the same key bytes under both collations. The table of simple weights is not
/// compared: it only speeds up the encoding, and does not change its result.
pub(super) fn same_format(a: &CollationSpec, b: &CollationSpec) -> bool {
    (a.id, &a.name, a.pad, &a.levels) == (b.id, &b.name, b.pad, &b.levels)
        && (a.weight_len, a.form, a.char_filled) == (b.weight_len, b.form, b.char_filled)
}
